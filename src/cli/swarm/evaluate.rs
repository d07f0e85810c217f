//! `pathswarm evaluate`: perplexity and bits per byte of a collected run.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::mistake::{Mistake, OrMistake};
use super::output::Output;
use super::{Globals, collected_run};
use crate::model::set_threads;
use crate::peer::scoring::{PathScore, ScoringError, score_corpus, score_test_text};
use crate::text::{CorpusSource, read_corpus};
use crate::training::Score;

/// `pathswarm evaluate`
#[derive(Args)]
pub struct Evaluate {
    /// A collected run.
    folder: PathBuf,
    /// Text to score: files, folders, JSON lines, Parquet, as for `found --corpus`; without it, the run's own test text.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    text: Vec<PathBuf>,
}

impl Evaluate {
    /// # Errors
    /// If the folder is not a whole collected run, or the text cannot be read.
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let machine = globals.machine_only()?;
        let collected = collected_run::open(&self.folder)?;
        set_threads(machine.threads);
        let scores = if self.text.is_empty() {
            score_test_text(&collected, machine.device)
        } else {
            let source = CorpusSource::Paths(self.text);
            let corpus = read_corpus(&source, &collected.manifest().config.text)
                .or_mistake("give files, folders, or JSON lines with a \"text\" field")?;
            score_corpus(&collected, &corpus, machine.device)
        };
        let scores = scores.map_err(|error| match error.downcast::<ScoringError>() {
            Ok(error) => Mistake::new(error).hint("give text with --text FILE").into(),
            Err(other) => collected_run::explain(other),
        })?;
        print(globals.output(), &scores)
    }
}

fn print(output: Output, scores: &[PathScore]) -> anyhow::Result<()> {
    output.text(&format!("{:>6}  {:>9}  {:>9}  {:>19}  {:>19}", "", "", "", "ancestor", "DiPaCo"))?;
    output.text(&format!(
        "{:>6}  {:>9}  {:>9}  {:>10} {:>8}  {:>10} {:>8}",
        "path", "documents", "tokens", "perplexity", "bits/B", "perplexity", "bits/B"
    ))?;
    for score in scores {
        line(output, &score.path.to_string(), score)?;
        let mut value = measures(score);
        value["event"] = json!("path");
        value["path"] = json!(score.path);
        output.json(&value)?;
    }
    let total = total(scores);
    line(output, "all", &total)?;
    let mut value = measures(&total);
    value["event"] = json!("result");
    output.json(&value)?;
    Ok(())
}

fn line(output: Output, name: &str, score: &PathScore) -> std::io::Result<()> {
    let PathScore { documents, ancestor, dipaco, .. } = score;
    let measure = |score: &Score| match score.tokens {
        0 => format!("{:>10} {:>8}", "-", "-"),
        _ => format!("{:>10.2} {:>8.4}", score.perplexity(), score.bits_per_byte()),
    };
    let (before, after) = (measure(ancestor), measure(dipaco));
    output.text(&format!("{name:>6}  {documents:>9}  {:>9}  {before}  {after}", dipaco.tokens))
}

fn measures(score: &PathScore) -> Value {
    let of = |score: &Score| json!({ "perplexity": score.perplexity(), "bits_per_byte": score.bits_per_byte() });
    json!({
        "documents": score.documents, "tokens": score.dipaco.tokens, "bytes": score.dipaco.bytes,
        "ancestor": of(&score.ancestor), "dipaco": of(&score.dipaco),
    })
}

/// Of all documents, each on its own path. The path's name means nothing here.
fn total(scores: &[PathScore]) -> PathScore {
    PathScore {
        path: crate::names::PathId(0),
        documents: scores.iter().map(|score| score.documents).sum(),
        ancestor: scores.iter().map(|score| score.ancestor).sum(),
        dipaco: scores.iter().map(|score| score.dipaco).sum(),
    }
}
