//! `config.json` of Llama, Mistral, Qwen2, Qwen3 and OLMo 2.

use serde_json::Value;

use super::fields::Fields;
use super::{ours, rope, unless};
use crate::config::{Biases, ModelConfig, NormKind, NormPlacement, QkNorm};
use crate::model::hugging_face::{HuggingFaceError, Layout};

/// What transformers takes where a file is silent.
struct Defaults {
    epsilon: f64,
    /// As many as heads of queries, if `None`.
    kv_heads: Option<usize>,
    /// The model's width divided by its heads, if `None`.
    head_width: Option<usize>,
}

impl Defaults {
    fn of(layout: Layout) -> Self {
        let epsilon = if layout == Layout::Olmo2 { 1e-5 } else { 1e-6 };
        let kv_heads = match layout {
            Layout::Mistral => Some(8),
            Layout::Qwen2 | Layout::Qwen3 => Some(32),
            _ => None,
        };
        Self { epsilon, kv_heads, head_width: (layout == Layout::Qwen3).then_some(128) }
    }
}

pub(super) fn read(
    layout: Layout,
    config: &Fields<'_>,
    longest: Option<usize>,
) -> Result<ModelConfig, HuggingFaceError> {
    let defaults = Defaults::of(layout);
    let (width, heads) = (config.needed("hidden_size")?, config.needed("num_attention_heads")?);
    let positions = config.needed("max_position_embeddings")?;
    refuse_windows(layout, config, longest.unwrap_or(positions))?;
    let own_head = config.count("head_dim")?.or(defaults.head_width);
    let has_default_heads = heads > 0 && own_head == Some(width / heads) && width.is_multiple_of(heads);
    let kv_heads = match (config.count("num_key_value_heads")?, config.is_null("num_key_value_heads")) {
        (None, true) => heads,
        (found, _) => found.or(defaults.kv_heads).unwrap_or(heads),
    };
    let rotary = rope::read(config, config.number("rope_theta")?.unwrap_or(10_000.0), 1.0)?;
    if let Some(rotary) = rotary.as_ref().filter(|rotary| rotary.share != 1.0) {
        let known = "1: this model rotates whole heads";
        return Err(config.refuse("partial_rotary_factor", &Value::from(rotary.share), known));
    }
    Ok(ModelConfig {
        head_width: own_head.filter(|_| !has_default_heads),
        feed_forward: unless(config.needed("intermediate_size")?, width.saturating_mul(4)),
        rotary,
        tied_head: config.truth("tie_word_embeddings")?.unwrap_or(false),
        biases: biases(layout, config)?,
        activation: config.activation("hidden_act", "silu")?,
        gated: true,
        norm: NormKind::Rms,
        norm_epsilon: config.number("rms_norm_eps")?.unwrap_or(defaults.epsilon),
        norm_placement: if layout == Layout::Olmo2 { NormPlacement::After } else { NormPlacement::Before },
        kv_heads: unless(kv_heads, heads),
        qk_norm: match layout {
            Layout::Qwen3 => Some(QkNorm::Head),
            Layout::Olmo2 => Some(QkNorm::Whole),
            _ => None,
        },
        ..ModelConfig::of([config.needed("num_hidden_layers")?, width, heads], config.needed("vocab_size")?, positions)
    })
}

fn biases(layout: Layout, config: &Fields<'_>) -> Result<Biases, HuggingFaceError> {
    if let Some(own) = ours(config)? {
        return Ok(own);
    }
    let of_attention = match layout {
        Layout::Qwen2 => return Ok(Biases::Qkv),
        Layout::Mistral => return Ok(Biases::None),
        _ => config.truth("attention_bias")?.unwrap_or(false),
    };
    let elsewhere = layout == Layout::Llama && config.truth("mlp_bias")?.unwrap_or(false);
    match (of_attention, elsewhere) {
        (false, false) => Ok(Biases::None),
        (true, false) => Ok(Biases::Attention),
        (true, true) => Ok(Biases::All),
        (false, true) => {
            Err(config.refuse("mlp_bias", &Value::from(true), "false, or true together with attention_bias"))
        }
    }
}

/// A window in which attention slides can be left out only if no sequence is longer.
fn refuse_windows(layout: Layout, config: &Fields<'_>, longest: usize) -> Result<(), HuggingFaceError> {
    let known = "full attention: with --context at most the window, no token is out of it";
    let slides = match layout {
        Layout::Mistral => true,
        Layout::Qwen2 | Layout::Qwen3 => config.truth("use_sliding_window")?.unwrap_or(false),
        _ => false,
    };
    let window = match (config.count("sliding_window")?, config.is_null("sliding_window")) {
        (Some(window), _) => Some(window),
        (None, true) => None,
        (None, false) => Some(4096),
    };
    if let Some(window) = window.filter(|window| slides && *window < longest) {
        return Err(config.refuse("sliding_window", &Value::from(window), known));
    }
    let layers = config.list("layer_types")?.into_iter().flatten();
    let mut others = layers.filter(|layer| layer.as_str() != Some("full_attention"));
    match others.next() {
        Some(layer) if window.is_none_or(|window| window < longest) => {
            Err(config.refuse("layer_types", layer, "full_attention in each layer"))
        }
        _ => Ok(()),
    }
}
