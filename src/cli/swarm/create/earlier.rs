//! Starting a run from an earlier one: its tokenizer, its parameters, and what it keeps of a pretrained model.

use std::path::{Path, PathBuf};

use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::config::{Rescale, RunConfig};
use crate::model::exchange;
use crate::model::hugging_face::PretrainedFiles;
use crate::peer::collected::PRETRAINED;

/// What a run takes over from an earlier one.
pub struct Earlier {
    pub tokenizer: Vec<u8>,
    /// Parameters, level by level.
    pub levels: Vec<Vec<f32>>,
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
    let files = if single { modules } else { vec![folder.join("ancestor.safetensors")] };
    let files = files.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    let level = |level| exchange::decode_level_from(&files, &run.model, level);
    let levels = run.levels.iter().map(level).collect::<Result<Vec<_>, _>>();
    let levels = levels
        .map_err(|error| format!("{}: {error}", folder.display()))
        .or_mistake("the model of the earlier run must have the same sizes as the model of this run")?;
    let file = folder.join(PRETRAINED);
    let pretrained = match std::fs::read(&file) {
        Ok(bytes) => Some(PretrainedFiles::decode(&bytes).map_err(|error| format!("{}: {error}", file.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(format!("{}: {error}", file.display()))),
    };
    Ok(Earlier { tokenizer, levels, pretrained: pretrained.transpose().or_mistake(hint)? })
}

/// Learning rate above which a pretrained model forgets what it knew before it learns.
const GENTLE_LEARNING_RATE: f64 = 1e-4;

/// What a run from a pretrained model should not do, in words.
pub fn harsh_settings(run: &RunConfig) -> Vec<String> {
    let (rate, outer) = (run.training.learning_rate, &run.outer);
    let mut found = Vec::new();
    if rate > GENTLE_LEARNING_RATE {
        found.push(format!(
            "training.learning_rate = {rate} suits a model that starts from nothing; this one is pretrained: 2e-5 \
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
