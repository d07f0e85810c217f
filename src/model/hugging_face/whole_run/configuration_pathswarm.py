# SPDX-License-Identifier: MIT OR Apache-2.0
"""The configuration of a whole run of pathswarm."""

from transformers import PretrainedConfig


class PathswarmConfig(PretrainedConfig):
    """What `pathswarm export --whole` writes to config.json.

    levels: of each level its `parts`, its number of `experts`, and the shape of each tensor of a module.
    paths: of each path its expert in each level.
    own_levels: levels in which a path, by its number, has parameters of its own instead of its module's.
    prefix_tokens: how many of a text's first tokens choose its path.
    router_bytes: length of the encoded router.
    rotary: the angle of each pair of dimensions at position 1, and the factor of rotated queries and keys; None where
        positions are learned.
    directional: settings of directional attention, if there is any.
    """

    model_type = "pathswarm"

    def __init__(
        self,
        levels=(),
        paths=(),
        own_levels=None,
        prefix_tokens=1,
        router_bytes=0,
        vocab_size=258,
        hidden_size=8,
        num_hidden_layers=0,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=8,
        tied_head=False,
        norm="layer",
        norm_epsilon=1e-5,
        norm_placement="before",
        qk_norm=None,
        activation="gelu",
        gated=False,
        parallel_residual=False,
        rotary=None,
        directional=None,
        use_cache=True,
        **kwargs,
    ):
        self.levels = levels
        self.paths = paths
        self.own_levels = own_levels or {}
        self.prefix_tokens = prefix_tokens
        self.router_bytes = router_bytes
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.max_position_embeddings = max_position_embeddings
        self.tied_head = tied_head
        self.norm = norm
        self.norm_epsilon = norm_epsilon
        self.norm_placement = norm_placement
        self.qk_norm = qk_norm
        self.activation = activation
        self.gated = gated
        self.parallel_residual = parallel_residual
        self.rotary = rotary
        self.directional = directional
        self.use_cache = use_cache
        # What transformers calls tied is a second name of one parameter, which there is none of here.
        kwargs["tie_word_embeddings"] = False
        super().__init__(**kwargs)
