"""`pathswarm serve` beside `transformers`, which generates with its own cache of keys and values: the same model, f32, greedy,
as many threads, in alternating rounds, because machines are noisy.

    python benches/clients/serve.py PATHSWARM MODEL [--threads 2] [--rounds 5] [--prompt 64] [--tokens 64] [--streams 16]

MODEL is a folder of transformers that both read, such as `pathswarm export` writes. Needs torch and transformers. Prompts
are random tokens, other ones each time. All tokens of an answer count, and all its time, that of the prompt included. For
generation without prompts, as many prompts are asked for twice as many tokens: the tokens more, in the time more. Prints medians,
and the least and the most of the rounds.
"""

import argparse
import json
import os
import random
import selectors
import socket
import statistics
import subprocess
import time

import torch
from transformers import AutoModelForCausalLM


class Server:
    """A server, asked over plain sockets so that the client costs little."""

    def __init__(self, program, model, threads):
        line = [program, "serve", model, "--listen", "127.0.0.1:0", "--format", "json", "--set", f"threads={threads}"]
        self.child = subprocess.Popen(line, stdout=subprocess.PIPE)
        told = json.loads(self.child.stdout.readline())
        host, port = told["url"].removeprefix("http://").removesuffix("/v1").split(":")
        self.address, self.model = (host, int(port)), told["model"]

    def ask(self, prompts, tokens, end):
        """Streams answers to all prompts at once. Returns the seconds to the first piece of each, to the end, and the
        number of tokens."""
        watched = selectors.DefaultSelector()
        begun, first, said = time.perf_counter(), {}, {}
        for number, prompt in enumerate(prompts):
            body = json.dumps(dict(model=self.model, prompt=prompt, max_tokens=tokens, temperature=0, stream=True,
                                   logit_bias={str(one): -100 for one in end}, stream_options=dict(include_usage=True)))
            link = socket.create_connection(self.address)
            head = f"POST /v1/completions HTTP/1.0\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
            link.sendall((head + body).encode())
            watched.register(link, selectors.EVENT_READ, number)
            said[number] = b""
        left = len(prompts)
        while left:
            for key, _ in watched.select():
                data = key.fileobj.recv(1 << 16)
                said[key.data] += data
                if b"data: " in said[key.data]:
                    first.setdefault(key.data, time.perf_counter() - begun)
                if not data:
                    watched.unregister(key.fileobj)
                    key.fileobj.close()
                    left -= 1
        took = time.perf_counter() - begun
        count = 0
        for text in said.values():
            pieces = [line[6:] for line in text.decode().splitlines() if line.startswith("data: {")]
            assert pieces and "usage" in pieces[-1], text
            count += json.loads(pieces[-1])["usage"]["completion_tokens"]
        assert count == len(prompts) * tokens, f"{count} tokens came"
        return list(first.values()), took, count


def spread(values, unit):
    return f"{statistics.median(values):.4g} {unit} ({min(values):.4g} to {max(values):.4g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    for name, value in dict(threads=2, rounds=5, prompt=64, long=192, tokens=64, streams=16).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    server = Server(options.program, options.model, options.threads)
    end = model.generation_config.eos_token_id
    end = [0 if end is None else end] if not isinstance(end, list) else end
    draw = random.Random(1)
    prompt = lambda count: [draw.randrange(1, model.config.vocab_size) for _ in range(count)]
    forced = dict(max_new_tokens=options.tokens, min_new_tokens=options.tokens, do_sample=False, use_cache=True,
                  pad_token_id=end[0])
    theirs, one, many, one_more, many_more, forward, first = [], [], [], [], [], [], []
    for turn in range(options.rounds + 1):
        with torch.no_grad():
            ids = torch.tensor([prompt(options.prompt)])
            begun = time.perf_counter()
            model.generate(ids, attention_mask=torch.ones_like(ids), **forced)
            theirs.append(options.tokens / (time.perf_counter() - begun))
            several = [prompt(options.prompt) for _ in range(options.streams)]
            for prompts, whole, more in ([ids[0].tolist()], one, one_more), (several, many, many_more):
                # Other prompts of the same length, so that nothing of them is kept from before.
                others = [prompt(options.prompt) for _ in prompts]
                _, took, count = server.ask(prompts, options.tokens, end)
                _, longer, twice = server.ask(others, 2 * options.tokens, end)
                whole.append(count / took)
                more.append((twice - count) / (longer - took))
            ids = torch.tensor([prompt(options.long)])
            begun = time.perf_counter()
            model(ids, logits_to_keep=1)
            forward.append(time.perf_counter() - begun)
            first.append(server.ask([ids[0].tolist()], 1, end)[0][0])
        if turn == 0:  # Both load and plan.
            for values in (theirs, one, many, one_more, many_more, forward, first):
                values.clear()
    server.child.terminate()
    of = lambda above, below: [a / b for a, b in zip(above, below)]
    print("load:", " ".join(f"{load:.1f}" for load in os.getloadavg()))
    print("transformers, one stream:", spread(theirs, "tokens/s"))
    print("serve, one stream:", spread(one, "tokens/s"))
    print(f"serve, {options.streams} streams:", spread(many, "tokens/s"))
    print("one stream to transformers:", spread(of(one, theirs), "times"))
    print(f"{options.streams} streams to one:", spread(of(many, one), "times"))
    print("generation alone, one stream:", spread(one_more, "tokens/s"))
    print(f"generation alone, {options.streams} streams:", spread(many_more, "tokens/s"))
    print(f"generation alone, {options.streams} streams to one:", spread(of(many_more, one_more), "times"))
    print(f"a forward of {options.long} tokens:", spread([1000 * value for value in forward], "ms"))
    print("first token of as many:", spread([1000 * value for value in first], "ms"))
    print("first token to forward:", spread(of(first, forward), "times"))


if __name__ == "__main__":
    main()
