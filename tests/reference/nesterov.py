"""Makes nesterov.json: PyTorch's SGD with Nesterov momentum, on gradients that are given.

python tests/reference/nesterov.py > tests/reference/nesterov.json   (made with torch 2.11.0 on a CPU)
"""

import json

import torch

torch.manual_seed(7)
LEARNING_RATE, MOMENTUM, STEPS, COUNT = 0.7, 0.9, 6, 12

parameters = torch.nn.Parameter(torch.randn(COUNT))
start = parameters.detach().tolist()
optimiser = torch.optim.SGD([parameters], lr=LEARNING_RATE, momentum=MOMENTUM, nesterov=True)
steps = []
for _ in range(STEPS):
    gradient = torch.randn(COUNT) * 0.1
    parameters.grad = gradient.clone()
    optimiser.step()
    momentum = optimiser.state[parameters]["momentum_buffer"]
    steps.append(
        {"average": gradient.tolist(), "parameters": parameters.detach().tolist(), "momentum": momentum.tolist()}
    )
print(json.dumps({"learning_rate": LEARNING_RATE, "momentum": MOMENTUM, "start": start, "steps": steps}, indent=1))
