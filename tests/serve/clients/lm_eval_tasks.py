"""Runs the commands of docs/guide/evaluate.md with tasks of its own, and compares what lm-eval tells with what `transformers`
computes of the exported folders: python lm_eval_tasks.py RUN_URL FOLDER_URL NAME PATH EXPORTED WHOLE CORPUS HOME.

RUN_URL is a server of the collected run NAME, and FOLDER_URL one of EXPORTED, which is its path PATH. WHOLE is the whole run.
CORPUS is a folder of JSON Lines. HOME is for what is written.
"""

import json
import math
import pathlib
import random
import re
import sys

import lm_eval
import torch
from lm_eval.__main__ import cli_evaluate
from transformers import AutoModelForCausalLM, AutoTokenizer

RUN_URL, FOLDER_URL, NAME, PATH, EXPORTED, WHOLE, CORPUS, HOME = sys.argv[1:]
HOME = pathlib.Path(HOME)
GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide/evaluate.md"

# Of a log-likelihood in nats, and of a perplexity as a part of it.
TOLERANCE = 1e-4
NEW_TOKENS = 12
UNTIL = "mo"

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{ data_files: {{ test: {file} }} }}
test_split: test
{more}
"""
CHOICES = """\
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
metric_list: [{ metric: acc }, { metric: acc_norm }]
"""
TEXTS = """\
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{page}}"
metric_list: [{ metric: word_perplexity }, { metric: byte_perplexity }, { metric: bits_per_byte }]
"""
ANSWERS = f"""\
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{ until: ["{UNTIL}"], max_gen_toks: {NEW_TOKENS}, do_sample: false, temperature: 0 }}
metric_list: [{{ metric: exact_match }}]
"""

tokenizer = AutoTokenizer.from_pretrained(EXPORTED)
CONTEXT = tokenizer.model_max_length


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32).eval()


def encode(text):
    return tokenizer(text, add_special_tokens=False).input_ids


def write(name, docs, more):
    """A task that lm-eval finds in HOME."""
    file = HOME / f"{name}.jsonl"
    file.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    (HOME / f"{name}.yaml").write_text(TASK.format(name=name, file=file, more=more))


def documents():
    files = sorted(pathlib.Path(CORPUS).glob("*.jsonl"))
    return [[json.loads(line)["text"] for line in file.read_text().splitlines()] for file in files]


def questions(domains):
    """The last words of a document and of three others, after some documents or the beginning of one."""
    drawn, found = random.Random(1), []
    for number in range(24):
        own = domains[number % len(domains)]
        before = own[number : number + drawn.choice([0, 0, 4])]
        last = own[number + 40].split()
        words = [drawn.randrange(1, 5) for _ in range(4)]
        others = [drawn.choice(drawn.choice(domains)).split()[-count:] for count in words[1:]]
        choices = [" ".join(choice) for choice in (last[-words[0] :], *others)]
        gold = drawn.randrange(4)
        choices[0], choices[gold] = choices[gold], choices[0]
        question = " ".join([*before, *last[: -words[0]][: drawn.randrange(1, 12)]])
        found.append({"question": question, "choices": choices, "gold": gold})
    return found


@torch.no_grad()
def log_probabilities(model, tokens):
    """Of each token after the first, and whether it is the likeliest; at last the likeliest next one."""
    logits = model(torch.tensor([tokens])).logits[0].double().log_softmax(-1)
    best = logits.argmax(-1).tolist()
    own = logits[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()
    return own, [token == likeliest for token, likeliest in zip(tokens[1:], best)], best[-1]


def expected_choices(model, docs):
    """Each choice's log-likelihood and whether it is what the model would say; the measures; and how often the document ends."""
    scored, right, right_by_length, ended, cut = [], 0, 0, 0, 0
    for doc in docs:
        own = []
        for choice in doc["choices"]:
            all_tokens = encode(f"{doc['question']} {choice}")
            count = len(all_tokens) - len(encode(doc["question"]))
            # lm-eval leaves a place for the token that it has to ask for.
            kept = all_tokens[-(CONTEXT - 1) :]
            cut += len(kept) < len(all_tokens)
            logprobs, likeliest, after = log_probabilities(model, kept)
            own.append((sum(logprobs[-count:]), all(likeliest[-count:])))
            ended += after == tokenizer.eos_token_id
        values = [value for value, _ in own]
        by_length = [value / len(choice) for value, choice in zip(values, doc["choices"])]
        right += values.index(max(values)) == doc["gold"]
        right_by_length += by_length.index(max(by_length)) == doc["gold"]
        scored.append(own)
    assert ended > 10 and cut > 10, f"{ended} choices end their document and {cut} are cut: the task tries too little"
    return scored, {"acc": right / len(docs), "acc_norm": right_by_length / len(docs)}


def expected_texts(model, docs):
    """Each page's log-likelihood, window by window, and the measures."""
    reach, totals, words, size = CONTEXT - 2, [], 0, 0
    for doc in docs:
        tokens = [tokenizer.bos_token_id, *encode(doc["page"])]
        total = 0.0
        for begin in range(1, len(tokens), reach):
            end = min(begin + reach, len(tokens))
            # The last window sees as much as the others; the first ones see one token before their own.
            window = tokens[max(end - reach - 1, 0) : end]
            total += sum(log_probabilities(model, window)[0][begin - end :])
        totals.append(total)
        words += len(re.split(r"\s+", doc["page"]))
        size += len(doc["page"].encode())
    whole = sum(totals)
    return totals, {
        "word_perplexity": math.exp(-whole / words),
        "byte_perplexity": math.exp(-whole / size),
        "bits_per_byte": -whole / size / math.log(2),
    }


