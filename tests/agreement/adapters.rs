//! Adapters that are exported for PEFT compute beside their model what the model computes into which they are merged. What
//! loads them is tests/agreement/adapters.py.
#![cfg(feature = "learning")]

use std::fs;
use std::path::Path;

use pathswarm::config::{AdapterConfig, Biases, LevelConfig, ModelConfig, QkNorm, frozen_parts};
use pathswarm::grid::Sharing;
use pathswarm::model::hugging_face::peft::{PeftFiles, peft};
use pathswarm::model::hugging_face::{settings, weights};
use pathswarm::model::initial_levels;
use pathswarm::model::merged::{Merged, merged};
use pathswarm::seed::Seed;

use crate::hugging_face::to_export;
use crate::reference::transformers;

fn level(parts: &[&str]) -> LevelConfig {
    LevelConfig { parts: parts.iter().map(|part| (*part).to_owned()).collect(), sharing: Sharing::Shared }
}

/// Writes a model, its adapters, and the model into which they are merged.
fn written(folder: &Path, model: &ModelConfig, seed: u64) {
    let model = ModelConfig { adapter: Some(AdapterConfig { rank: 3, alpha: Some(5.0) }), ..model.clone() };
    let levels = [level(&["adapter.0"]), level(&["adapter.1"])];
    let frozen_level = frozen_parts(&model, &levels).unwrap();
    let moved = |(at, value): (usize, &f32)| value + 0.2 * (at as f32 * 0.7 + seed as f32).sin();
    let random = |levels: &[LevelConfig]| -> Vec<Vec<f32>> {
        let initial = initial_levels(&model, levels, Seed::root(seed));
        initial.iter().map(|level| level.iter().enumerate().map(moved).collect()).collect()
    };
    let (values, frozen) = (random(&levels), random(std::slice::from_ref(&frozen_level)).remove(0));
    // Adapters that do nothing leave the model as it was.
    let silent: Vec<Vec<f32>> = values.iter().map(|level| vec![0.0; level.len()]).collect();
    for (name, values) in [("base", &silent), ("merged", &values)] {
        let Merged { model, level, values } = merged(&model, &levels, values, &frozen).unwrap();
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("config.json"), settings::write(&model, 0, None).unwrap()).unwrap();
        let file = weights(&model, &[level], &[values]).unwrap();
        fs::write(folder.join(name).join("model.safetensors"), file).unwrap();
    }
    let PeftFiles { config, weights } = peft((&model, None), &levels, &values).unwrap();
    fs::create_dir_all(folder.join("adapter")).unwrap();
    fs::write(folder.join("adapter/adapter_config.json"), config).unwrap();
    fs::write(folder.join("adapter/adapter_model.safetensors"), weights).unwrap();
}

#[test]
fn adapters_compute_in_peft_what_the_merged_model_computes() {
    let home = tempfile::tempdir().unwrap();
    let wanted = ["llama", "llama-tied", "mistral", "qwen2", "qwen3", "olmo2"];
    let models: Vec<_> = to_export().into_iter().filter(|(name, _)| wanted.contains(name)).collect();
    assert_eq!(models.len(), wanted.len());
    assert!(models.iter().any(|(_, model)| model.biases == Biases::Qkv && model.qk_norm.is_none()), "Qwen2");
    assert!(models.iter().any(|(_, model)| model.qk_norm == Some(QkNorm::Head)), "Qwen3");
    let folders: Vec<String> = models
        .iter()
        .zip(1..)
        .map(|((name, model), seed)| {
            let folder = home.path().join(name);
            written(&folder, model, seed);
            folder.to_str().unwrap().to_owned()
        })
        .collect();
    transformers("tests/agreement/adapters.py", Some("peft"), &folders);
}
