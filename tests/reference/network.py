"""Makes network.json with PyTorch: python tests/reference/network.py

For each way of positions and biases: one attention, one block, and a whole network trained for a few steps on ragged
sequences. Parameters and inputs are sines, so that a test can make the same without storing them. Everything is
computed in f64, which says what f32 should be close to.
"""

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F

WIDTH, HEADS, FEED_FORWARD, BLOCKS, VOCABULARY, CONTEXT = 8, 2, 16, 2, 258, 40
BATCH, TIME = 2, 6
STEPS, RATE = 4, 1e-2


def sines(shape, pace, phase, scale):
    count = math.prod(shape)
    values = [scale * math.sin(pace * index + phase) for index in range(count)]
    return torch.tensor(values, dtype=torch.float64).view(shape)


def specification(positions, biases, tied):
    """Names and shapes, in the order of the flat buffer."""
    tensors = [("embedding.tokens.weight", (VOCABULARY, WIDTH))]
    if positions == "learned":
        tensors.append(("embedding.positions.weight", (CONTEXT, WIDTH)))

    def add(name, outputs, *inputs):
        tensors.append((f"{name}.weight", (outputs, *inputs)))
        if biases:
            tensors.append((f"{name}.bias", (outputs,)))

    for block in range(BLOCKS):
        add(f"block.{block}.attention-norm", WIDTH)
        add(f"block.{block}.attention.qkv", 3 * WIDTH, WIDTH)
        add(f"block.{block}.attention.out", WIDTH, WIDTH)
        add(f"block.{block}.feed-forward-norm", WIDTH)
        add(f"block.{block}.feed-forward.in", FEED_FORWARD, WIDTH)
        add(f"block.{block}.feed-forward.out", WIDTH, FEED_FORWARD)
    add("final-norm", WIDTH)
    if not tied:
        tensors.append(("head.weight", (VOCABULARY, WIDTH)))
    return tensors


def parameters(tensors):
    total = sum(math.prod(shape) for _, shape in tensors)
    # Through f32, which is what the other side holds.
    flat = sines((total,), 0.7, 0.1, 0.3).float().double()
    pieces = flat.split([math.prod(shape) for _, shape in tensors])
    return {
        name: piece.view(shape).clone().requires_grad_() for (name, shape), piece in zip(tensors, pieces, strict=True)
    }


def rotate(x):
    """RoFormer's rotation as GPT-NeoX has it: dimension i turns with i + head/2."""
    time, head = x.shape[-2:]
    frequencies = 10000.0 ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
    angles = torch.outer(torch.arange(time, dtype=torch.float64), frequencies).repeat(1, 2)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()


def linear(values, name, x):
    return F.linear(x, values[f"{name}.weight"], values.get(f"{name}.bias"))


def norm(values, name, x):
    return F.layer_norm(x, (WIDTH,), values[f"{name}.weight"], values.get(f"{name}.bias"))


def attention(values, name, x, rotary):
    batch, time, _ = x.shape
    parts = linear(values, f"{name}.qkv", x).chunk(3, dim=-1)
    q, k, v = (part.view(batch, time, HEADS, -1).transpose(1, 2) for part in parts)
    if rotary:
        q, k = rotate(q), rotate(k)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return linear(values, f"{name}.out", mixed.transpose(1, 2).reshape(batch, time, WIDTH))


def block(values, index, x, rotary):
    x = x + attention(values, f"block.{index}.attention", norm(values, f"block.{index}.attention-norm", x), rotary)
    hidden = F.gelu(linear(values, f"block.{index}.feed-forward.in", norm(values, f"block.{index}.feed-forward-norm", x)))
    return x + linear(values, f"block.{index}.feed-forward.out", hidden)


def network(values, tokens, rotary):
    x = values["embedding.tokens.weight"][tokens]
    if not rotary:
        x = x + values["embedding.positions.weight"][: tokens.shape[1]]
    for index in range(BLOCKS):
        x = block(values, index, x, rotary)
    x = norm(values, "final-norm", x)
    return x @ values.get("head.weight", values["embedding.tokens.weight"]).T


def short(tensor):
    return [float(f"{value:.7g}") for value in tensor.detach().flatten().tolist()]


def piece(values, prefix, forward):
    """Output of a part, and gradients of its squares' sum by its input and its parameters, in order."""
    x = sines((BATCH, TIME, WIDTH), 0.9, 0.2, 1.0).float().double().requires_grad_()
    names = [name for name in values if name.startswith(prefix)]
    out = forward(x)
    gradients = torch.autograd.grad(out.square().sum(), [x, *(values[name] for name in names)])
    return {
        "output": short(out),
        "input_gradient": short(gradients[0]),
        "gradients": {name: short(gradient) for name, gradient in zip(names, gradients[1:], strict=True)},
    }


def sequences():
    """Ragged, and one with nothing to predict."""
    return [[(7 * index * index + 3 * row) % VOCABULARY for index in range(length)] for row, length in enumerate((41, 2, 17, 1, 30))]


def training(positions, biases, tied):
    """Loss, gradient norm and the sum of parameters' squares over a few steps of AdamW on all sequences, padded."""
    values = parameters(specification(positions, biases, tied))
    groups = [
        {"params": [value for value in values.values() if value.dim() > 1], "weight_decay": 0.1},
        {"params": [value for value in values.values() if value.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
    longest = max(map(len, sequences())) - 1
    inputs = torch.zeros(len(sequences()), longest, dtype=torch.int64)
    targets = torch.full_like(inputs, -100)
    for row, tokens in enumerate(sequences()):
        inputs[row, : len(tokens) - 1] = torch.tensor(tokens[:-1])
        targets[row, : len(tokens) - 1] = torch.tensor(tokens[1:])
    steps = []
    for _ in range(STEPS):
        logits = network(values, inputs, positions == "rotary")
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        length = torch.nn.utils.clip_grad_norm_(values.values(), 1.0)
        optimizer.step()
        squares = sum(value.detach().square().sum() for value in values.values())
        steps.append({"loss": float(loss.detach()), "gradient_norm": float(length), "squares": float(squares)})
    return steps


def main():
    cases = []
    for positions in ("learned", "rotary"):
        for biases in (False, True):
            rotary = positions == "rotary"
            values = parameters(specification(positions, biases, False))
            cases.append(
                {
                    "positions": positions,
                    "biases": biases,
                    "attention": piece(
                        values, "block.0.attention.", lambda x: attention(values, "block.0.attention", x, rotary)
                    ),
                    "block": piece(values, "block.1.", lambda x: block(values, 1, x, rotary)),
                    "training": {
                        "untied": training(positions, biases, False),
                        "tied": training(positions, biases, True),
                    },
                }
            )
    with open(Path(__file__).parent / "network.json", "w") as file:
        json.dump({"sequences": sequences(), "cases": cases}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
