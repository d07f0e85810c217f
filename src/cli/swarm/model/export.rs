//! `pathswarm export`: a path of a collected run, as a folder that `transformers` loads.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use crate::cli::swarm::Globals;
use crate::cli::swarm::mistake::OrMistake;
use crate::cli::swarm::model::{checkpoint, collected_run, foreign_folder};
use crate::model::hugging_face::{self, settings};
use crate::names::PathId;
use crate::store::StagedFolder;

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// `pathswarm export`
#[derive(Args)]
pub struct Export {
    /// A collected run.
    run: PathBuf,
    /// A new folder, for `transformers`.
    folder: PathBuf,
    /// The path's number, as `evaluate` shows it.
    #[arg(long, value_name = "NUMBER", required_unless_present = "ancestor")]
    path: Option<u32>,
    /// The dense ancestor instead, which computes the features for routing.
    #[arg(long, conflicts_with = "path")]
    ancestor: bool,
}

impl Export {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let collected = collected_run::open(&self.run)?;
        foreign_folder::must_be_new(&self.folder)?;
        let (config, paths) = (&collected.manifest.config, collected.grid.path_count());
        let values = checkpoint::of_collected(&collected, self.path.map(PathId))?.levels;
        let name = self.path.map_or_else(|| "the ancestor".to_owned(), |path| format!("path {path}"));
        let hint = "use the safetensors files of the collected run, which are complete";
        let own = collected.pretrained.config();
        let end_of_document = collected.tokenizer.end_of_document();
        let settings = settings::write(&config.model, end_of_document, own.as_ref()).or_mistake(hint)?;
        let weights = hugging_face::weights(&config.model, &config.levels, &values).or_mistake(hint)?;

        let staged = StagedFolder::begin(&self.folder).context("cannot make the folder")?;
        staged.write("config.json", &settings)?;
        staged.write("model.safetensors", &weights)?;
        staged.write("tokenizer.json", &collected.tokenizer.exported_json()?)?;
        // What the pretrained model said of itself comes before what is made up here.
        let kept: Vec<(&str, &str)> = collected.pretrained.exported().collect();
        for (name, text) in &kept {
            staged.write(name, text.as_bytes())?;
        }
        if !kept.iter().any(|(name, _)| *name == TOKENIZER_CONFIG) {
            let end = collected.tokenizer.end_name();
            let tokenizer = json!({
                "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config.model.context,
                "bos_token": end, "eos_token": end, "clean_up_tokenization_spaces": false,
            });
            staged.write(TOKENIZER_CONFIG, &serde_json::to_vec_pretty(&tokenizer)?)?;
        }
        staged.write("router", &collected.router.encode())?;
        let modules = |path: PathId| collected.grid.modules_of(path).into_iter();
        let modules: Vec<_> = self.path.map(PathId).into_iter().flat_map(modules).collect();
        let versions = modules.iter().map(|module| (module.to_string(), collected.modules[module].version.0));
        let origin = json!({
            "run": collected.run.to_string(), "name": config.name, "path": self.path, "paths": paths,
            "modules": versions.collect::<std::collections::BTreeMap<_, _>>(),
            "prefix_tokens": config.routing.prefix_tokens,
        });
        staged.write("pathswarm.json", &serde_json::to_vec_pretty(&origin)?)?;
        staged.put_in_place()?;

        let kind = settings::layout_like(&config.model, own.as_ref())?.name();
        let output = globals.output();
        output.text(&format!("{name} is in {} as a {kind}", self.folder.display()))?;
        output.json(&json!({ "event": "result", "folder": self.folder, "layout": kind, "origin": origin }))?;
        Ok(())
    }
}
