//! `pathswarm export --whole`: all paths of a collected run and its router, in one folder for `transformers`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::cli::swarm::model::{collected_run, exported_folder};
use crate::model::hugging_face::HuggingFaceError;
use crate::model::hugging_face::whole_run::{CODE, Weights, WholeRun, card};
use crate::names::PathId;
use crate::peer::Collected;
use crate::store::StagedFolder;

const DAMAGED: &str = "use the safetensors files of the collected run, which are complete";

/// Own parameters of a path, for the levels in which they differ from its module's.
type OwnLevels = Vec<(usize, Vec<f32>)>;

/// Writes the folder, which is put in place when it is complete; returns the run and the versions of its modules.
pub(super) fn export(collected: &Collected, folder: &Path) -> anyhow::Result<Value> {
    let config = &collected.manifest.config;
    WholeRun::check(&config.model, collected.router.needs_features()).map_err(explain)?;
    let mut own_levels = BTreeMap::new();
    for path in collected.grid.paths() {
        let own = own_parameters(collected, path).map_err(collected_run::explain)?;
        if !own.is_empty() {
            own_levels.insert(path, own.iter().map(|(level, _)| *level).collect());
        }
    }
    let router = collected.router.encode();
    let run = WholeRun {
        model: &config.model,
        levels: &config.levels,
        grid: &collected.grid,
        prefix_tokens: config.routing.prefix_tokens,
        router: &router,
        own_levels: &own_levels,
        end_of_document: collected.tokenizer.end_of_document(),
    };

    let staged = StagedFolder::begin(folder).context("cannot make the folder")?;
    write_weights(&staged, collected, &run)?;
    staged.write("config.json", &run.config(collected.pretrained.config().as_ref()).or_mistake(DAMAGED)?)?;
    for (name, code) in CODE {
        staged.write(name, code.as_bytes())?;
    }
    exported_folder::write_tokenizer(&staged, collected)?;
    exported_folder::write_generation(&staged, collected)?;
    let modules = collected.grid.modules();
    let card = card(&run, &config.name, &collected.run.to_string(), &exported_folder::versions(collected, &modules));
    staged.write("README.md", card.as_bytes())?;
    let origin = exported_folder::write_origin(&staged, collected, None, &modules)?;
    staged.put_in_place()?;
    Ok(origin)
}

fn explain(error: HuggingFaceError) -> Mistake {
    let hint = match error {
        HuggingFaceError::WholeRandom | HuggingFaceError::WholeAdapter => "export paths one by one: --path NUMBER",
        _ => "use the safetensors files of the collected run",
    };
    Mistake::new(error).hint(hint)
}

/// One file after the other, so that no more than a path is in memory.
fn write_weights(staged: &StagedFolder, collected: &Collected, run: &WholeRun<'_>) -> anyhow::Result<()> {
    let mut weights = Weights::default();
    let write = |(name, bytes): (String, Vec<u8>)| staged.write(&name, &bytes);
    for module in collected.grid.modules() {
        let values = collected.parameters_of(module).map_err(|error| collected_run::explain(error.into()))?;
        write(weights.module(run, module, &values).or_mistake(DAMAGED)?)?;
    }
    for path in run.own_levels.keys() {
        let own = own_parameters(collected, *path).map_err(collected_run::explain)?;
        let own: Vec<(usize, &[f32])> = own.iter().map(|(level, values)| (*level, values.as_slice())).collect();
        write(weights.own(run, *path, &own).or_mistake(DAMAGED)?)?;
    }
    write(weights.ancestor(run, &collected.ancestor).or_mistake(DAMAGED)?)?;
    write(weights.router(run).or_mistake(DAMAGED)?)?;
    write(weights.index().or_mistake(DAMAGED)?)?;
    Ok(())
}

/// What of a path differs from its modules.
fn own_parameters(collected: &Collected, path: PathId) -> anyhow::Result<OwnLevels> {
    if collected.best(path).is_none() {
        return Ok(Vec::new());
    }
    let mut own = Vec::new();
    let modules = collected.grid.modules_of(path);
    for (level, (values, module)) in collected.levels_of(path)?.into_iter().zip(modules).enumerate() {
        if values != collected.parameters_of(module)? {
            own.push((level, values));
        }
    }
    Ok(own)
}
