//! What every folder for `transformers` has besides the network: the tokenizer, the files of the pretrained model, and
//! where it comes from.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::names::ModuleId;
use crate::peer::Collected;
use crate::store::StagedFolder;

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const GENERATION_CONFIG: &str = "generation_config.json";

/// Writes the tokenizer and the files of the pretrained model.
pub(super) fn write_tokenizer(staged: &StagedFolder, collected: &Collected) -> anyhow::Result<()> {
    staged.write("tokenizer.json", &collected.tokenizer.exported_json()?)?;
    // What the pretrained model said of itself comes before what is made up here.
    for (name, text) in collected.pretrained.exported() {
        staged.write(name, text.as_bytes())?;
    }
    if !has(collected, TOKENIZER_CONFIG) {
        let end = collected.tokenizer.end_name();
        let tokenizer = json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": collected.manifest.config.model.context,
            "bos_token": end, "eos_token": end, "clean_up_tokenization_spaces": false,
            "model_input_names": ["input_ids", "attention_mask"],
        });
        staged.write(TOKENIZER_CONFIG, &serde_json::to_vec_pretty(&tokenizer)?)?;
    }
    Ok(())
}

/// Writes the token that ends a text, unless the pretrained model has said how it generates.
pub(super) fn write_generation(staged: &StagedFolder, collected: &Collected) -> anyhow::Result<()> {
    if !has(collected, GENERATION_CONFIG) {
        let end = collected.tokenizer.end_of_document();
        let generation = json!({ "bos_token_id": end, "eos_token_id": end });
        staged.write(GENERATION_CONFIG, &serde_json::to_vec_pretty(&generation)?)?;
    }
    Ok(())
}

fn has(collected: &Collected, file: &str) -> bool {
    collected.pretrained.exported().any(|(name, _)| name == file)
}

/// The versions of modules, by their names.
pub(super) fn versions(collected: &Collected, modules: &[ModuleId]) -> BTreeMap<String, u64> {
    modules.iter().map(|module| (module.to_string(), collected.modules[module].version.0)).collect()
}

/// Writes `pathswarm.json`, and returns it: the run, the path if it is one, and the versions of modules.
pub(super) fn write_origin(
    staged: &StagedFolder,
    collected: &Collected,
    path: Option<u32>,
    modules: &[ModuleId],
) -> anyhow::Result<Value> {
    let config = &collected.manifest.config;
    let origin = json!({
        "run": collected.run.to_string(), "name": config.name, "path": path, "paths": collected.grid.path_count(),
        "modules": versions(collected, modules), "prefix_tokens": config.routing.prefix_tokens,
    });
    staged.write("pathswarm.json", &serde_json::to_vec_pretty(&origin)?)?;
    Ok(origin)
}
