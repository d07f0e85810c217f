//! Experiments: arms that differ in one setting, trained with several seeds on the same text, and compared in tables
//! and plots.
//!
//! In the order in which data passes through:
//!
//! 1. [`plan`] reads an experiment: a common run, its arms and its claims; [`files`] resolves `extends`.
//! 2. [`dataset`] splits the text into training, held out and test documents, the same for all arms.
//! 3. [`context`] holds what all arms need: the machine, the text as tokens and the common ancestor.
//! 4. [`identity`] names a training by its inputs, so that no training is repeated; [`checkpoint`] is its file.
//! 5. [`training`] trains all paths in one process, with the arithmetic of a swarm and without its network.
//! 6. [`arm`] takes one arm with one seed from the ancestor to its scores.
//! 7. [`results`] has the scores, the claims, the tables and the plots.

pub mod arm;
pub mod checkpoint;
pub mod context;
pub mod dataset;
pub mod files;
pub mod identity;
pub mod plan;
pub mod results;
pub mod training;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;

use crate::experiment::arm::Trial;
use crate::experiment::checkpoint::ArmCheckpoint;
use crate::experiment::context::{ExperimentContext, ExperimentEvent};
use crate::experiment::identity::Identity;
use crate::experiment::plan::{Arm, Experiment};
use crate::experiment::results::outcome::Outcome;
use crate::experiment::results::plots::{self, Axis};
use crate::experiment::results::report;
use crate::store::write_file;

pub use crate::experiment::context::Source;

/// The file with the outcome of each arm, in the folder of results.
const RESULTS: &str = "results.json";

/// The folder of results, and the command that reproduces them.
pub struct Results<'a> {
    pub folder: &'a Path,
    pub command: &'a str,
}

/// Trains all arms with all seeds, first seeds first, except those with stored results. Results are written after each.
///
/// # Errors
/// If an arm or the disk fails, or the user asks to stop. The same call then resumes.
pub fn run(
    experiment: &Experiment,
    context: &mut ExperimentContext<'_>,
    results: &Results<'_>,
) -> anyhow::Result<Vec<Outcome>> {
    let (mut outcomes, mut shared) = (Vec::new(), Vec::new());
    let mut before: Vec<Outcome> = known(&results.folder.join(RESULTS))?.unwrap_or_default();
    for (arm, seed) in in_order(&experiment.arms) {
        let tokens = context.tokens(&arm.run)?;
        // Only after the text is known to exist, so that a mistake leaves nothing behind.
        make(&context.folder)?;
        // Results are rewritten after each arm, so the outcomes of others must be stored elsewhere.
        let is_named =
            |outcome: &Outcome| !outcome.identity.is_empty() && outcome.identity.chars().all(|c| c.is_ascii_hexdigit());
        for outcome in std::mem::take(&mut before).into_iter().filter(is_named) {
            let file = arm_file(&context.folder, &outcome.identity);
            if !file.exists() {
                write_file(&file, &serde_json::to_vec_pretty(&outcome)?)?;
            }
        }
        let identity = Identity { context, experiment, arm, seed, tokens: &tokens };
        let name = identity.outcome()?.to_string()[..16].to_owned();
        let file = arm_file(&context.folder, &name);
        let outcome = match known::<Outcome>(&file)? {
            Some(outcome) => Outcome { arm: arm.name.clone(), identity: name, ..outcome },
            None => {
                let trial = Trial::new(identity)?;
                let outcome = trial.run().with_context(|| format!("arm {:?}, seed {seed}", arm.name))?;
                let outcome = Outcome { identity: name, ..outcome };
                write_file(&file, &serde_json::to_vec_pretty(&outcome)?)?;
                context.tell(ExperimentEvent::Done(&outcome));
                outcome
            }
        };
        shared.extend(identity.branch_points()?.into_iter().map(|(_, checkpoint)| checkpoint));
        outcomes.push(outcome);
        write(experiment, &outcomes, results)?;
    }
    shared.iter().for_each(ArmCheckpoint::remove);
    Ok(outcomes)
}

/// The first seed of each arm, then the second of each that has one, and so on.
fn in_order(arms: &[Arm]) -> Vec<(&Arm, u64)> {
    let most = arms.iter().map(|arm| arm.seeds.len()).max().unwrap_or(0);
    let round = |number: usize| arms.iter().filter_map(move |arm| Some((arm, *arm.seeds.get(number)?)));
    (0..most).flat_map(round).collect()
}

fn known<T: DeserializeOwned>(file: &Path) -> anyhow::Result<Option<T>> {
    if !file.exists() {
        return Ok(None);
    }
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let read = serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged; remove it", file.display()))?;
    Ok(Some(read))
}

fn arm_file(folder: &Path, identity: &str) -> PathBuf {
    folder.join(format!("arm-{identity}.json"))
}

fn make(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Writes tables, plots and numbers.
fn write(experiment: &Experiment, outcomes: &[Outcome], results: &Results<'_>) -> anyhow::Result<()> {
    let folder = results.folder;
    make(folder)?;
    write_file(&folder.join(RESULTS), &serde_json::to_vec_pretty(outcomes)?)?;
    write_file(&folder.join("README.md"), report::markdown(experiment, outcomes, results.command).as_bytes())?;
    for (name, axis) in [("steps.svg", Axis::Steps), ("tokens.svg", Axis::Tokens)] {
        if let Some(image) = plots::svg(experiment, outcomes, axis)? {
            write_file(&folder.join(name), image.as_bytes())?;
        }
    }
    Ok(())
}
