//! The rotary settings of `config.json`: `rope_parameters`, or `rope_scaling` beside `rope_theta`.

use serde_json::{Map, Value, json};

use super::fields::Fields;
use crate::config::{ModelConfig, RotaryConfig, RotaryScaling};
use crate::model::hugging_face::HuggingFaceError;

const TYPES: &str = "default, linear, dynamic, llama3 and yarn";

/// Reads them. `base` and `share` are those of keys of their own; keys inside the table come first.
pub(super) fn read(config: &Fields<'_>, base: f64, share: f64) -> Result<Option<RotaryConfig>, HuggingFaceError> {
    // As transformers does: rope_scaling first, if it is not empty.
    let scaling = config.table("rope_scaling")?.filter(|table| !table.is_empty());
    let (key, table) = match (scaling, config.table("rope_parameters")?) {
        (Some(table), _) => ("rope_scaling", table),
        (None, Some(table)) => ("rope_parameters", table),
        (None, None) => return Ok(unless_default(base, share, None)),
    };
    let rope = Fields::inside(key, table);
    if let Some(nested) = table.iter().find(|(_, value)| value.is_object()) {
        return Err(rope.refuse(nested.0, nested.1, "one table for all layers"));
    }
    let base = rope.number("rope_theta")?.unwrap_or(base);
    let share = rope.number("partial_rotary_factor")?.unwrap_or(share);
    let kind = rope.text("rope_type")?.or(rope.text("type")?).unwrap_or("default");
    let context = config.count("max_position_embeddings")?.unwrap_or(0);
    let original = || -> Result<usize, HuggingFaceError> {
        let apart = config.count("original_max_position_embeddings")?;
        Ok(apart.or(rope.count("original_max_position_embeddings")?).unwrap_or(context))
    };
    let needed = |key: &'static str| {
        rope.number(key)?.ok_or_else(|| rope.refuse(key, &Value::Null, "a number for this rope_type"))
    };
    let scaling = match kind {
        "default" => None,
        "linear" => Some(RotaryScaling::Linear { factor: needed("factor")? }),
        // Up to max_position_embeddings it changes nothing.
        "dynamic" => Some(RotaryScaling::Dynamic { factor: needed("factor")?, original_context: context }),
        "llama3" => Some(RotaryScaling::Llama3 {
            factor: needed("factor")?,
            low_frequency_factor: needed("low_freq_factor")?,
            high_frequency_factor: needed("high_freq_factor")?,
            original_context: original()?,
        }),
        "yarn" => {
            let original_context = original()?;
            let factor = rope.number("factor")?.unwrap_or(context as f64 / original_context.max(1) as f64);
            Some(RotaryScaling::Yarn {
                factor,
                original_context,
                beta_fast: rope.number("beta_fast")?.filter(|beta| *beta != 0.0).unwrap_or(32.0),
                beta_slow: rope.number("beta_slow")?.filter(|beta| *beta != 0.0).unwrap_or(1.0),
                attention_factor: attention_factor(&rope, factor)?,
                truncate: rope.truth("truncate")?.unwrap_or(true),
            })
        }
        other => return Err(rope.refuse("rope_type", &Value::from(other), TYPES)),
    };
    Ok(unless_default(base, share, scaling))
}

fn unless_default(base: f64, share: f64, scaling: Option<RotaryScaling>) -> Option<RotaryConfig> {
    let rotary = RotaryConfig { base, share, scaling };
    (rotary != RotaryConfig::default()).then_some(rotary)
}

/// YaRN's factor of queries and of keys, as transformers infers it.
fn attention_factor(rope: &Fields<'_>, factor: f64) -> Result<f64, HuggingFaceError> {
    if let Some(factor) = rope.number("attention_factor")? {
        return Ok(factor);
    }
    let scale = |by: f64| if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 };
    let given = |key| Ok::<_, HuggingFaceError>(rope.number(key)?.filter(|scale| *scale != 0.0));
    Ok(match (given("mscale")?, given("mscale_all_dim")?) {
        (Some(own), Some(all)) => scale(own) / scale(all),
        _ => scale(1.0),
    })
}

/// Writes them, for versions that read `rope_parameters` and for older ones.
pub(super) fn write(model: &ModelConfig, config: &mut Map<String, Value>) {
    let RotaryConfig { base, share, scaling } = model.rotary();
    let mut rope = match &scaling {
        None => json!({ "rope_type": "default" }),
        Some(RotaryScaling::Linear { factor }) => json!({ "rope_type": "linear", "factor": factor }),
        Some(RotaryScaling::Dynamic { factor, .. }) => json!({ "rope_type": "dynamic", "factor": factor }),
        Some(RotaryScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_context }) => {
            json!({
                "rope_type": "llama3", "factor": factor, "low_freq_factor": low_frequency_factor,
                "high_freq_factor": high_frequency_factor, "original_max_position_embeddings": original_context,
            })
        }
        Some(RotaryScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor, truncate }) => {
            json!({
                "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original_context,
                "beta_fast": beta_fast, "beta_slow": beta_slow, "attention_factor": attention_factor,
                "truncate": truncate,
            })
        }
    };
    rope["rope_theta"] = base.into();
    if share != 1.0 || model.norm == crate::config::NormKind::Layer {
        rope["partial_rotary_factor"] = share.into();
    }
    config.insert("rope_theta".to_owned(), base.into());
    config.insert("rope_scaling".to_owned(), if scaling.is_some() { rope.clone() } else { Value::Null });
    config.insert("rope_parameters".to_owned(), rope);
}
