"""Makes directional.json with PyTorch: python tests/reference/directional.py

A directional block for each pooling and depth of its router, forward and backward, and under interventions in its routing.
Heads are suppressed one by one, as the paper writes it, and not through the output projection as the program does.
Parameters and inputs are sines, as in network.py; everything is computed in f64.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F

from network import BATCH, FEED_FORWARD, HEADS, TIME, WIDTH, linear, norm, parameters, rotate, short, sines

DIRECTIONS, HIDDEN, TEMPERATURE = 3, 5, 5.0
HEAD = WIDTH // HEADS
LENGTHS = (TIME, TIME - 2)


def specification(depth):
    tensors = [
        ("block.0.attention-norm.weight", (WIDTH,)),
        ("block.0.attention.qkv.weight", (3 * WIDTH, WIDTH)),
        ("block.0.attention.out.weight", (WIDTH, WIDTH)),
        ("block.0.feed-forward-norm.weight", (WIDTH,)),
        ("block.0.feed-forward.in.weight", (FEED_FORWARD, WIDTH)),
        ("block.0.feed-forward.out.weight", (WIDTH, FEED_FORWARD)),
        ("router.0.norm.weight", (WIDTH,)),
        ("router.0.norm.bias", (WIDTH,)),
    ]
    widths = [WIDTH] + [HIDDEN] * (depth - 1) + [HEADS * DIRECTIONS]
    for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        tensors.append((f"router.0.linear.{layer}.weight", (outputs, inputs)))
        tensors.append((f"router.0.linear.{layer}.bias", (outputs,)))
    tensors.append(("directions.0.weight", (HEADS, DIRECTIONS, HEAD)))
    return tensors


def pool(x, pooling):
    """[batch, time, width] to [batch, time or 1, width]."""
    if pooling == "token":
        return x
    if pooling == "prefix":
        return torch.stack([x[:, : t + 1].mean(1) for t in range(TIME)], dim=1)
    return torch.stack([row[:length].mean(0, keepdim=True) for row, length in zip(x, LENGTHS)])


def routing(values, x, pooling, depth):
    hidden = norm(values, "router.0.norm", pool(x, pooling))
    for layer in range(depth):
        hidden = linear(values, f"router.0.linear.{layer}", F.gelu(hidden) if layer else hidden)
    # [batch, heads, time or 1, directions]
    return torch.sigmoid(TEMPERATURE * hidden).unflatten(-1, (HEADS, DIRECTIONS)).transpose(1, 2)


def block(values, x, pooling, reads, depth, intervene):
    inner = norm(values, "block.0.attention-norm", x)
    parts = linear(values, "block.0.attention.qkv", inner).chunk(3, dim=-1)
    q, k, v = (part.view(BATCH, TIME, HEADS, HEAD).transpose(1, 2) for part in parts)
    heads = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
    r = intervene(routing(values, x if reads == "stream" else inner, pooling, depth)).expand(BATCH, HEADS, TIME, DIRECTIONS)
    directions = F.normalize(values["directions.0.weight"], dim=-1)
    suppressed = heads
    for k in range(DIRECTIONS):
        d = directions[:, k].view(1, HEADS, 1, HEAD)
        suppressed = suppressed - r[..., k : k + 1] * (heads * d).sum(-1, keepdim=True) * d
    x = x + linear(values, "block.0.attention.out", suppressed.transpose(1, 2).reshape(BATCH, TIME, WIDTH))
    hidden = F.gelu(linear(values, "block.0.feed-forward.in", norm(values, "block.0.feed-forward-norm", x)))
    return x + linear(values, "block.0.feed-forward.out", hidden)


def one_head(r, head, value):
    r = r.clone()
    r[:, head] = value
    return r


def one_direction(r, head, direction, value):
    r = r.clone()
    r[:, head, :, direction] = value
    return r


INTERVENTIONS = {
    "none": lambda r: r,
    "off": torch.zeros_like,
    "neutral": lambda r: torch.full_like(r, 0.5),
    "full": torch.ones_like,
    "head 1 off": lambda r: one_head(r, 1, 0.0),
    "head 0 direction 2 full": lambda r: one_direction(r, 0, 2, 1.0),
}


def counted(tensor):
    """Without padding, which is nobody's business."""
    return torch.cat([row[:length] for row, length in zip(tensor, LENGTHS)])


def case(pooling, reads, depth):
    values = parameters(specification(depth))
    x = sines((BATCH, TIME, WIDTH), 0.9, 0.2, 1.0).float().double().requires_grad_()
    out = counted(block(values, x, pooling, reads, depth, INTERVENTIONS["none"]))
    gradients = torch.autograd.grad(out.square().sum(), [x, *values.values()])
    outputs = {
        name: short(counted(block(values, x, pooling, reads, depth, intervene))) for name, intervene in INTERVENTIONS.items()
    }
    return {
        "pooling": pooling,
        "reads": reads,
        "router_layers": depth,
        "outputs": outputs,
        "input_gradient": short(gradients[0]),
        "gradients": {name: short(gradient) for name, gradient in zip(values, gradients[1:], strict=True)},
    }


def main():
    cases = [case(pooling, "normed", depth) for pooling in ("prefix", "sequence", "token") for depth in (1, 4)]
    cases += [case(pooling, "stream", 4) for pooling in ("prefix", "sequence")]
    with open(Path(__file__).parent / "directional.json", "w") as file:
        json.dump({"lengths": LENGTHS, "cases": cases}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