@torch.no_grad()
def continued(model, text):
    """What the model says after a text, without the string that ends it."""
    tokens = encode(text)
    made = model.generate(torch.tensor([tokens]), max_new_tokens=NEW_TOKENS, do_sample=False)[0, len(tokens) :]
    return tokenizer.decode(made, skip_special_tokens=True).split(UNTIL)[0].split("\nUser:")[0]


def command(model, which):
    """The words of a command of the guide; the first that asks for this model in this way."""
    lines = [line for line in GUIDE.read_text().splitlines() if line.startswith("lm_eval run ")]
    found = next(line for line in lines if f"--model {which} " in line and f"model={model}," in line)
    return found.split()[1:]


def run(words, url, tasks):
    """Runs a command of the guide against a server, and returns the measures and the samples of tasks."""
    out = HOME / f"out-{len(list(HOME.glob('out-*')))}"
    swap = {"http://127.0.0.1:8080/v1": url, "model=NAME": f"model={NAME}", "tokenizer=FOLDER": f"tokenizer={EXPORTED}"}
    swap |= {"model=FOLDER": f"model={pathlib.Path(EXPORTED).name}", "max_length=1024": f"max_length={CONTEXT}"}
    swap["path-0"] = f"path-{PATH}"
    for old, new in swap.items():
        words = [word.replace(old, new) for word in words]
    words[words.index("--tasks") + 1] = ",".join(tasks)
    sys.argv = ["lm_eval", *words, "--include_path", str(HOME), "--output_path", str(out), "--log_samples"]
    cli_evaluate()
    results = json.loads(next(out.rglob("results_*.json")).read_text())["results"]
    found = {}
    for task in tasks:
        samples = next(out.rglob(f"samples_{task}_*.jsonl")).read_text().splitlines()
        samples = sorted(map(json.loads, samples), key=lambda sample: sample["doc_id"])
        found[task] = (results[task], [sample["filtered_resps"] for sample in samples])
    return found


def number(value):
    return value if isinstance(value, (float, int)) else float(value)


def compare(what, found, choices, texts):
    """Compares what was told of the two tasks. Says how far it is apart."""
    (measures, likelihoods), (all_expected, expected) = found["made_choices"], choices
    apart = 0.0
    for own, known in zip(likelihoods, all_expected, strict=True):
        for (value, greedy), (known_value, known_greedy) in zip(own, known, strict=True):
            apart = max(apart, abs(number(value) - known_value))
            assert str(greedy) == str(known_greedy), (what, own, known)
    assert apart < TOLERANCE, f"{what}: a choice's log-likelihood is {apart} apart"
    for name, value in expected.items():
        assert measures[f"{name},none"] == value, (what, name, measures, value)
    (measures_of_texts, totals), (known_totals, expected_of_texts) = found["made_texts"], texts
    totals = [number(total[0] if isinstance(total, list) else total) for total in totals]
    rolling = max(abs(total / known - 1) for total, known in zip(totals, known_totals, strict=True))
    for name, value in expected_of_texts.items():
        rolling = max(rolling, abs(measures_of_texts[f"{name},none"] / value - 1))
    assert rolling < TOLERANCE, f"{what}: {measures_of_texts} instead of {expected_of_texts}"
    told = {name: round(value, 6) for name, value in (expected | expected_of_texts).items()}
    print(f"{what}: {told}; log-likelihoods {apart:.1e} nats apart, rolling {rolling:.1e} of themselves")


def likelihoods(path, whole):
    domains = documents()
    docs = questions(domains)
    pages = [{"page": "\n".join(domain[begin : begin + 5])} for domain in domains for begin in (60, 70)]
    write("made_choices", docs, CHOICES)
    write("made_texts", pages, TEXTS)
    tasks = ["made_choices", "made_texts"]
    of_path = expected_choices(path, docs), expected_texts(path, pages)
    of_run = expected_choices(whole, docs), expected_texts(whole, pages)
    assert of_path[0][0] != of_run[0][0]
    compare("the routed run", run(command("NAME", "local-completions"), RUN_URL, tasks), *of_run)
    compare(f"path {PATH}", run(command("NAME/path-0", "local-completions"), RUN_URL, tasks), *of_path)
    compare("its folder", run(command("FOLDER", "local-completions"), FOLDER_URL, tasks), *of_path)


def answers(model, what, url, words, asked):
    """Half of the answers are what the model says, so that half of them match."""
    beginnings = [document.split()[:3] for domain in documents() for document in domain[:4]]
    prompts = [" ".join(words) for words in beginnings]
    said = [continued(model, asked(prompt)) for prompt in prompts]
    assert any(UNTIL in tokenizer.decode(encode(text)) for text in prompts) and len(set(said)) > 1, said
    wanted = [text if at % 2 else f"not {text}" for at, text in enumerate(said)]
    docs = [{"question": prompt, "answer": text} for prompt, text in zip(prompts, wanted)]
    write("made_answers", docs, ANSWERS)
    measures, found = run(words, url, ["made_answers"])["made_answers"]
    found = [answer[0] if isinstance(answer, list) else answer for answer in found]
    assert found == said, f"{what}: {found} instead of {said}"
    assert measures["exact_match,none"] == 0.5, measures
    print(f"{what}: {len(found)} answers are the same, exact_match {measures['exact_match,none']}")


path, whole = load(EXPORTED), load(WHOLE)
likelihoods(path, whole)
answers(whole, "texts", RUN_URL, command("NAME", "local-completions"), lambda prompt: prompt)
as_chat = lambda prompt: f"User: {prompt}\n\nAssistant:"
chat = command("NAME", "local-chat-completions")
answers(whole, "chats", RUN_URL, chat, as_chat)
answers(path, "chats of its folder", FOLDER_URL, command("FOLDER", "local-chat-completions"), as_chat)
print("as by lm-eval", lm_eval.__version__)
