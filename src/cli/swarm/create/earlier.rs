//! Starting a run from an earlier one: its tokenizer and its parameters.

use std::path::{Path, PathBuf};

use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::config::RunConfig;
use crate::model::exchange;

/// A tokenizer, and parameters level by level.
pub type Earlier = (Vec<u8>, Vec<Vec<f32>>);

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
    let files = if single { modules } else { vec![folder.join("ancestor.safetensors")] };
    let files = files.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    let level = |level| exchange::decode_level_from(&files, &run.model, level);
    let levels = run.levels.iter().map(level).collect::<Result<Vec<_>, _>>();
    let levels = levels
        .map_err(|error| format!("{}: {error}", folder.display()))
        .or_mistake("the model of the earlier run must have the same sizes as the model of this run")?;
    Ok((tokenizer, levels))
}
