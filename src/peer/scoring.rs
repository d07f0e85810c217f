//! How well a collected run predicts text: the ancestor and the paths, each document on the path it is routed to.

use super::collected::Collected;
use super::collected::network::Network;
use crate::config::DeviceChoice;
use crate::names::PathId;
use crate::text::{Corpus, TokenSet};
use crate::training::{Score, evaluate};

/// The scores of one path's documents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathScore {
    /// The path.
    pub path: PathId,
    /// Documents routed to it.
    pub documents: usize,
    /// Of the ancestor on them.
    pub ancestor: Score,
    /// Of the path on them.
    pub dipaco: Score,
}

/// Why a run could not be scored on this text.
#[derive(Debug, thiserror::Error)]
pub enum ScoringError {
    /// The folder has no test text.
    #[error("{folder} does not hold the test text of {paths}: {reason}")]
    NoText {
        /// The folder.
        folder: String,
        /// Of which paths.
        paths: String,
        /// Why.
        reason: &'static str,
    },
    /// Every document is all prefix.
    #[error("nothing in this text counts: no document is longer than the {0} tokens that choose its path")]
    TooShort(usize),
}

/// The scores on the run's own test text.
///
/// # Errors
/// If the folder does not hold all of it, or a path cannot be played.
pub fn score_test_text(collected: &Collected, device: DeviceChoice) -> anyhow::Result<Vec<PathScore>> {
    let mut sets = Vec::new();
    let mut missing = Vec::new();
    for path in collected.grid().paths() {
        match collected.test_text(path)? {
            Some(set) => sets.push((path, set)),
            None => missing.push(format!("path {path}")),
        }
    }
    if !missing.is_empty() {
        let shared = collected.manifest().share_text;
        let reason =
            if shared { "nobody had it when the run was collected" } else { "the run does not share its text" };
        let folder = collected.folder().display().to_string();
        return Err(ScoringError::NoText { folder, paths: missing.join(", "), reason }.into());
    }
    score(collected, &mut Network::new(collected, device)?, &sets)
}

/// The scores on other text.
///
/// # Errors
/// If a path cannot be played, or nothing of the text counts.
pub fn score_corpus(collected: &Collected, corpus: &Corpus, device: DeviceChoice) -> anyhow::Result<Vec<PathScore>> {
    let mut network = Network::new(collected, device)?;
    let config = &collected.manifest().config;
    let documents = collected.tokenizer().encode_all(&corpus.documents)?;
    let set = TokenSet::cut_for_scoring(&documents, config.model.context);
    let ranges: Vec<_> = set.documents().collect();
    let prefixes: Vec<&[u32]> =
        ranges.iter().map(|sequences| set.prefix(sequences.start, config.routing.prefix_tokens)).collect();
    let routes = network.routes(&prefixes)?;
    let of = |path: PathId| {
        let own = ranges.iter().zip(&routes).filter(|(_, route)| **route == path);
        own.flat_map(|(sequences, _)| sequences.clone()).collect::<Vec<usize>>()
    };
    let sets: Vec<_> = collected.grid().paths().map(|path| (path, set.subset(&of(path)))).collect();
    score(collected, &mut network, &sets)
}

fn score(
    collected: &Collected,
    network: &mut Network<'_>,
    sets: &[(PathId, TokenSet)],
) -> anyhow::Result<Vec<PathScore>> {
    let config = &collected.manifest().config;
    let prefix = config.routing.prefix_tokens;
    let token_bytes = collected.tokenizer().token_bytes_for(config.model.vocabulary);
    let mut scores = Vec::with_capacity(sets.len());
    for (path, set) in sets {
        let ancestor = evaluate(network.ancestor()?, set, prefix, &token_bytes, &mut || {})?;
        scores.push(PathScore { path: *path, documents: set.documents().len(), ancestor, dipaco: Score::default() });
    }
    for (score, (path, set)) in scores.iter_mut().zip(sets) {
        if !set.is_empty() {
            score.dipaco = evaluate(network.path(*path)?, set, prefix, &token_bytes, &mut || {})?;
        }
    }
    if scores.iter().all(|score| score.dipaco.tokens == 0) {
        return Err(ScoringError::TooShort(prefix).into());
    }
    Ok(scores)
}
