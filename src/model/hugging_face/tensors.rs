//! Names and layouts of tensors in the files of `transformers`.

use super::Layout;
use crate::config::{ModelConfig, TensorSpec};

/// A tensor there, which is all or some rows of a tensor here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theirs {
    /// With the prefix of the model.
    pub name: String,
    /// Row-major.
    pub shape: Vec<usize>,
    /// Here `[axes.0, axes.1, ..]`, there `[axes.1, axes.0, ..]`.
    axes: (usize, usize),
}

/// Names of the parts of a block.
struct Names {
    embedding: &'static str,
    block: &'static str,
    in_block: &'static [(&'static str, &'static [&'static str])],
    final_norm: &'static str,
    head: &'static str,
}

const GPT2: Names = Names {
    embedding: "transformer.wte",
    block: "transformer.h",
    in_block: &[
        ("attention-norm", &["ln_1"]),
        ("attention.qkv", &["attn.c_attn"]),
        ("attention.out", &["attn.c_proj"]),
        ("feed-forward-norm", &["ln_2"]),
        ("feed-forward.in", &["mlp.c_fc"]),
        ("feed-forward.out", &["mlp.c_proj"]),
    ],
    final_norm: "transformer.ln_f",
    head: "lm_head",
};

const GPT_NEOX: Names = Names {
    embedding: "gpt_neox.embed_in",
    block: "gpt_neox.layers",
    in_block: &[
        ("attention-norm", &["input_layernorm"]),
        ("attention.qkv", &["attention.query_key_value"]),
        ("attention.out", &["attention.dense"]),
        ("feed-forward-norm", &["post_attention_layernorm"]),
        ("feed-forward.in", &["mlp.dense_h_to_4h"]),
        ("feed-forward.out", &["mlp.dense_4h_to_h"]),
    ],
    final_norm: "gpt_neox.final_layer_norm",
    head: "embed_out",
};

const LLAMA: Names = Names {
    embedding: "model.embed_tokens",
    block: "model.layers",
    in_block: &[
        ("attention-norm", &["input_layernorm"]),
        ("attention.qkv", &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
        ("attention.q-norm", &["self_attn.q_norm"]),
        ("attention.k-norm", &["self_attn.k_norm"]),
        ("attention.out", &["self_attn.o_proj"]),
        ("feed-forward-norm", &["post_attention_layernorm"]),
        ("feed-forward.in", &["mlp.gate_proj", "mlp.up_proj"]),
        ("feed-forward.out", &["mlp.down_proj"]),
    ],
    final_norm: "model.norm",
    head: "lm_head",
};

/// The same, but for its norms.
const OLMO2: Names = Names {
    in_block: &[
        ("attention-norm", &["post_attention_layernorm"]),
        ("attention.qkv", &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
        ("attention.q-norm", &["self_attn.q_norm"]),
        ("attention.k-norm", &["self_attn.k_norm"]),
        ("attention.out", &["self_attn.o_proj"]),
        ("feed-forward-norm", &["post_feedforward_layernorm"]),
        ("feed-forward.in", &["mlp.gate_proj", "mlp.up_proj"]),
        ("feed-forward.out", &["mlp.down_proj"]),
    ],
    ..LLAMA
};

/// Ends of names of buffers that older files have and no model reads.
const BUFFERS: [&str; 5] =
    [".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"];

/// Prefixes of models, which a file without a head may lack.
const PREFIXES: [&str; 3] = ["transformer.", "gpt_neox.", "model."];

impl Layout {
    fn names(self) -> &'static Names {
        match self {
            Self::Gpt2 => &GPT2,
            Self::GptNeox => &GPT_NEOX,
            Self::Olmo2 => &OLMO2,
            Self::Llama | Self::Mistral | Self::Qwen2 | Self::Qwen3 => &LLAMA,
        }
    }

    /// The name of the head's weight.
    pub fn head(self) -> String {
        format!("{}.weight", self.names().head)
    }
}

impl Names {
    /// The names of a tensor's parts, without `.weight` or `.bias`.
    fn of(&self, ours: &str) -> Option<Vec<String>> {
        let one = |name: &str| Some(vec![name.to_owned()]);
        match ours {
            "embedding.tokens" => one(self.embedding),
            "embedding.positions" => one("transformer.wpe"),
            "final-norm" => one(self.final_norm),
            "head" => one(self.head),
            _ => {
                let (index, part) = ours.strip_prefix("block.")?.split_once('.')?;
                let (_, theirs) = self.in_block.iter().find(|(name, _)| *name == part)?;
                Some(theirs.iter().map(|name| format!("{}.{index}.{name}", self.block)).collect())
            }
        }
    }
}

/// The counterparts of a tensor, whose rows follow each other in it; `None` if it is not one of the model's.
pub fn theirs(layout: Layout, model: &ModelConfig, ours: &TensorSpec) -> Option<Vec<Theirs>> {
    let (part, kind) = ours.name.rsplit_once('.')?;
    let names = layout.names().of(part)?;
    let is_linear = part.starts_with("block.") && ours.shape.len() == 2;
    let rows: Vec<usize> = match names.len() {
        3 => {
            let kv = model.kv_heads() * model.head_width();
            vec![model.heads * model.head_width(), kv, kv]
        }
        2 => vec![model.feed_forward(); 2],
        _ => vec![ours.shape[0]],
    };
    let piece = |(name, rows): (String, usize)| {
        let mut shape = ours.shape.clone();
        shape[0] = rows;
        let axes = match layout {
            // GPT-2 stores weights as [in, out].
            Layout::Gpt2 if is_linear => {
                shape.reverse();
                (shape[1], shape[0])
            }
            // GPT-NeoX stores query, key and value of each head together.
            Layout::GptNeox if part.ends_with("attention.qkv") => (3, model.heads),
            _ => (1, 1),
        };
        Theirs { name: format!("{name}.{kind}"), shape, axes }
    };
    Some(names.into_iter().zip(rows).map(piece).collect())
}

/// Whether a tensor of a file has no values of the model.
pub fn is_buffer(name: &str) -> bool {
    BUFFERS.iter().any(|end| name.ends_with(end))
}

impl Theirs {
    /// Number of values.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Possible names: a file without a head may lack the prefix of the model, as OpenAI's own does.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let short = PREFIXES.iter().find_map(|prefix| self.name.strip_prefix(prefix));
        std::iter::once(self.name.as_str()).chain(short)
    }

    /// Converts values to their order.
    pub fn from_ours(&self, values: &[f32]) -> Vec<f32> {
        swapped(values, self.axes)
    }

    /// Converts values to our order.
    pub fn to_ours(&self, values: &[f32]) -> Vec<f32> {
        swapped(values, (self.axes.1, self.axes.0))
    }
}

/// `[first, second, ..]` to `[second, first, ..]`.
fn swapped(values: &[f32], (first, second): (usize, usize)) -> Vec<f32> {
    if (first, second) == (1, 1) {
        return values.to_vec();
    }
    let chunk = values.len() / (first * second).max(1);
    let mut swapped = Vec::with_capacity(values.len());
    for inner in 0..second {
        for outer in 0..first {
            let at = (outer * second + inner) * chunk;
            swapped.extend_from_slice(&values[at..at + chunk]);
        }
    }
    swapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_swapped_there_and_back() {
        let values: Vec<f32> = (0..24).map(|value| value as f32).collect();
        let swap = swapped(&values, (2, 3));
        assert_eq!(swap[..12], [0.0, 1.0, 2.0, 3.0, 12.0, 13.0, 14.0, 15.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(swapped(&swap, (3, 2)), values);
    }
}
