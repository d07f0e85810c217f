"""Makes the files in optimizers/ with torch.optim: python tests/reference/optimizers.py

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
    with open(FOLDER / "optimizers" / name, "w") as file:
        json.dump(content, file, indent=None, separators=(",", ":"))
        file.write("\n")


# Of the network in tests/agreement/torch.rs: the values of each tensor, and the matrices of its block.
TENSORS = [(258, 2), (2,), (6, 2), (2, 2), (2,), (23, 2), (2, 23), (2,)]
STACKED = {2: (2, 2, 2), 3: (2,), 5: (23,), 6: (2,)}
COUNT = sum(math.prod(shape) for shape in TENSORS)
PEAK, WARMUP = 1e-2, 10


def learning_rate(step):
    """Warm-up of 10 steps to 1e-2, then a cosine to a tenth at step 50."""
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return PEAK * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


def cut(flat):
    """The tensors of a flat buffer."""
    return [part.view(shape) for part, shape in zip(flat.split([math.prod(shape) for shape in TENSORS]), TENSORS)]


def apart(tensors):
    """The same, with the matrices that are stacked in one apart."""
    return [part for index, tensor in enumerate(tensors) for part in tensor.split(list(STACKED.get(index, tensor.shape[:1])))]


def follow(name, optimizers, parameters):
    """50 steps; clipping to norm 1 acts in some of them only. `parameters` are in the order of the buffer."""
    checkpoints, norms = {}, []
    for step in range(STEPS):
        flat = sines(COUNT, 0.37, 1.3 * step, 0.02 * (1 + step % 5))
        for parameter, gradient in zip(parameters, apart(cut(flat)), strict=True):
            parameter.grad = gradient.clone()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step)
            optimizer.step()
        if step + 1 in (1, 10, STEPS):
            checkpoints[step + 1] = exact(torch.cat([value.detach().flatten() for value in parameters]))
    write(name, {"count": COUNT, "norms": norms, "parameters": checkpoints})


def start():
    """The parameters, with what is stacked apart; and which of them are matrices of the block."""
    parameters = [torch.nn.Parameter(part.clone()) for part in apart(cut(sines(COUNT, 0.7, 0.1, 0.3)))]
    return parameters, [index in STACKED for index in range(len(TENSORS)) for _ in STACKED.get(index, (0,))]


def groups(parameters):
    """Norms do not decay."""
    return [
        {"params": [value for value in parameters if value.dim() > 1], "weight_decay": 0.1},
        {"params": [value for value in parameters if value.dim() == 1], "weight_decay": 0.0},
    ]


def adamw():
    parameters, _ = start()
    follow("adamw.json", [torch.optim.AdamW(groups(parameters), lr=PEAK, betas=(0.9, 0.95), eps=1e-8)], parameters)


def muon():
    """Muon for the matrices of the block, in float32; AdamW for the rest."""
    torch.Tensor.bfloat16 = torch.Tensor.clone
    parameters, matrices = start()
    of = lambda muon: [value for value, matrix in zip(parameters, matrices) if matrix == muon]
    optimizers = [
        torch.optim.Muon(of(True), lr=PEAK, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups(of(False)), lr=PEAK, betas=(0.9, 0.95), eps=1e-8),
    ]
    follow("muon.json", optimizers, parameters)


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
    muon()
    nesterov()
