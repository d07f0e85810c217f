//! `pathswarm evaluate`: perplexity and bits per byte of a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::swarm::Globals;
use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::model::source;
use crate::cli::swarm::model::source::Whom;
use crate::cli::swarm::output::Output;
use crate::cli::swarm::reading::{self, UnreadableFlag};
use crate::names::{PathId, PeerKey};
use crate::peer::inference::score::{PathScore, ScoringError, agreement, score_corpus, score_test_text};
use crate::text::Domains;
use crate::training::Score;

/// `pathswarm evaluate`
#[derive(Args)]
pub struct Evaluate {
    #[command(flatten)]
    whom: Whom,
    /// Text or prepared images to score, as for `create --corpus`; without it, the run's own test text.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    text: Vec<PathBuf>,
    #[command(flatten)]
    unreadable: UnreadableFlag,
}

impl Evaluate {
    pub fn run(mut self, globals: &Globals) -> anyhow::Result<()> {
        self.whom.take_address_from(&mut self.text);
        let mut client = self.whom.open(globals)?;
        let every = self.whom.route_every();
        let (scores, domains, unscored) = if self.text.is_empty() {
            (score_test_text(&mut *client, every).map_err(explain)?, Domains::default(), None)
        } else {
            let source = self.unreadable.source(self.text);
            let corpus = reading::read(&source, client.config(), &AtomicBool::new(false), globals.output())?;
            let scores = score_corpus(&mut *client, &corpus, every).map_err(explain)?;
            let scored: u64 = scores.iter().map(|score| score.scored as u64).sum();
            let unscored = corpus.survey.documents - scored;
            (scores, corpus.domains, Some((unscored, corpus.survey.documents)))
        };
        if let Some((unscored, documents)) = unscored.filter(|(unscored, _)| *unscored > 0) {
            let starts = client.config().starts();
            let least = starts.of_document.max(starts.of_sequence);
            globals.output().complain(&format!(
                "not scored: {unscored} of {documents} documents, which are not longer than the {least} tokens that \
                 choose a path"
            ))?;
        }
        if client.config().model.looks_ahead() {
            globals.output().text(
                "The routing of this network sees the whole sequence, including the tokens that it predicts, as in \
                 training.",
            )?;
        }
        print(globals.output(), &scores, (&domains, unscored), &client.answered())?;
        source::answered(&*client).map_or(Ok(()), |line| globals.output().text(&line))?;
        Ok(())
    }
}

fn explain(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<ScoringError>() {
        Ok(error @ ScoringError::TooShort(_)) => Mistake::new(error).hint("give longer text with --text FILE").into(),
        Ok(error) => Mistake::new(error).hint("give text with --text FILE").into(),
        Err(other) => source::explain(other),
    }
}

fn print(
    output: Output,
    scores: &[PathScore],
    (domains, unscored): (&Domains, Option<(u64, u64)>),
    peers: &[PeerKey],
) -> anyhow::Result<()> {
    let total = sum(scores.iter());
    let mut paths: Vec<PathId> = scores.iter().map(|score| score.path).collect();
    paths.dedup();
    heading(output, "path", &total)?;
    for path in paths {
        let score = sum(scores.iter().filter(|score| score.path == path));
        line(output, &path.to_string(), &score, &total)?;
        let mut value = measures(&score, &total);
        value["event"] = json!("path");
        value["path"] = json!(path);
        output.json(&value)?;
    }
    line(output, "all", &total, &total)?;
    let mut value = measures(&total, &total);
    value["event"] = json!("result");
    value["peers"] = json!(peers);
    if let Some((unscored, _)) = unscored {
        value["unscored_documents"] = json!(unscored);
    }
    if domains.names().next().is_some() {
        let agreement = agreement(scores);
        print_domains(output, scores, domains, &total)?;
        if let Some(agreement) = agreement {
            output.text(&format!("agreement of paths with domains: {agreement:.3} (0: none, 1: whole)"))?;
        }
        value["agreement"] = json!(agreement);
    }
    output.json(&value)?;
    Ok(())
}

/// The same text by domain; routing did not use domains.
fn print_domains(output: Output, scores: &[PathScore], domains: &Domains, total: &Sum) -> anyhow::Result<()> {
    output.text("")?;
    heading(output, "domain", total)?;
    for (name, number) in domains.names() {
        let own = || scores.iter().filter(|score| score.domain == Some(number));
        let score = sum(own());
        line(output, name, &score, total)?;
        let mut value = measures(&score, total);
        value["event"] = json!("domain");
        value["domain"] = json!(name);
        let on_path = own().map(|own| (own.path.to_string(), share(own.dipaco.tokens, score.dipaco.tokens)));
        value["path_shares"] = json!(on_path.collect::<BTreeMap<_, _>>());
        output.json(&value)?;
    }
    Ok(())
}

fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}

fn heading(output: Output, what: &str, total: &Sum) -> std::io::Result<()> {
    let (empty, measure) = ("", "perplexity");
    let right = if total.right.is_some() { "   right" } else { "" };
    output.text(&format!("{empty:>12}  {empty:>9}  {empty:>9}  {empty:>6}  {:>19}  {:>19}", "ancestor", "DiPaCo"))?;
    output.text(&format!(
        "{what:>12}  {:>9}  {:>9}  {:>6}  {measure:>10} {:>8}  {measure:>10} {:>8}{right}",
        "documents", "tokens", "share", "bits/B", "bits/B"
    ))
}

fn line(output: Output, name: &str, score: &Sum, total: &Sum) -> std::io::Result<()> {
    let Sum { documents, ancestor, dipaco, right } = score;
    let measure = |score: &Score| {
        let perplexity = score.perplexity().map(|perplexity| format!("{perplexity:.2}"));
        let bits = score.bits_per_byte().map(|bits| format!("{bits:.4}"));
        let [perplexity, bits] = [perplexity, bits].map(|measured| measured.unwrap_or_else(|| "-".to_owned()));
        format!("{perplexity:>10} {bits:>8}")
    };
    let (before, after) = (measure(ancestor), measure(dipaco));
    let right = right.map_or_else(String::new, |right| format!("  {:>5.1}%", 100.0 * share(right, dipaco.tokens)));
    let share = 100.0 * share(dipaco.tokens, total.dipaco.tokens);
    output.text(&format!("{name:>12}  {documents:>9}  {:>9}  {share:>5.1}%  {before}  {after}{right}", dipaco.tokens))
}

fn measures(score: &Sum, total: &Sum) -> Value {
    let of = |score: &Score| json!({ "perplexity": score.perplexity(), "bits_per_byte": score.bits_per_byte() });
    let mut value = json!({
        "documents": score.documents, "tokens": score.dipaco.tokens, "bytes": score.dipaco.bytes,
        "token_share": share(score.dipaco.tokens, total.dipaco.tokens),
        "ancestor": of(&score.ancestor), "dipaco": of(&score.dipaco),
    });
    if let Some(right) = score.right {
        value["right"] = json!(right);
    }
    value
}

/// The scores of some documents, each on its own path.
struct Sum {
    documents: usize,
    ancestor: Score,
    dipaco: Score,
    /// Images with the right class.
    right: Option<u64>,
}

fn sum<'a>(scores: impl Iterator<Item = &'a PathScore> + Clone) -> Sum {
    Sum {
        documents: scores.clone().map(|score| score.documents).sum(),
        ancestor: scores.clone().map(|score| score.ancestor).sum(),
        dipaco: scores.clone().map(|score| score.dipaco).sum(),
        right: scores.map(|score| score.right).sum(),
    }
}
