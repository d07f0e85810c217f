//! The models of `transformers` that compute what a network here does.

use super::HuggingFaceError;
use crate::config::{Biases, ModelConfig, NormKind, NormPlacement, Positions, QkNorm};

/// The equivalent model of `transformers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Layer norms and learned positions.
    Gpt2,
    /// Layer norms and rotary positions; Pythia is one.
    GptNeox,
    /// RMSNorm, a gate and rotary positions.
    Llama,
    /// As Llama; here with full attention. Its heads may have any width.
    Mistral,
    /// As Llama, with biases of queries, keys and values.
    Qwen2,
    /// As Llama, with a norm of each head's queries and keys.
    Qwen3,
    /// As Llama, with norms after attention and feed-forward, and of all queries and keys.
    Olmo2,
}

impl Layout {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Gpt2, Self::GptNeox, Self::Llama, Self::Mistral, Self::Qwen2, Self::Qwen3, Self::Olmo2];

    /// `model_type` in `config.json`.
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::GptNeox => "gpt_neox",
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Olmo2 => "olmo2",
        }
    }

    /// The class of the model with its head.
    pub fn class(self) -> &'static str {
        match self {
            Self::Gpt2 => "GPT2LMHeadModel",
            Self::GptNeox => "GPTNeoXForCausalLM",
            Self::Llama => "LlamaForCausalLM",
            Self::Mistral => "MistralForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Olmo2 => "Olmo2ForCausalLM",
        }
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "GPT-2",
            Self::GptNeox => "GPT-NeoX",
            Self::Llama => "Llama",
            Self::Mistral => "Mistral",
            Self::Qwen2 => "Qwen2",
            Self::Qwen3 => "Qwen3",
            Self::Olmo2 => "OLMo 2",
        }
    }

    /// The layout with which a model is exported.
    ///
    /// # Errors
    /// If none computes the same. The error names the key that has no counterpart.
    pub fn of(model: &ModelConfig) -> Result<Self, HuggingFaceError> {
        if model.reads_images() {
            return Err(HuggingFaceError::Images);
        }
        if model.dna.is_some() {
            return Err(HuggingFaceError::Dna);
        }
        if model.directional.is_some() {
            return Err(HuggingFaceError::Directional);
        }
        let layout = match (model.norm, model.positions) {
            (NormKind::Layer, Positions::Learned) => Self::Gpt2,
            (NormKind::Layer, Positions::Rotary) => Self::GptNeox,
            (NormKind::Rms, _) => Self::of_llamas(model),
        };
        match layout.missing(model) {
            None => Ok(layout),
            Some((key, found)) => Err(HuggingFaceError::NoCounterpart { key, found, layout: layout.name() }),
        }
    }

    fn of_llamas(model: &ModelConfig) -> Self {
        match (model.norm_placement, model.qk_norm) {
            (NormPlacement::After, _) => Self::Olmo2,
            (_, Some(_)) => Self::Qwen3,
            _ if model.biases == Biases::Qkv => Self::Qwen2,
            // Llama's configuration refuses a width that its heads do not divide.
            _ if model.biases == Biases::None && !model.width.is_multiple_of(model.heads) => Self::Mistral,
            _ => Self::Llama,
        }
    }

    /// Whether tensors and keys are those of Llama.
    pub fn is_llama(self) -> bool {
        !matches!(self, Self::Gpt2 | Self::GptNeox)
    }

    /// The biases with which it is written. Those that a model lacks are zero.
    pub fn biases(self, model: &ModelConfig) -> Biases {
        match self {
            Self::Gpt2 | Self::GptNeox => Biases::All,
            Self::Llama | Self::Qwen3 | Self::Olmo2 if model.biases == Biases::Qkv => Biases::Attention,
            _ => model.biases,
        }
    }

    /// The first setting of the model that this layout cannot express, and what it is.
    fn missing(self, model: &ModelConfig) -> Option<(&'static str, String)> {
        let whole_heads = model.head_width() * model.heads == model.width;
        let share = model.rotary().share;
        let no_gate = !model.gated;
        let all: [(bool, &'static str, String); 10] = [
            (
                self.is_llama() || whole_heads,
                "head_width",
                format!("{}, with width / heads = {} / {}", model.head_width(), model.width, model.heads),
            ),
            (self.is_llama() || model.kv_heads() == model.heads, "kv_heads", model.kv_heads().to_string()),
            (
                self == match model.qk_norm {
                    None if self == Self::Qwen3 || self == Self::Olmo2 => return Some(("qk_norm", "none".to_owned())),
                    None => self,
                    Some(QkNorm::Head) => Self::Qwen3,
                    Some(QkNorm::Whole) => Self::Olmo2,
                },
                "qk_norm",
                format!("{:?}", model.qk_norm).to_lowercase(),
            ),
            (self.is_llama() || no_gate, "gated", "true".to_owned()),
            (!self.is_llama() || !no_gate, "gated", "false".to_owned()),
            (
                self == Self::Olmo2 || model.norm_placement == NormPlacement::Before,
                "norm_placement",
                "\"after\"".to_owned(),
            ),
            (
                self != Self::Llama || model.width.is_multiple_of(model.heads),
                "heads",
                format!("{}, which do not divide width = {}", model.heads, model.width),
            ),
            (self == Self::GptNeox || !model.parallel_residual, "parallel_residual", "true".to_owned()),
            (!self.is_llama() || model.positions == Positions::Rotary, "positions", "\"learned\"".to_owned()),
            (!self.is_llama() || share == 1.0, "rotary.share", share.to_string()),
        ];
        let lacking = all.into_iter().find(|(fits, ..)| !fits).map(|(_, key, found)| (key, found));
        let no_biases = matches!(self, Self::Qwen3 | Self::Olmo2) && model.biases == Biases::All;
        lacking.or_else(|| no_biases.then(|| ("biases", "true".to_owned())))
    }
}
