//! How well a collected run predicts text: the ancestor and the paths, each document on the path it is routed to.

use std::collections::BTreeMap;

use super::collected::Collected;
use super::collected::network::Network;
use crate::config::DeviceChoice;
use crate::names::PathId;
use crate::text::{Corpus, TokenSet};
use crate::training::{Score, evaluate};

/// The scores of one path's documents, or of those of one domain among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathScore {
    /// The path.
    pub path: PathId,
    /// The number of their domain, if the text says so.
    pub domain: Option<u32>,
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
            Some(set) => sets.push(Documents { path, domain: None, set }),
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

/// Some of one path's documents.
struct Documents {
    path: PathId,
    domain: Option<u32>,
    set: TokenSet,
}

/// The scores on other text: for each path those of each domain, in order, those of none first, if there are any.
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
    // Every path is told of, also one that gets nothing.
    let none = collected.grid().paths().map(|path| ((path, None), Vec::new()));
    let mut sequences: BTreeMap<(PathId, Option<u32>), Vec<usize>> = none.collect();
    for (document, (range, path)) in ranges.iter().zip(&routes).enumerate() {
        sequences.entry((*path, corpus.domains.of(document))).or_default().extend(range.clone());
    }
    let of = |((path, domain), sequences): (_, Vec<usize>)| Documents { path, domain, set: set.subset(&sequences) };
    let sets: Vec<_> = sequences.into_iter().map(of).collect();
    score(collected, &mut network, &sets)
}

fn score(collected: &Collected, network: &mut Network<'_>, sets: &[Documents]) -> anyhow::Result<Vec<PathScore>> {
    let config = &collected.manifest().config;
    let prefix = config.routing.prefix_tokens;
    let token_bytes = collected.tokenizer().token_bytes_for(config.model.vocabulary);
    let mut scores = Vec::with_capacity(sets.len());
    for Documents { path, domain, set } in sets {
        let ancestor = evaluate(network.ancestor()?, set, prefix, &token_bytes, &mut || {})?;
        let (path, domain, documents) = (*path, *domain, set.documents().len());
        scores.push(PathScore { path, domain, documents, ancestor, dipaco: Score::default() });
    }
    for (score, Documents { path, set, .. }) in scores.iter_mut().zip(sets) {
        if !set.is_empty() {
            score.dipaco = evaluate(network.path(*path)?, set, prefix, &token_bytes, &mut || {})?;
        }
    }
    if scores.iter().all(|score| score.dipaco.tokens == 0) {
        return Err(ScoringError::TooShort(prefix).into());
    }
    Ok(scores)
}

/// How well paths and domains agree, 0 to 1: their mutual information over tokens, divided by the mean of their
/// entropies. Nothing if there is but one path or one domain with any.
pub fn agreement(scores: &[PathScore]) -> Option<f64> {
    let mut together: BTreeMap<(PathId, u32), f64> = BTreeMap::new();
    for score in scores {
        let Some(domain) = score.domain else { continue };
        *together.entry((score.path, domain)).or_default() += score.dipaco.tokens as f64;
    }
    let all: f64 = together.values().sum();
    let (mut paths, mut domains): (BTreeMap<PathId, f64>, BTreeMap<u32, f64>) = Default::default();
    for ((path, domain), tokens) in &together {
        *paths.entry(*path).or_default() += tokens;
        *domains.entry(*domain).or_default() += tokens;
    }
    let entropy = |counts: &mut dyn Iterator<Item = f64>| -> f64 {
        counts.filter(|count| *count > 0.0).map(|count| -(count / all) * (count / all).ln()).sum()
    };
    let (of_paths, of_domains) = (entropy(&mut paths.values().copied()), entropy(&mut domains.values().copied()));
    let shared = of_paths + of_domains - entropy(&mut together.values().copied());
    (of_paths > 0.0 && of_domains > 0.0).then(|| (2.0 * shared / (of_paths + of_domains)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of path and domain.
    fn scores(tokens: &[(u32, Option<u32>, u64)]) -> Vec<PathScore> {
        let score = |(path, domain, tokens): &(u32, Option<u32>, u64)| PathScore {
            path: PathId(*path),
            domain: *domain,
            documents: 1,
            ancestor: Score::default(),
            dipaco: Score { nats: 1.0, tokens: *tokens, bytes: 1 },
        };
        tokens.iter().map(score).collect()
    }

    #[test]
    fn paths_that_are_domains_agree_with_them_wholly_and_paths_by_chance_not_at_all() {
        let same = scores(&[(0, Some(1), 50), (1, Some(0), 20), (2, Some(2), 30), (2, None, 99)]);
        assert!((agreement(&same).unwrap() - 1.0).abs() < 1e-12);
        let chance = scores(&[(0, Some(0), 30), (0, Some(1), 60), (1, Some(0), 10), (1, Some(1), 20)]);
        assert!(agreement(&chance).unwrap() < 1e-12);
        // As scikit-learn's normalized_mutual_info_score([0, 0, 0, 1], [0, 0, 1, 1]) says.
        let some = scores(&[(0, Some(0), 2), (0, Some(1), 1), (1, Some(1), 1)]);
        assert!((agreement(&some).unwrap() - 0.343_711_0).abs() < 1e-6);
        assert_eq!(agreement(&scores(&[(0, Some(0), 3), (1, Some(0), 4)])), None);
        assert_eq!(agreement(&scores(&[(0, None, 3), (1, None, 4)])), None);
    }
}
