//! Text that a command is given to read.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::Args;
use serde_json::json;

use crate::cli::swarm::interrupt::Interrupted;
use crate::cli::swarm::mistake::{Mistake, with_causes};
use crate::cli::swarm::output::Output;
use crate::config::{RunConfig, TextFormat};
use crate::text::corpus::left_out::{LeftOut, Place};
use crate::text::{Corpus, CorpusError, CorpusSource, read_corpus};

/// Flag for files that cannot be read.
#[derive(Args, Clone, Copy, Debug)]
pub struct UnreadableFlag {
    /// Go on without files that cannot be read, and tell which. Without it, they are an error.
    #[arg(long)]
    pub skip_unreadable: bool,
}

impl UnreadableFlag {
    /// Files and folders to read.
    pub fn source(self, paths: Vec<PathBuf>) -> CorpusSource {
        CorpusSource::of(paths, self.skip_unreadable)
    }
}

/// Reads a source for a run, and tells what was left out.
pub fn read(source: &CorpusSource, run: &RunConfig, stop: &AtomicBool, output: Output) -> anyhow::Result<Corpus> {
    let corpus = read_corpus(source, run.reading(), stop).map_err(|error| explain(error, run))?;
    tell(&corpus.survey.left_out, output)?;
    Ok(corpus)
}

fn explain(error: CorpusError, run: &RunConfig) -> anyhow::Error {
    if matches!(error, CorpusError::Stopped) {
        return Interrupted.into();
    }
    let remedy = error.remedy().map(str::to_owned);
    let hint = remedy.unwrap_or_else(|| match (&error, run.model.reads_images()) {
        (CorpusError::Unfit { .. }, _) => UNFIT.to_owned(),
        (_, true) => "this run reads images: give a .images file, which pathswarm prepare writes".to_owned(),
        (_, false) if run.text.format != TextFormat::Text => {
            format!("give JSON lines or Parquet of the run's own text.format, \"{}\"", run.text.format.name())
        }
        (_, false) => format!("give text files, or JSON objects or Parquet with a \"{}\" field", run.text.column),
    });
    Mistake::new(with_causes(&error.into())).hint(hint).into()
}

/// What to do about files that cannot be read.
pub const UNFIT: &str = "mend or remove these files, or go on without them: --skip-unreadable";

/// Tells what was left out: people on standard error, programs in an event for each reason.
fn tell(left_out: &LeftOut, output: Output) -> std::io::Result<()> {
    if !output.is_json() {
        return left_out.lines().iter().try_for_each(|line| output.complain(line));
    }
    left_out.tallies().try_for_each(|(reason, tally)| {
        let first: Vec<String> = tally.first.iter().map(Place::to_string).collect();
        output.json(&json!({ "event": "left-out", "reason": reason.name(), "count": tally.count, "first": first }))
    })
}
