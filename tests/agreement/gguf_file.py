"""Compares a folder with the GGUF file that scripts/gguf makes of it: gguf_file.py SCRIPT FOLDER OTHER FILE. OTHER is no Llama."""

import os
import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

script, folder, other, file = sys.argv[1:]
converted = subprocess.run([sys.executable, script, folder, file], capture_output=True, text=True)
assert converted.returncode == 0, converted.stderr
refused = subprocess.run([sys.executable, script, other, file + ".other"], capture_output=True, text=True)
assert refused.returncode == 2 and "only a LlamaForCausalLM" in refused.stderr, refused.stderr
assert not os.path.exists(file + ".other")

home, name = os.path.split(file)
theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
ours = AutoModelForCausalLM.from_pretrained(home, gguf_file=name, dtype=torch.float32).eval()
text = "It has 12345 phases;  isn't it?\n\n\tfn main() {}\n éè 日本 ba ke li mo"
tokens = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
read = AutoTokenizer.from_pretrained(home, gguf_file=name)(text)["input_ids"]
assert tokens == read, (tokens, read)
with torch.no_grad():
    found, expected = (model(torch.tensor([tokens[:60]])).logits for model in (ours, theirs))
apart = (found - expected).abs().max().item()
print(f"{len(tokens)} tokens alike; logits at most {apart} apart")
assert apart < 1e-5 and expected.abs().max() > 1e-2
