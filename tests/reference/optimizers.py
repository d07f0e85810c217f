"""Makes adamw.json and nesterov.json with torch.optim: python tests/reference/optimizers.py

Parameters and gradients are sines, so that a test can make the same without storing them.
"""

import json
import math
from pathlib import Path

import torch

FOLDER = Path(__file__).parent
STEPS = 50


def sines(count, pace, phase, scale):
    """scale * sin(pace * index + phase), computed in f64, rounded to f32."""
    values = [scale * math.sin(pace * index + phase) for index in range(count)]
    return torch.tensor(values, dtype=torch.float64).to(torch.float32)


def exact(tensor):
    """Enough digits to give the same f32 again."""
    return [float(f"{value:.9g}") for value in tensor.tolist()]


def write(name, content):
    with open(FOLDER / name, "w") as file:
        json.dump(content, file, indent=None, separators=(",", ":"))
        file.write("\n")


def adamw(count=630):
    """Warm-up of 10 steps to 1e-2, cosine to a tenth at step 50; clipping to norm 1, which acts in some steps only."""
    peak, share, warmup = 1e-2, 0.1, 10
    parameter = torch.nn.Parameter(sines(count, 0.7, 0.1, 0.3))
    optimizer = torch.optim.AdamW([parameter], lr=peak, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    checkpoints = {}
    norms = []
    for step in range(STEPS):
        if step < warmup:
            rate = peak * (step + 1) / warmup
        else:
            progress = (step - warmup) / (STEPS - warmup)
            rate = peak * (share + (1 - share) * 0.5 * (1 + math.cos(math.pi * progress)))
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = sines(count, 0.37, 1.3 * step, 0.02 * (1 + step % 5))
        norms.append(float(torch.nn.utils.clip_grad_norm_([parameter], 1.0)))
        optimizer.step()
        if step + 1 in (1, 10, STEPS):
            checkpoints[step + 1] = exact(parameter.detach())
    write("adamw.json", {"count": count, "norms": norms, "parameters": checkpoints})


def nesterov(count=64):
    """SGD with Nesterov's momentum, as DiLoCo's outer step: the average outer gradient is the gradient."""
    parameter = torch.nn.Parameter(sines(count, 0.7, 0.1, 0.3))
    optimizer = torch.optim.SGD([parameter], lr=0.7, momentum=0.9, nesterov=True)
    checkpoints = {}
    for step in range(STEPS):
        parameter.grad = sines(count, 0.37, 1.3 * step, 0.02)
        optimizer.step()
        if step + 1 in (1, 2, STEPS):
            momentum = optimizer.state[parameter]["momentum_buffer"]
            checkpoints[step + 1] = {"parameters": exact(parameter.detach()), "momentum": exact(momentum)}
    write("nesterov.json", {"count": count, "learning_rate": 0.7, "momentum": 0.9, "steps": checkpoints})


if __name__ == "__main__":
    adamw()
    nesterov()
