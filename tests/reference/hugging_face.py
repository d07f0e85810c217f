"""What `transformers` makes of the same models, and of ours.

    python tests/reference/hugging_face.py
        makes hugging_face/gpt2 and hugging_face/gpt_neox: models as save_pretrained writes them, and their logits.
    python tests/reference/hugging_face.py --check FOLDER ...
        loads folders that `pathswarm export` or tests/agreement/hugging_face.rs has written, and compares logits with the
        folder's logits.json where there is one.

Made with torch 2.11.0 and transformers 5.23.0.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).parent / "hugging_face"
TOKENS = [[1, 5, 77, 200, 3, 9, 150, 257], [0, 0, 31, 32, 33, 256, 2, 1]]
SIZES = {
    "gpt2": dict(vocab_size=258, n_positions=16, n_embd=8, n_layer=2, n_head=2, n_inner=20,
                 activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "gpt_neox": dict(vocab_size=258, max_position_embeddings=16, hidden_size=8, num_hidden_layers=2,
                     num_attention_heads=2, intermediate_size=20, hidden_act="gelu", use_parallel_residual=False,
                     rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0)),
}


def logits(model):
    with torch.no_grad():
        return model.eval().float()(torch.tensor(TOKENS)).logits


def make():
    for name, sizes in SIZES.items():
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **sizes))
        with torch.no_grad():
            # Initial values alone would hide a bias that is left out, or heads in another order.
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.4)
        folder = HERE / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        values = dict(tokens=TOKENS, logits=logits(model).tolist())
        (folder / "logits.json").write_text(json.dumps(values))


def check(folder):
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    wrong = {key: value for key, value in loading.items() if value}
    assert not wrong, f"{folder}: {wrong}"
    expected = Path(folder) / "logits.json"
    if expected.exists():
        expected = torch.tensor(json.loads(expected.read_text())["logits"])
        difference = (logits(model) - expected).abs().max().item()
        assert difference < 1e-4, f"{folder}: logits differ by {difference}"
        print(f"{folder}: {type(model).__name__}, logits differ by at most {difference:.1e}")
    if (Path(folder) / "tokenizer.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        prompt = tokenizer("Once upon a time", return_tensors="pt")
        made = model.generate(**prompt, max_new_tokens=20, do_sample=False)
        print(f"{folder}: {type(tokenizer).__name__}: {tokenizer.decode(made[0])!r}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        for folder in sys.argv[2:]:
            check(folder)
    else:
        make()
