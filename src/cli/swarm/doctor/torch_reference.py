"""Plain PyTorch at the shapes that the program is measured at: nn.Module, torch.optim.AdamW, clip_grad_norm_.

Prints one JSON line for each round {"tokens_per_second": ..} and at the end their median. With --interactive it waits
for a line on standard input before each round, so that another program can alternate with it.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import time

# Before torch is loaded, which may hang as well.
signal.alarm(int(os.environ.get("PATHSWARM_LIMIT_S", "0")))

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, context, rotary):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        if rotary:
            head = width // heads
            frequencies = 10000 ** (-torch.arange(0, head, 2) / head)
            angles = torch.outer(torch.arange(context), frequencies).repeat(1, 2)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

    def rotate(self, x):
        first, second = x.chunk(2, dim=-1)
        time_steps = x.shape[-2]
        return x * self.cos[:time_steps] + torch.cat((-second, first), dim=-1) * self.sin[:time_steps]

    def forward(self, x):
        batch, steps, width = x.shape
        parts = self.qkv(x).split(width, dim=-1)
        q, k, v = (part.view(batch, steps, self.heads, -1).transpose(1, 2) for part in parts)
        if self.rotary:
            q, k = self.rotate(q), self.rotate(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, steps, width))


class Block(nn.Module):
    def __init__(self, width, heads, context, rotary):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention = Attention(width, heads, context, rotary)
        self.feed_forward_norm = nn.LayerNorm(width, bias=False)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
        )

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    def __init__(self, arguments):
        super().__init__()
        a = arguments
        rotary = a.positions == "rotary"
        self.tokens = nn.Embedding(a.vocabulary, a.width)
        self.positions = None if rotary else nn.Embedding(a.context, a.width)
        self.blocks = nn.ModuleList(Block(a.width, a.heads, a.context, rotary) for _ in range(a.blocks))
        self.norm = nn.LayerNorm(a.width, bias=False)
        self.head = nn.Linear(a.width, a.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in dict(
        blocks=4, width=192, heads=6, vocabulary=4096, context=256, batch=8, threads=2, rounds=5, steps=5
    ).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--positions", choices=["rotary", "learned"], default="rotary")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--compile", action="store_true", help="torch.compile of the network and the loss")
    parser.add_argument("--fused", action="store_true", help="AdamW in one kernel")
    parser.add_argument("--interactive", action="store_true")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    device = torch.device(arguments.device)
    model = Transformer(arguments).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=arguments.fused or None)
    shape = (arguments.batch, arguments.context + 1)
    batches = [torch.randint(0, arguments.vocabulary, shape, device=device) for _ in range(8)]

    def loss_of(tokens):
        with torch.autocast(device.type, torch.bfloat16, enabled=arguments.precision == "bf16"):
            logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    if arguments.compile:
        loss_of = torch.compile(loss_of)

    def step(number):
        tokens = batches[number % len(batches)]
        loss = loss_of(tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    for number in range(3):
        step(number)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(json.dumps({"torch": torch.__version__, "parameters": parameters}), flush=True)
    rates = []
    for _ in range(arguments.rounds):
        if arguments.interactive and not sys.stdin.readline():
            break
        begin = time.perf_counter()
        for number in range(arguments.steps):
            step(number)
        seconds = time.perf_counter() - begin
        rates.append(arguments.steps * arguments.batch * arguments.context / seconds)
        print(json.dumps({"tokens_per_second": round(rates[-1], 1)}), flush=True)
    if rates:
        print(json.dumps({"median_tokens_per_second": round(statistics.median(rates), 1)}), flush=True)


if __name__ == "__main__":
    main()
