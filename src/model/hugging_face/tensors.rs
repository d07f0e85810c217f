//! Names and layouts of tensors in the files of `transformers`.

use super::Layout;
use crate::config::{ModelConfig, TensorSpec};

/// The counterpart of a tensor.
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
    in_block: [(&'static str, &'static str); 6],
    final_norm: &'static str,
    head: &'static str,
}

const GPT2: Names = Names {
    embedding: "transformer.wte",
    block: "transformer.h",
    in_block: [
        ("attention-norm", "ln_1"),
        ("attention.qkv", "attn.c_attn"),
        ("attention.out", "attn.c_proj"),
        ("feed-forward-norm", "ln_2"),
        ("feed-forward.in", "mlp.c_fc"),
        ("feed-forward.out", "mlp.c_proj"),
    ],
    final_norm: "transformer.ln_f",
    head: "lm_head",
};

const GPT_NEOX: Names = Names {
    embedding: "gpt_neox.embed_in",
    block: "gpt_neox.layers",
    in_block: [
        ("attention-norm", "input_layernorm"),
        ("attention.qkv", "attention.query_key_value"),
        ("attention.out", "attention.dense"),
        ("feed-forward-norm", "post_attention_layernorm"),
        ("feed-forward.in", "mlp.dense_h_to_4h"),
        ("feed-forward.out", "mlp.dense_4h_to_h"),
    ],
    final_norm: "gpt_neox.final_layer_norm",
    head: "embed_out",
};

impl Names {
    /// The name of a tensor's part, without `.weight` or `.bias`.
    fn of(&self, ours: &str) -> Option<String> {
        match ours {
            "embedding.tokens" => Some(self.embedding.to_owned()),
            "embedding.positions" => Some("transformer.wpe".to_owned()),
            "final-norm" => Some(self.final_norm.to_owned()),
            "head" => Some(self.head.to_owned()),
            _ => {
                let (index, part) = ours.strip_prefix("block.")?.split_once('.')?;
                let (_, theirs) = self.in_block.iter().find(|(name, _)| *name == part)?;
                Some(format!("{}.{index}.{theirs}", self.block))
            }
        }
    }
}

/// The counterpart of a tensor; `None` if it is not one of the model's.
pub fn theirs(model: &ModelConfig, ours: &TensorSpec) -> Option<Theirs> {
    let (part, kind) = ours.name.rsplit_once('.')?;
    let layout = Layout::of(model);
    let names = match layout {
        Layout::Gpt2 => &GPT2,
        Layout::GptNeox => &GPT_NEOX,
    };
    let name = format!("{}.{kind}", names.of(part)?);
    let is_linear = part.starts_with("block.") && ours.shape.len() == 2;
    let (axes, shape) = match layout {
        // GPT-2 stores weights as [in, out].
        Layout::Gpt2 if is_linear => ((ours.shape[0], ours.shape[1]), vec![ours.shape[1], ours.shape[0]]),
        // GPT-NeoX stores query, key and value of each head together.
        Layout::GptNeox if part.ends_with("attention.qkv") => ((3, model.heads), ours.shape.clone()),
        _ => ((1, 1), ours.shape.clone()),
    };
    Some(Theirs { name, shape, axes })
}

impl Theirs {
    /// Possible names: OpenAI's file has no prefix of the model.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let short = self.name.strip_prefix("transformer.").or(self.name.strip_prefix("gpt_neox."));
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
