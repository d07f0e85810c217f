# SPDX-License-Identifier: MIT OR Apache-2.0
"""A whole run of pathswarm: every module once, the ancestor, and the router.

The router chooses the path of each text by its first tokens. A path is a network: in each level it goes through one
module, which it may share with other paths. The texts of a batch may go different ways.
"""

import struct
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_pathswarm import PathswarmConfig

# Texts whose features are computed at once.
ROUTED_AT_ONCE = 64


class Tensors(nn.Module):
    """Parameters by their names, such as `block.3.attention.qkv.weight`."""

    def __init__(self, shapes):
        super().__init__()
        self.names = frozenset(shapes)
        for name, shape in shapes.items():
            *groups, last = name.split(".")
            home = self
            for group in groups:
                if group not in home._modules:
                    home.add_module(group, nn.Module())
                home = home._modules[group]
            home.register_parameter(last, nn.Parameter(torch.empty(shape)))

    def of(self, name):
        """The tensor of this name, or None if the network has none."""
        return self.get_parameter(name) if name in self.names else None

    def linear(self, name, x):
        return F.linear(x, self.of(f"{name}.weight"), self.of(f"{name}.bias"))


class Batch:
    """Which rows of a batch go through which module of each level."""

    def __init__(self, part_levels, levels):
        # The level of each part, and of each level its modules with the rows that go through them.
        self.part_levels, self.levels = part_levels, levels

    def each(self, part, function, *inputs):
        """Applies `function(tensors, *inputs)` to the rows of each module that has this part; returns its tuple for all
        rows."""
        groups = self.levels[self.part_levels[part]]
        if len(groups) == 1:
            return function(groups[0][0], *inputs)
        rows = [torch.tensor(rows, device=inputs[0].device) for _, rows in groups]
        results = [function(tensors, *(x[own] for x in inputs)) for (tensors, _), own in zip(groups, rows)]
        order = torch.cat(rows).argsort()
        return tuple(torch.cat(pieces)[order] for pieces in zip(*results))


class Router:
    """Chooses the path of a text by its features, as pathswarm's file of a router says."""

    def __init__(self, encoded):
        magic, version, self.kind, paths, self.prefix_tokens = struct.unpack_from("<4sHHII", encoded)
        if (magic, version) != (b"PSRT", 1) or self.kind not in (1, 4, 5):
            raise ValueError("the router is of a kind that this file does not know")
        (width,) = struct.unpack_from("<I", encoded, 48)
        # A copy, since a tensor must be writable.
        values = torch.frombuffer(bytearray(encoded[52:]), dtype=torch.float64 if self.kind == 4 else torch.float32)
        if self.kind == 4:
            self.weights, self.biases = values[: paths * width].view(paths, width), values[paths * width :]
            return
        first = max(a for a in range(1, paths + 1) if a * a <= paths and paths % a == 0) if self.kind == 5 else paths
        second = paths // first
        self.cut = width // 2 if self.kind == 5 else width
        sizes = [width, width, first * self.cut, second * (width - self.cut), first * (width - self.cut)]
        if self.kind == 1:
            sizes = sizes[:3]
        self.mean, self.scale, *rest = values.split(sizes)
        self.centroids = rest[0].view(first, self.cut)
        if self.kind == 5:
            self.second_centroids = rest[1].view(second, width - self.cut)
            self.shifts = rest[2].view(first, width - self.cut)

    def path_of(self, features):
        """The path of a text with these features, a 1-dimensional tensor of f32 on the CPU."""
        if self.kind == 4:
            return int((self.weights @ features.double() + self.biases).argmax())
        row = (features - self.mean) * self.scale
        nearest = lambda own, centroids: int((own - centroids).square().sum(1).argmin())
        first = nearest(row[: self.cut], self.centroids)
        if self.kind == 1:
            return first
        second = nearest(row[self.cut :] - self.shifts[first], self.second_centroids)
        return first * len(self.second_centroids) + second


@dataclass
class PathswarmOutput(CausalLMOutputWithPast):
    """`path` has the path of each text, to be given again with the tokens that follow."""

    path: torch.LongTensor | None = None


class PathswarmForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = PathswarmConfig
    # Features in a lower precision would lead texts elsewhere.
    _keep_in_fp32_modules_strict = ["ancestor"]
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        shapes = [level["tensors"] for level in config.levels]
        self.ancestor = Tensors({name: shape for level in shapes for name, shape in level.items()})
        self.levels = nn.ModuleList(
            nn.ModuleList(Tensors(level["tensors"]) for _ in range(level["experts"])) for level in config.levels
        )
        self.own = nn.ModuleDict(
            {path: nn.ModuleDict({str(level): Tensors(shapes[level]) for level in levels})
             for path, levels in config.own_levels.items()}
        )
        self.register_buffer("router", torch.zeros(config.router_bytes, dtype=torch.uint8))
        self.part_levels = {part: number for number, level in enumerate(config.levels) for part in level["parts"]}
        self.decoded_router = None
        self.post_init()

    def _init_weights(self, module):
        """All weights come from files."""

    def get_input_embeddings(self):
        return None

    def get_output_embeddings(self):
        return None

    # Routing

    @torch.no_grad()
    def route(self, input_ids, attention_mask=None):
        """The path of each text, `[batch]`. Its first `config.prefix_tokens` tokens count, without padding."""
        if self.decoded_router is None:
            self.decoded_router = Router(self.router.cpu().numpy().tobytes())
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        texts = [row[own.bool()][: self.config.prefix_tokens] for row, own in zip(input_ids, mask)]
        if any(len(text) == 0 for text in texts):
            raise ValueError("a text without tokens has no path")
        paths = []
        for begin in range(0, len(texts), ROUTED_AT_ONCE):
            features = self._features(texts[begin : begin + ROUTED_AT_ONCE])
            paths.extend(self.decoded_router.path_of(row) for row in features)
        return torch.tensor(paths, device=input_ids.device)

    def _features(self, texts):
        """The mean of the ancestor's hidden states over each text, `[texts, width]`."""
        ids = nn.utils.rnn.pad_sequence(texts, batch_first=True)
        mask = nn.utils.rnn.pad_sequence([torch.ones_like(text) for text in texts], batch_first=True)
        alone = Batch(self.part_levels, [[(self.ancestor, None)]] * len(self.config.levels))
        positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        hidden = self._hidden(alone, ids, positions, mask, None)
        shares = mask / mask.sum(1, keepdim=True)
        return (shares.unsqueeze(1) @ hidden).squeeze(1).float().cpu()

    def _paths(self, path, rows):
        """A path for each row, of one number or of one for each."""
        paths = path.tolist() if torch.is_tensor(path) else path
        paths = [paths] * rows if isinstance(paths, int) else list(paths)
        wrong = [path for path in paths if not 0 <= path < len(self.config.paths)]
        if wrong or len(paths) != rows:
            raise ValueError(f"path = {path}: give one from 0 to {len(self.config.paths) - 1}, or one for each text")
        return paths

    def _batch(self, paths):
        levels = []
        for level, modules in enumerate(self.levels):
            groups = {}
            for row, path in enumerate(paths):
                is_own = level in self.config.own_levels.get(str(path), ())
                groups.setdefault((is_own, path if is_own else self.config.paths[path][level]), []).append(row)
            of = lambda is_own, number: self.own[str(number)][str(level)] if is_own else modules[number]
            levels.append([(of(*key), rows) for key, rows in groups.items()])
        return Batch(self.part_levels, levels)

    # The network

    def forward(
        self,
        input_ids,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        labels=None,
        use_cache=None,
        logits_to_keep=0,
        path=None,
        **others,
    ):
        """Logits of the next tokens. `path`, a number or one for each text, comes before the router's choice; with
        `past_key_values` it must be given. `attention_mask`, `[batch, all tokens so far]`, is 0 at padding."""
        given = [name for name, value in others.items() if value is not None and value is not False]
        if unknown := set(given) - {"return_dict", "cache_position"}:
            raise ValueError(f"{', '.join(sorted(unknown))}: pathswarm has no such input")
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        if path is None:
            if past > 0:
                raise ValueError("past_key_values without path: give the path of what came before, as in its output")
            path = self.route(input_ids, attention_mask)
        rows, time = input_ids.shape
        paths = self._paths(path, rows)
        if attention_mask is None:
            attention_mask = torch.ones(rows, past + time, dtype=torch.long, device=input_ids.device)
        if position_ids is None:
            position_ids = (attention_mask.long().cumsum(1) - 1).clamp(min=0)[:, -time:]
        if int(position_ids.max()) >= self.config.max_position_embeddings:
            raise ValueError(f"the text is longer than the {self.config.max_position_embeddings} tokens of the context")
        # What routes directions depends on all tokens before, which no cache keeps.
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if not use_cache or self.config.directional:
            past_key_values = None
        elif past_key_values is None:
            past_key_values = DynamicCache()
        batch = self._batch(paths)
        hidden = self._hidden(batch, input_ids, position_ids, attention_mask, past_key_values)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        part, name = ("embedding", "embedding.tokens.weight") if self.config.tied_head else ("head", "head.weight")
        (logits,) = batch.each(part, lambda tensors, x: (F.linear(x, tensors.of(name)),), hidden[:, kept])
        loss = None
        if labels is not None:
            predicted, next_tokens = logits[:, :-1].float(), labels[:, 1:].to(logits.device)
            loss = F.cross_entropy(predicted.flatten(0, 1), next_tokens.flatten())
        path = torch.tensor(paths, device=input_ids.device)
        return PathswarmOutput(loss=loss, logits=logits, past_key_values=past_key_values, path=path)

    def generate(self, inputs=None, path=None, **kwargs):
        """As in transformers. The path is chosen by the prompt and kept, unless one is given."""
        ids = kwargs.get("input_ids") if inputs is None else inputs
        if path is None:
            path = self.route(ids, kwargs.get("attention_mask"))
        if self.config.directional:
            kwargs["use_cache"] = False
        path = torch.tensor(self._paths(path, len(ids)), device=ids.device)
        return super().generate(inputs, path=path, **kwargs)

    def _hidden(self, batch, input_ids, position_ids, attention_mask, cache):
        """Hidden states after the final norm, `[batch, time, width]`."""

        def embed(tensors, ids, positions):
            x = F.embedding(ids, tensors.of("embedding.tokens.weight"))
            learned = tensors.of("embedding.positions.weight")
            return (x if learned is None else x + F.embedding(positions, learned),)

        (x,) = batch.each("embedding", embed, input_ids, position_ids)
        mask = self._mask(attention_mask, input_ids.shape[1])
        rotation = self._rotation(position_ids)
        for index in range(self.config.num_hidden_layers):
            x = self._block(batch, index, x, (mask, rotation, attention_mask), cache)
        (x,) = batch.each("final-norm", lambda tensors, x: (self._norm(tensors, "final-norm", x),), x)
        return x

    @staticmethod
    def _mask(attention_mask, time):
        """Which tokens each of the last `time` tokens sees, `[batch, 1, time, all]`: those before that are no padding,
        and itself, so that padding sees something."""
        places = torch.arange(attention_mask.shape[1], device=attention_mask.device)
        last = places[-time:, None]
        return ((places <= last) & attention_mask.bool()[:, None, None, :]) | (places == last)

    def _rotation(self, positions):
        """Cosine and sine of each pair's angle, `[batch, 1, time, pairs]` each; None where positions are learned."""
        if self.config.rotary is None:
            return None
        # In f64, which not every device has: far positions need it.
        frequencies = torch.tensor(self.config.rotary["frequencies"], dtype=torch.float64)
        angles = positions.cpu().double()[:, None, :, None] * frequencies
        factor = self.config.rotary["factor"]
        return [(factor * part).float().to(positions.device) for part in (angles.cos(), angles.sin())]

    def _block(self, batch, index, x, reading, cache):
        name, after = f"block.{index}", self.config.norm_placement == "after"
        mask, rotation, attention_mask = reading

        def read(tensors, x):
            y = x if after else self._norm(tensors, f"{name}.attention-norm", x)
            return (y, *self._queries_keys_values(tensors, f"{name}.attention", y))

        def write(tensors, x, heads):
            mixed = tensors.linear(f"{name}.attention.out", heads)
            if after:
                mixed = self._norm(tensors, f"{name}.attention-norm", mixed)
            attended = x + mixed
            fed = x if self.config.parallel_residual else attended
            if after:
                return (attended + self._norm(tensors, f"{name}.feed-forward-norm", self._fed(tensors, name, fed)),)
            return (attended + self._fed(tensors, name, self._norm(tensors, f"{name}.feed-forward-norm", fed)),)

        y, q, k, v = batch.each(name, read, x)
        if rotation is not None:
            q, k = turned(q, *rotation), turned(k, *rotation)
        if cache is not None:
            k, v = cache.update(k, v, index)
        groups = self.config.num_attention_heads // self.config.num_key_value_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
        if self.config.directional:
            read = x if self.config.directional["reads"] == "stream" else y
            heads = self._suppressed(batch, index, heads, read, attention_mask)
        (x,) = batch.each(name, write, x, heads.flatten(2))
        return x

    def _queries_keys_values(self, tensors, name, y):
        """`[batch, heads, time, head]` each, before they are rotated."""
        c = self.config
        sizes = [c.num_attention_heads * c.head_dim, *[c.num_key_value_heads * c.head_dim] * 2]
        parts = list(tensors.linear(f"{name}.qkv", y).split(sizes, -1))
        norms = [tensors.of(f"{name}.q-norm.weight"), tensors.of(f"{name}.k-norm.weight")]
        for number, weight in enumerate(norms):
            if c.qk_norm == "whole":
                parts[number] = F.rms_norm(parts[number], weight.shape, weight, c.norm_epsilon)
        parts = [part.unflatten(-1, (-1, c.head_dim)).transpose(1, 2) for part in parts]
        for number, weight in enumerate(norms):
            if c.qk_norm == "head":
                parts[number] = F.rms_norm(parts[number], weight.shape, weight, c.norm_epsilon)
        return parts

    def _fed(self, tensors, name, x):
        hidden = tensors.linear(f"{name}.feed-forward.in", x)
        factor = None
        if self.config.gated:
            hidden, factor = hidden.chunk(2, -1)
        if self.config.activation == "silu":
            hidden = F.silu(hidden)
        else:
            hidden = F.gelu(hidden, approximate="tanh" if self.config.activation == "gelu-tanh" else "none")
        return tensors.linear(f"{name}.feed-forward.out", hidden if factor is None else hidden * factor)

    def _norm(self, tensors, name, x):
        weight = tensors.of(f"{name}.weight")
        if self.config.norm == "rms":
            return F.rms_norm(x, weight.shape, weight, self.config.norm_epsilon)
        return F.layer_norm(x, weight.shape, weight, tensors.of(f"{name}.bias"), self.config.norm_epsilon)

    def _suppressed(self, batch, index, heads, y, attention_mask):
        """Outputs of heads `[batch, time, heads, head]` less what directional attention suppresses: of each direction
        `d` the part `r (o·d) d` of an output `o`, with `r` from the router for `y`."""
        c, name = self.config.directional, f"router.{index}"
        present = attention_mask.unsqueeze(-1).to(y.dtype)
        if c["pooling"] == "prefix":
            y = (y * present).cumsum(1) / present.cumsum(1).clamp(min=1)
        elif c["pooling"] == "sequence":
            y = (y * present).sum(1, keepdim=True) / present.sum(1, keepdim=True).clamp(min=1)

        def score(tensors, x):
            x = F.layer_norm(x, x.shape[-1:], tensors.of(f"{name}.norm.weight"), tensors.of(f"{name}.norm.bias"), 1e-5)
            for number in range(c["router_layers"]):
                x = tensors.linear(f"{name}.linear.{number}", F.gelu(x) if number > 0 else x)
            return ((x * c["temperature"]).sigmoid(),)

        def suppress(tensors, heads, weights):
            directions = F.normalize(tensors.of(f"directions.{index}.weight"), dim=-1)
            along = torch.einsum("bthd,hnd->bthn", heads, directions) * weights.unflatten(-1, directions.shape[:2])
            return (heads - torch.einsum("bthn,hnd->bthd", along, directions),)

        (weights,) = batch.each(name, score, y)
        (heads,) = batch.each(f"directions.{index}", suppress, heads, weights)
        return heads


def turned(x, cosine, sine):
    """Rotates dimension `i` of `[batch, heads, time, head]` with dimension `i + pairs`, in f32."""
    pairs = cosine.shape[-1]
    a, b, rest = x.float().split([pairs, pairs, x.shape[-1] - 2 * pairs], -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine, rest], -1).to(x.dtype)
