//! Starting a run from an earlier one: its tokenizer, its parameters, and what it keeps of a pretrained model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::swarm::mistake::{Mistake, OrMistake, with_causes};
use crate::config::{LevelConfig, Rescale, RunConfig};
use crate::grid::Sharing;
use crate::model::exchange::{self, ExchangeError};
use crate::model::hugging_face::PretrainedFiles;
use crate::model::initial_levels;
use crate::peer::collected::PRETRAINED;
use crate::peer::folder::read_manifest;
use crate::seed::Seed;

/// What a run takes over from an earlier one.
pub struct Earlier {
    pub tokenizer: Vec<u8>,
    /// Parameters, level by level.
    pub levels: Vec<Vec<f32>>,
    /// What no level lists, beside adapters.
    pub frozen: Arc<[f32]>,
    /// Settings of the pretrained model, if it came from one.
    pub pretrained: Option<PretrainedFiles>,
}

/// The parameters of an earlier run: those of its modules if it has one for each level, else its ancestor's.
pub fn earlier_run(folder: &Path, run: &RunConfig) -> Result<Earlier, Mistake> {
    let hint = "name a folder that `pathswarm collect` or `pathswarm import` has written";
    let read =
        |path: PathBuf| std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display())).or_mistake(hint);
    let tokenizer = read(folder.join("tokenizer.json"))?;
    // An imported run has none.
    let listed = std::fs::read_dir(folder.join("modules")).into_iter().flatten();
    let mut modules: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    modules.sort();
    let is_only = |path: &PathBuf| path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with(".0"));
    let single = !modules.is_empty() && modules.iter().all(is_only);
    let mut files = if single { modules } else { Vec::new() };
    if !single || run.frozen().is_some() {
        files.push(folder.join("ancestor.safetensors"));
    }
    same_adapters(folder, run)?;
    let files = files.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let (levels, frozen) = parameters(&files, run).map_err(|error| {
        let hint = match error {
            ExchangeError::Adapter(_) => "set [model.adapter] as there, or export a path, which merges its adapters",
            _ => "the model of the earlier run must have the same sizes as the model of this run",
        };
        Mistake::new(format!("{}: {error}", folder.display())).hint(hint)
    })?;
    let file = folder.join(PRETRAINED);
    let pretrained = match std::fs::read(&file) {
        Ok(bytes) => Some(PretrainedFiles::decode(&bytes).map_err(|error| format!("{}: {error}", file.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(format!("{}: {error}", file.display()))),
    };
    Ok(Earlier { tokenizer, levels, frozen: frozen.into(), pretrained: pretrained.transpose().or_mistake(hint)? })
}

/// Refuses to scale the adapters of an earlier run anew, or to cut them: their files have no α.
fn same_adapters(folder: &Path, run: &RunConfig) -> Result<(), Mistake> {
    let earlier = read_manifest(folder).map_err(|error| Mistake::new(with_causes(&error)))?;
    let earlier = earlier.and_then(|(_, manifest, _)| manifest.config.model.adapter);
    let (Some(earlier), Some(own)) = (earlier, run.model.adapter) else { return Ok(()) };
    for (key, was, is) in [("rank", earlier.rank as f64, own.rank as f64), ("alpha", earlier.alpha(), own.alpha())] {
        if was != is {
            let error = format!("model.adapter.{key} is {is}, but {was} in the run in {}", folder.display());
            return Err(
                Mistake::new(error).hint(format!("set model.adapter.{key} = {was}, or export a path, and import it"))
            );
        }
    }
    Ok(())
}

/// The levels of a run and what is frozen in it, from the files of an earlier one. Adapters that it did not have begin as
/// the run's seed says.
fn parameters(files: &[Vec<u8>], run: &RunConfig) -> Result<(Vec<Vec<f32>>, Vec<f32>), ExchangeError> {
    let mut files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    let begins;
    if run.model.adapter.is_some() {
        begins = initial_adapters(run)?;
        files.push(&begins);
    } else if let Some(name) = exchange::adapter_in(&files)? {
        return Err(ExchangeError::Adapter(name));
    }
    let read = |level: &LevelConfig| exchange::decode_level_from(&files, &run.model, level);
    let levels = run.levels.iter().map(read).collect::<Result<_, _>>()?;
    Ok((levels, run.frozen().as_ref().map_or_else(|| Ok(Vec::new()), read)?))
}

/// A file of the adapters as they begin.
fn initial_adapters(run: &RunConfig) -> Result<Vec<u8>, ExchangeError> {
    let parts = (0..run.model.blocks).map(|block| format!("adapter.{block}")).collect();
    let adapters = [LevelConfig { parts, sharing: Sharing::Shared }];
    let values = initial_levels(&run.model, &adapters, Seed::root(run.seed).child("initial parameters"));
    exchange::encode(&run.model, &[(&adapters[0], &values[0])], &[])
}

/// Learning rate above which a pretrained model forgets what it knew before it learns.
const GENTLE_LEARNING_RATE: f64 = 1e-4;

/// The same for adapters, which begin without effect.
const GENTLE_ADAPTER_LEARNING_RATE: f64 = 1e-3;

/// What a run from a pretrained model should not do, in words.
pub fn harsh_settings(run: &RunConfig) -> Vec<String> {
    let (rate, outer) = (run.training.learning_rate, &run.outer);
    let mut found = Vec::new();
    let (most, usual) = match run.model.adapter {
        Some(_) => (GENTLE_ADAPTER_LEARNING_RATE, "2e-4"),
        None => (GENTLE_LEARNING_RATE, "2e-5"),
    };
    if rate > most {
        found.push(format!(
            "training.learning_rate = {rate} suits a model that starts from nothing; this one is pretrained: {usual} \
             keeps what it knows"
        ));
    }
    if outer.rescale == Rescale::SqrtPaths {
        found.push(
            "outer.rescale = \"sqrt-paths\" makes outer steps longer than paths have gone; \"none\" suits a pretrained \
             model"
                .to_owned(),
        );
    }
    let step = outer.learning_rate / (1.0 - outer.momentum);
    if step > 1.5 {
        found.push(format!(
            "outer.learning_rate = {} with outer.momentum = {} goes {step:.1} times as far as the paths in the long run; \
             0.5 and 0.5 suit a pretrained model",
            outer.learning_rate, outer.momentum
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_for_a_model_from_nothing_are_named_and_those_of_an_import_are_not() {
        let text = include_str!("../../../../configs/dipaco-2x2.toml");
        let from_nothing = RunConfig::from_toml(&text.replace("[outer]", "[outer]\npreset = \"dipaco\"")).unwrap();
        let named = harsh_settings(&from_nothing);
        for (key, line) in ["training.learning_rate = 0.01", "outer.rescale", "outer.momentum = 0.9"].iter().zip(&named)
        {
            assert!(line.contains(key), "{line}");
        }
        assert_eq!(named.len(), 3);
        let pretrained = RunConfig::from_toml(include_str!("../../../../configs/smollm2-2x2.toml")).unwrap();
        assert_eq!(harsh_settings(&pretrained), Vec::<String>::new());
    }
}
