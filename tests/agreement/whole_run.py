"""Loads folders that `pathswarm export --whole` has written, as their users do, and compares them with this program.

    python tests/agreement/whole_run.py FOLDER EXPECTED ...

EXPECTED is a JSON file that tests/agreement/whole_run.rs writes: `texts` and their `routes`; `tokens` and `logits`, of each
path; and `prompts`, each with its `path`, how many `tokens` it has, and the `text` that follows.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

# Of logits in f32.
TOLERANCE = 1e-4


def load(folder, **how):
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, **how).eval()


def apart(ours, theirs):
    return (ours - theirs).abs().max().item()


def padded(texts, left):
    """Texts of different lengths in one tensor, and their mask."""
    longest = max(map(len, texts))
    pad = lambda text, fill: [fill] * (longest - len(text))
    row = lambda text, fill, own: pad(text, fill) + own if left else own + pad(text, fill)
    ids = torch.tensor([row(text, 5, text) for text in texts])
    return ids, torch.tensor([row(text, 0, [1] * len(text)) for text in texts])


def refused(function, said):
    try:
        function()
    except ValueError as error:
        assert said in str(error), error
    else:
        raise AssertionError(f"not refused: {said}")


def check_routes(model, texts, routes, precision):
    for left in (False, True):
        found = model.route(*padded(texts, left)).tolist()
        assert found == routes, f"{precision}: {found} instead of {routes}"


def check_logits(model, tokens, logits):
    """Each path alone, then texts of all paths in one batch. Returns the greatest distance."""
    ids, expected = torch.tensor(tokens), torch.tensor(logits)
    most = 0.0
    for path in range(len(expected)):
        found = model(ids, path=path)
        assert found.path.tolist() == [path] * len(ids)
        most = max(most, apart(found.logits, expected[path]))
    together = ids[:1].repeat(len(expected), 1)
    found = model(together, path=list(range(len(expected))))
    most = max(most, apart(found.logits, expected[:, 0]))
    paths = model.route(ids)
    found = model(ids)
    assert torch.equal(found.path, paths)
    own = torch.stack([expected[path, row] for row, path in enumerate(paths.tolist())])
    most = max(most, apart(found.logits, own))
    # The loss of next tokens.
    loss = -own[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).mean()
    assert abs(model(ids, labels=ids).loss - loss) < TOLERANCE
    return most


def check_cache(model, tokens, logits):
    """In two pieces and then token by token, all paths in one batch. Returns the greatest distance."""
    expected = torch.tensor(logits)[:, 0]
    ids = torch.tensor(tokens[:1]).repeat(len(expected), 1)
    paths = torch.arange(len(expected))
    found = model(ids[:, :3], path=paths)
    pieces = [found.logits]
    for begin, end in [(3, 6), *((at, at + 1) for at in range(6, ids.shape[1]))]:
        found = model(ids[:, begin:end], past_key_values=found.past_key_values, path=found.path)
        pieces.append(found.logits)
    past = found.past_key_values
    refused(lambda: model(ids[:, :1], past_key_values=past), "give the path of what came before")
    return apart(torch.cat(pieces, 1), expected)


def check_padding(model, texts):
    """Texts of one batch with padding on either side are read as each is alone. Returns the greatest distance."""
    most = 0.0
    for left in (False, True):
        ids, mask = padded(texts, left)
        found = model(ids, attention_mask=mask)
        assert found.logits.isfinite().all()
        for row, text in enumerate(texts):
            alone = model(torch.tensor([text])).logits[0]
            most = max(most, apart(found.logits[row][mask[row].bool()], alone))
    return most


def check_prompts(model, tokenizer, prompts):
    for asked in prompts:
        inputs = tokenizer(asked["prompt"], return_tensors="pt")
        assert inputs.input_ids.shape[1] == asked["prompt_tokens"]
        assert model.route(inputs.input_ids).tolist() == [asked["path"]]
        for how in ({}, {"use_cache": False}, {"path": asked["path"]}):
            made = model.generate(**inputs, max_new_tokens=asked["tokens"], do_sample=False, **how)
            text = tokenizer.decode(made[0, inputs.input_ids.shape[1] :], skip_special_tokens=True)
            assert text == asked["text"], f"{text!r} instead of {asked['text']!r}"
    if prompts:
        tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
        inputs = tokenizer([asked["prompt"] for asked in prompts], return_tensors="pt", padding=True)
        made = model.generate(**inputs, max_new_tokens=prompts[0]["tokens"], do_sample=False)
        made = tokenizer.batch_decode(made[:, inputs.input_ids.shape[1] :], skip_special_tokens=True)
        assert made == [asked["text"] for asked in prompts], made


@torch.no_grad()
def check(folder, expected):
    model = load(folder)
    check_routes(model, expected["texts"], expected["routes"], "f32")
    # Features are in f32 all the same.
    check_routes(load(folder, dtype=torch.bfloat16), expected["texts"], expected["routes"], "bf16")
    most = {"logits": check_logits(model, expected["tokens"], expected["logits"])}
    if model.config.directional is None:
        most["cache"] = check_cache(model, expected["tokens"], expected["logits"])
    most["padding"] = check_padding(model, expected["texts"][:6])
    context, paths = model.config.max_position_embeddings, len(model.config.paths)
    refused(lambda: model(torch.ones(1, context + 1, dtype=torch.long)), f"longer than the {context} tokens")
    refused(lambda: model(torch.tensor([[1]]), path=paths), f"from 0 to {paths - 1}")
    prompts = expected["prompts"]
    if prompts:
        check_prompts(model, AutoTokenizer.from_pretrained(folder, trust_remote_code=True), prompts)
    said = ", ".join(f"{what} {distance:.1e}" for what, distance in most.items())
    print(f"{folder}: {len(expected['routes'])} routes, {len(prompts)} prompts; {said} apart")
    assert max(most.values()) < TOLERANCE


if __name__ == "__main__":
    for folder, expected in zip(sys.argv[1::2], sys.argv[2::2]):
        with open(expected) as file:
            check(folder, json.load(file))
