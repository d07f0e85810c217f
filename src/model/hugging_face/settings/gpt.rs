//! `config.json` of GPT-2 and GPT-NeoX.

use serde_json::Value;

use super::fields::Fields;
use super::{ours, rope, unless};
use crate::config::{Biases, ModelConfig, Positions};
use crate::model::hugging_face::HuggingFaceError;

pub(super) fn gpt2(config: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    config.must("scale_attn_weights", true)?;
    config.must("scale_attn_by_inverse_layer_idx", false)?;
    config.must("add_cross_attention", false)?;
    let width = config.needed("n_embd")?;
    let sizes = [config.needed("n_layer")?, width, config.needed("n_head")?];
    let positions = config.needed("n_positions")?;
    Ok(ModelConfig {
        feed_forward: config.count("n_inner")?.and_then(|inner| unless(inner, width.saturating_mul(4))),
        positions: Positions::Learned,
        tied_head: config.truth("tie_word_embeddings")?.unwrap_or(true),
        biases: ours(config)?.unwrap_or(Biases::All),
        activation: config.activation("activation_function", "gelu_new")?,
        norm_epsilon: config.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        ..ModelConfig::of(sizes, config.needed("vocab_size")?, positions)
    })
}

pub(super) fn gpt_neox(config: &Fields<'_>) -> Result<ModelConfig, HuggingFaceError> {
    if config.truth("attention_bias")? == Some(false) {
        let known = "true: all of its layers have biases, or none";
        return Err(config.refuse("attention_bias", &Value::from(false), known));
    }
    let (base, share) = (config.number("rotary_emb_base")?, config.number("rotary_pct")?);
    let width = config.needed("hidden_size")?;
    let sizes = [config.needed("num_hidden_layers")?, width, config.needed("num_attention_heads")?];
    let positions = config.needed("max_position_embeddings")?;
    Ok(ModelConfig {
        feed_forward: unless(config.needed("intermediate_size")?, width.saturating_mul(4)),
        rotary: rope::read(config, base.unwrap_or(10_000.0), share.unwrap_or(0.25))?,
        tied_head: config.truth("tie_word_embeddings")?.unwrap_or(false),
        biases: ours(config)?.unwrap_or(Biases::All),
        activation: config.activation("hidden_act", "gelu")?,
        norm_epsilon: config.number("layer_norm_eps")?.unwrap_or(1e-5),
        parallel_residual: config.truth("use_parallel_residual")?.unwrap_or(true),
        ..ModelConfig::of(sizes, config.needed("vocab_size")?, positions)
    })
}
