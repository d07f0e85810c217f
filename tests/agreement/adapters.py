"""Loads adapters that `pathswarm export --adapter` has written with PEFT, beside their model, and compares the logits with
those of the model into which they are merged.

    python tests/agreement/adapters.py FOLDER ...

A FOLDER has `base`, `merged` and `adapter`, as tests/agreement/adapters.rs writes them.
"""

import sys
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

# Of logits in f32.
TOLERANCE = 1e-4


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def compare(folder):
    tokens = torch.arange(32).view(2, 16) * 7 % 250
    plain = load(folder / "base")(tokens).logits
    merged = load(folder / "merged")(tokens).logits
    adapted = PeftModel.from_pretrained(load(folder / "base"), folder / "adapter").eval()
    unused = [name for name, value in adapted.named_parameters() if "lora_B" in name and not value.any()]
    assert not unused, f"{folder.name}: PEFT has not loaded {unused}"
    apart = (adapted(tokens).logits - merged).abs().max().item()
    changed = (merged - plain).abs().max().item()
    print(f"{folder.name}: {apart:.1e} apart, where the adapters change {changed:.2f}")
    assert apart < TOLERANCE and changed > 0.1, folder.name
    again = (adapted.merge_and_unload()(tokens).logits - merged).abs().max().item()
    assert again < TOLERANCE, f"{folder.name}: merged by PEFT {again:.1e} apart"


for name in sys.argv[1:]:
    compare(Path(name))
