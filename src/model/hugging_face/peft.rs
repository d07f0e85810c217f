//! The adapters of a path as PEFT stores them: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::{BTreeSet, HashMap};

use safetensors::tensor::{Dtype, SafeTensorError, TensorView, serialize};
use serde_json::{Value, json};

use super::tensors::theirs;
use super::weights::by_name;
use super::{HuggingFaceError, Layout};
use crate::config::{LevelConfig, ModelConfig, Part};

/// The two files of an adapter.
pub struct PeftFiles {
    pub config: Vec<u8>,
    pub weights: Vec<u8>,
}

/// The adapters of a path, whose `base` is the model beside which they were trained, if its name is known. `values` are the
/// path's levels.
///
/// # Errors
/// If the model has no adapters or is one of those that store several matrices in one, or if more than adapters was
/// trained.
pub fn peft(
    (model, base): (&ModelConfig, Option<&str>),
    levels: &[LevelConfig],
    values: &[Vec<f32>],
) -> Result<PeftFiles, HuggingFaceError> {
    let adapter = model.adapter.ok_or(HuggingFaceError::NoAdapter)?;
    let plain = model.without_adapter();
    let layout = Layout::of(&plain)?;
    if matches!(layout, Layout::Gpt2 | Layout::GptNeox) {
        return Err(HuggingFaceError::Stacked(layout.name()));
    }
    let ours = by_name(model, levels, values)?;
    if let Some(trained) = ours.keys().filter(|name| !name.starts_with("adapter.")).min() {
        return Err(HuggingFaceError::Besides(trained.clone()));
    }
    let mut modules = BTreeSet::new();
    let mut tensors: Vec<(String, [usize; 2], Vec<u8>)> = Vec::new();
    for block in 0..plain.blocks {
        for weight in plain.tensors(Part::Block(block)).iter().filter(|weight| !weight.matrices.is_empty()) {
            let place = weight.name.strip_prefix("block.").and_then(|name| name.strip_suffix(".weight"));
            let values = |narrow: &str| place.and_then(|place| ours.get(&format!("adapter.{place}.{narrow}")).copied());
            let (Some(mut a), Some(mut b)) = (values("a"), values("b")) else { continue };
            for theirs in theirs(layout, &plain, weight).into_iter().flatten() {
                let name = theirs.name.strip_suffix(".weight").unwrap_or(&theirs.name);
                modules.extend(name.rsplit('.').next().map(str::to_owned));
                let (inputs, outputs) = (weight.shape[1], theirs.shape[0]);
                for (kind, shape, rest) in
                    [("lora_A", [adapter.rank, inputs], &mut a), ("lora_B", [outputs, adapter.rank], &mut b)]
                {
                    let (own, after) = rest.split_at(shape[0] * shape[1]);
                    *rest = after;
                    let bytes = own.iter().flat_map(|value| value.to_le_bytes()).collect();
                    tensors.push((format!("base_model.model.{name}.{kind}.weight"), shape, bytes));
                }
            }
        }
    }
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.to_vec(), bytes)?)))
        .collect::<Result<Vec<_>, SafeTensorError>>()?;
    let weights = serialize(views, Some(HashMap::from([("format".to_owned(), "pt".to_owned())])))?;
    let config = settings((adapter.rank, adapter.alpha()), base, &modules);
    Ok(PeftFiles { config: serde_json::to_vec_pretty(&config)?, weights })
}

fn settings((rank, alpha): (usize, f64), base: Option<&str>, modules: &BTreeSet<String>) -> Value {
    json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": rank, "lora_alpha": alpha,
        "target_modules": modules, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": false, "inference_mode": true,
    })
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;
    use crate::config::{Activation, AdapterConfig, NormKind};
    use crate::grid::Sharing;
    use crate::model::initial_levels;
    use crate::seed::Seed;

    fn llama() -> ModelConfig {
        ModelConfig {
            adapter: Some(AdapterConfig { rank: 3, alpha: None }),
            gated: true,
            kv_heads: Some(1),
            norm: NormKind::Rms,
            activation: Activation::Silu,
            ..ModelConfig::of([2, 16, 2], 300, 24)
        }
    }

    fn levels(parts: &[&str]) -> Vec<LevelConfig> {
        vec![LevelConfig { parts: parts.iter().map(|part| (*part).to_owned()).collect(), sharing: Sharing::Shared }]
    }

    fn exported(model: &ModelConfig, parts: &[&str]) -> Result<PeftFiles, HuggingFaceError> {
        let levels = levels(parts);
        peft((model, Some("someone/model")), &levels, &initial_levels(model, &levels, Seed::root(1)))
    }

    #[test]
    fn each_matrix_of_each_layer_has_its_two_narrow_ones() {
        let files = exported(&llama(), &["adapters.0-1"]).unwrap();
        let config: Value = serde_json::from_slice(&files.config).unwrap();
        assert_eq!((&config["r"], &config["lora_alpha"]), (&json!(3), &json!(6.0)));
        let modules = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"];
        assert_eq!(config["target_modules"], json!(modules));
        let file = SafeTensors::deserialize(&files.weights).unwrap();
        assert_eq!(file.len(), 2 * 2 * 7);
        let shape = |name: &str| file.tensor(&format!("base_model.model.model.layers.1.{name}.weight")).unwrap();
        assert_eq!(shape("self_attn.k_proj.lora_A").shape(), [3, 16]);
        assert_eq!(shape("self_attn.k_proj.lora_B").shape(), [8, 3]);
        assert_eq!(shape("mlp.up_proj.lora_B").shape(), [64, 3]);
        let model = llama();
        let first = initial_levels(&model, &levels(&["adapters.0-1"]), Seed::root(1)).remove(0);
        let of_k: Vec<u8> = first[3 * 16..6 * 16].iter().flat_map(|value| value.to_le_bytes()).collect();
        let k = file.tensor("base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight").unwrap();
        assert_eq!(k.data(), of_k);
    }

    #[test]
    fn what_peft_cannot_express_is_refused_in_words() {
        let refused = |model: &ModelConfig, parts: &[&str]| exported(model, parts).err().unwrap().to_string();
        assert!(refused(&llama(), &["adapters.0-1", "final-norm"]).contains("final-norm.weight"));
        let plain = llama().without_adapter();
        assert!(refused(&plain, &["embedding", "blocks.0-1", "final-norm", "head"]).contains("no adapters"));
        let neox = ModelConfig { adapter: llama().adapter, ..ModelConfig::of([2, 16, 2], 300, 24) };
        assert!(refused(&neox, &["adapters.0-1"]).contains("GPT-NeoX"));
    }
}
