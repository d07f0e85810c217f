//! `pathswarm inspect`: analyses of a path while it reads.

mod directional;
mod dna;
mod dreams;
mod followers;
mod patches;
mod shown;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};

use crate::cli::swarm::Globals;
use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::model::checkpoint;
use crate::cli::swarm::output::Output;
use crate::cli::swarm::reading::{self, UnreadableFlag};
use crate::config::{MachineConfig, Precision, RunConfig};
use crate::inspect::subject::InspectError;
use crate::inspect::{Passages, Subject};
use crate::model::{PathModel, open_device, set_threads};
use crate::names::PathId;
use crate::peer::collect::Checkpoint;

/// `pathswarm inspect`
#[derive(Args)]
pub struct Inspect {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    /// Directional routing: the effect of switching it off or changing it, the contribution of each part to a token's
    /// logit, weights by position and domain, and the meaning of directions.
    Directional(directional::Directional),
    /// Tokens that choose their modules: the choices of each step, common routes, the compute per token, and plots.
    Dna(dna::Dna),
}

impl Inspect {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        match self.tool {
            Tool::Directional(directional) => directional.run(globals),
            Tool::Dna(dna) => dna.run(globals),
        }
    }
}

/// The inspected network, and its input.
#[derive(Args)]
struct Looked {
    /// A collected run, the folder of a stopped peer, or one with such folders.
    run: PathBuf,
    /// The path's number, as `evaluate` shows it.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    path: u32,
    /// The dense ancestor instead.
    #[arg(long, conflicts_with = "path")]
    ancestor: bool,
    /// Text to read: files, folders, JSON lines, Parquet; a `domain` field names domains. Or prepared images, whose
    /// classes are their domains.
    #[arg(long, num_args = 1.., value_name = "FILE", required = true)]
    text: Vec<PathBuf>,
    #[command(flatten)]
    unreadable: UnreadableFlag,
    /// Sequences read of each domain, the longest first.
    #[arg(long, value_name = "COUNT", default_value_t = 40)]
    sequences: usize,
}

impl Looked {
    /// The title of the page.
    fn title(&self, about: &str, config: &RunConfig) -> String {
        match self.ancestor {
            true => format!("{about}: the ancestor of {}", config.name),
            false => format!("{about}: path {} of {}", self.path, config.name),
        }
    }

    fn subject(&self, machine: &MachineConfig) -> anyhow::Result<(Subject, RunConfig)> {
        open(&self.run, (!self.ancestor).then_some(PathId(self.path)), machine)
    }

    fn passages(&self, subject: &Subject, config: &RunConfig, output: Output) -> anyhow::Result<Passages> {
        let source = self.unreadable.source(self.text.clone());
        let corpus = reading::read(&source, config, &AtomicBool::new(false), output)?;
        let set = corpus.tokenized(&subject.tokenizer)?.cut_for_scoring(config.model.context);
        Passages::of(&set, &corpus.domains, config.starts(), self.sequences.max(1)).map_err(explain)
    }
}

/// A path, or its ancestor, with its run.
fn open(run: &Path, path: Option<PathId>, machine: &MachineConfig) -> anyhow::Result<(Subject, RunConfig)> {
    set_threads(machine.threads);
    let Checkpoint { config, tokenizer, levels, frozen } = checkpoint::open(run, path)?;
    let mut model =
        PathModel::new(&config.model, &config.levels, open_device(machine.first_device())?, Precision::F32)?;
    for (level, values) in levels.iter().enumerate() {
        model.set_level(level, values)?;
    }
    model.set_frozen(&frozen)?;
    Ok((Subject { model, tokenizer }, config))
}

/// Hints for errors that the user can correct.
fn explain(error: InspectError) -> anyhow::Error {
    let hint = match error {
        InspectError::Plain => "inspect a run with [model.directional], such as configs/directional-2x2.toml",
        InspectError::NoPool => "inspect a run with [model.dna], such as configs/dna/swarm-2x2.toml",
        InspectError::TooShort(_) => "give longer text",
        InspectError::Unknown { .. } => "name one that exists; pathswarm config show prints the sizes of the model",
        InspectError::Syntax { .. } => "for example --intervene layer=1:off --intervene layer=0,head=2:silent",
        InspectError::Route { .. } => "for example --follow 'T0+T3 * skip'; the table of routes lists them",
        InspectError::Differ(_) => "give another run with --against",
        InspectError::Forward(_) | InspectError::Tensor(_) => return error.into(),
    };
    Mistake::new(error).hint(hint).into()
}
