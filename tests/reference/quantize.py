"""Makes quantize.json: values, and what a receiver decodes from them, by PyTorch's f32 and bfloat16 arithmetic.

python tests/reference/quantize.py > tests/reference/quantize.json   (made with torch 2.11.0 on a CPU)

Numbers stand for the bits of f32 values.
"""

import json

import torch

GROUP = 128


def decoded(values, top):
    padded = torch.nn.functional.pad(values, (0, -len(values) % GROUP)).reshape(-1, GROUP)
    scales = (padded.abs().amax(dim=1, keepdim=True) / top).bfloat16().float()
    inverse = torch.ones(()) / scales
    levels = torch.where(scales > 0, padded * inverse, 0.0).round()  # half to even
    assert levels.abs().max() == top
    return (levels * scales + 0.0).flatten()[: len(values)]  # + 0.0: a decoded zero has no sign


def bits(values):
    return values.view(torch.int32).tolist()


torch.manual_seed(3)
values = torch.randn(5 * GROUP // 2) * torch.logspace(-7, 1, 5 * GROUP // 2)
values[:8] = torch.tensor([6.0, -3.5, 0.5, 1.5, 2.5, -0.5, -1.5, 0.0])
values[GROUP : GROUP + 20] = 0.0
print(json.dumps({"values": bits(values), "int8": bits(decoded(values, 127.0)), "int4": bits(decoded(values, 6.0))}))
