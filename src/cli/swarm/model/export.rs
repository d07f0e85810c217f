//! `pathswarm export`: a path of a collected run, or all of it, as a folder that `transformers` loads.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use crate::cli::swarm::Globals;
use crate::cli::swarm::mistake::OrMistake;
use crate::cli::swarm::model::{checkpoint, collected_run, export_whole, exported_folder, foreign_folder};
use crate::model::hugging_face::peft::{PeftFiles, peft};
use crate::model::hugging_face::{self, settings};
use crate::model::merged::{Merged, merged};
use crate::names::PathId;
use crate::peer::Collected;
use crate::peer::collect::Checkpoint;
use crate::store::StagedFolder;

/// `pathswarm export`
#[derive(Args)]
pub struct Export {
    /// A collected run.
    run: PathBuf,
    /// A new folder, for `transformers`.
    folder: PathBuf,
    /// The path's number, as `evaluate` shows it.
    #[arg(long, value_name = "NUMBER", required_unless_present_any = ["ancestor", "whole"])]
    path: Option<u32>,
    /// The dense ancestor instead, which computes the features for routing.
    #[arg(long, conflicts_with = "path")]
    ancestor: bool,
    /// The path's adapters alone, for PEFT, instead of the model into which they are merged.
    #[arg(long, conflicts_with_all = ["ancestor", "whole"])]
    adapter: bool,
    /// All paths and the router instead, with code that `transformers` runs (`trust_remote_code`).
    #[arg(long, conflicts_with_all = ["path", "ancestor"])]
    whole: bool,
}

impl Export {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let collected = collected_run::open(&self.run)?;
        foreign_folder::must_be_new(&self.folder)?;
        let (name, kind, origin) = if self.whole {
            let name = format!("the whole run, {} paths,", collected.grid.path_count());
            (name, "model of its own kind", export_whole::export(&collected, &self.folder)?)
        } else {
            let name = self.path.map_or_else(|| "the ancestor".to_owned(), |path| format!("path {path}"));
            let (kind, origin) = if self.adapter { self.of_adapter(&collected)? } else { self.one_path(&collected)? };
            (name, kind, origin)
        };
        let output = globals.output();
        output.text(&format!("{name} is in {} as a {kind}", self.folder.display()))?;
        if self.whole {
            output.text("load it with AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True)")?;
        }
        let layout = if self.whole { "pathswarm" } else { kind };
        output.json(&json!({ "event": "result", "folder": self.folder, "layout": layout, "origin": origin }))?;
        Ok(())
    }

    /// Writes a path or the ancestor as a model that `transformers` knows; returns its name and where it comes from.
    fn one_path(&self, collected: &Collected) -> anyhow::Result<(&'static str, Value)> {
        let Merged { model, level, values } = self.merged(collected)?;
        let hint = "use the safetensors files of the collected run, which are complete";
        let own = collected.pretrained.config();
        let end_of_document = collected.tokenizer.end_of_document();
        let settings = settings::write(&model, end_of_document, own.as_ref()).or_mistake(hint)?;
        let weights = hugging_face::weights(&model, &[level], &[values]).or_mistake(hint)?;
        let files = [("config.json", settings), ("model.safetensors", weights)];
        Ok((settings::layout_like(&model, own.as_ref())?.name(), self.write(collected, files)?))
    }

    /// The same for the path's adapters.
    fn of_adapter(&self, collected: &Collected) -> anyhow::Result<(&'static str, Value)> {
        let config = &collected.manifest.config;
        let values = checkpoint::of_collected(collected, self.path.map(PathId))?.levels;
        let own = collected.pretrained.config();
        let base = own.as_ref().and_then(|own| own.get("_name_or_path")).and_then(Value::as_str);
        let PeftFiles { config, weights } = peft((&config.model, base), &config.levels, &values)
            .or_mistake("leave --adapter out: the whole model is exported, with its adapters merged")?;
        let files = [("adapter_config.json", config), ("adapter_model.safetensors", weights)];
        Ok(("PEFT adapter", self.write(collected, files)?))
    }

    /// The path or the ancestor, with its adapters merged, if it has any.
    fn merged(&self, collected: &Collected) -> anyhow::Result<Merged> {
        let Checkpoint { config, levels, frozen, .. } = checkpoint::of_collected(collected, self.path.map(PathId))?;
        Ok(merged(&config.model, &config.levels, &levels, &frozen)?)
    }

    /// Writes these files with the tokenizer and what tells where they come from, which is returned.
    fn write(&self, collected: &Collected, files: [(&str, Vec<u8>); 2]) -> anyhow::Result<Value> {
        let staged = StagedFolder::begin(&self.folder).context("cannot make the folder")?;
        for (name, bytes) in &files {
            staged.write(name, bytes)?;
        }
        exported_folder::write_tokenizer(&staged, collected)?;
        staged.write("router", &collected.router.encode())?;
        let modules = self.path.map(|path| collected.grid.modules_of(PathId(path))).unwrap_or_default();
        let origin = exported_folder::write_origin(&staged, collected, self.path, &modules)?;
        staged.put_in_place()?;
        Ok(origin)
    }
}
