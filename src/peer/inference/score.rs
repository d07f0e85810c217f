//! Scores of a run on text: the ancestor and the paths, each document on its path, or each window of a document on the
//! path chosen by the tokens before it.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::names::PathId;
use crate::peer::inference::client::InferenceClient;
use crate::query::{QueriedModel, TokenSpan};
use crate::text::{Corpus, TokenSet, Window, windows};
use crate::training::Score;

/// The scores on the documents of one path, or of one of its domains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathScore {
    pub path: PathId,
    /// The number of the domain, if known.
    pub domain: Option<u32>,
    /// Documents that begin on the path.
    pub documents: usize,
    /// Those of them of which a token is scored.
    pub scored: usize,
    /// Of the ancestor on the path's text.
    pub ancestor: Score,
    /// Of the path on its text.
    pub dipaco: Score,
    /// Number of images whose class the path finds likeliest, if available.
    pub right: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum ScoringError {
    #[error("{place} does not hold the test text of {paths}: {reason}")]
    NoText { place: String, paths: String, reason: &'static str },
    #[error("there is nothing to score: no document of this text is longer than the {0} tokens that choose its path")]
    TooShort(usize),
}

/// Some documents.
struct Documents {
    set: TokenSet,
    /// The path of each document, by its first tokens.
    routes: Vec<PathId>,
    domains: Vec<Option<u32>>,
}

/// The scores on the run's own test text. With `every`, the path is chosen again after so many tokens.
///
/// # Errors
/// If a part of the text or of a path is missing.
pub fn score_test_text(client: &mut dyn InferenceClient, every: Option<usize>) -> anyhow::Result<Vec<PathScore>> {
    let mut texts = Vec::new();
    let mut missing = Vec::new();
    for path in client.config().grid()?.paths() {
        match client.test_text(path)? {
            Some(set) => {
                let (count, prefix) = (set.documents().len(), client.config().routing.prefix_tokens);
                // After resharding, the file of a text does not tell its path.
                let routes = match client.config().router_module() {
                    Some(_) if count > 0 => {
                        let prefixes = set.documents().map(|sequences| set.prefix(sequences.start, prefix));
                        client.routes(&prefixes.collect::<Vec<_>>())?
                    }
                    _ => vec![path; count],
                };
                texts.push(Documents { set, routes, domains: vec![None; count] });
            }
            None => missing.push(format!("path {path}")),
        }
    }
    if !missing.is_empty() {
        let reason = if client.shares_text() { "no peer had it" } else { "the run does not share its text" };
        return Err(ScoringError::NoText { place: client.place(), paths: missing.join(", "), reason }.into());
    }
    score(client, &texts, every)
}

/// The scores on other text: for each path those of each domain, in order, first without a domain, if any. With
/// `every`, the path is chosen again after so many tokens.
///
/// # Errors
/// If a path has no state, or no token of the text is scored.
pub fn score_corpus(
    client: &mut dyn InferenceClient,
    corpus: &Corpus,
    every: Option<usize>,
) -> anyhow::Result<Vec<PathScore>> {
    let documents = corpus.tokenized(client.tokenizer())?;
    let (context, prefix) = (client.config().model.context, client.config().routing.prefix_tokens);
    let set = documents.cut_for_scoring(context);
    let prefixes: Vec<&[u32]> = set.documents().map(|sequences| set.prefix(sequences.start, prefix)).collect();
    let routes = client.routes(&prefixes)?;
    let number = |sequences: Range<usize>| corpus.domains.of(set.document(sequences.start) as usize);
    let domains = set.documents().map(number).collect();
    score(client, &[Documents { set, routes, domains }], every)
}

/// The text that one path reads of one domain.
#[derive(Default)]
struct Group {
    documents: usize,
    scored: usize,
    pieces: Vec<TokenSpan>,
    /// Text, sequence and end of the last piece.
    last: Option<(usize, usize, usize)>,
    tokens: u64,
    bytes: u64,
}

impl Group {
    /// Adds tokens of a sequence, with all tokens before them there as context. Adjacent pieces are merged.
    fn add(&mut self, place: (usize, usize), sequence: &[u32], counted: Range<usize>, token_bytes: &[u32]) {
        let (text, number) = place;
        self.tokens += counted.len() as u64;
        let bytes = sequence[counted.clone()].iter().map(|token| token_bytes.get(*token as usize).copied());
        self.bytes += bytes.map(|bytes| u64::from(bytes.unwrap_or_default())).sum::<u64>();
        match self.pieces.last_mut() {
            Some(piece) if self.last == Some((text, number, counted.start)) => {
                piece.tokens.extend_from_slice(&sequence[counted.clone()]);
            }
            _ => {
                let tokens = sequence[..counted.end].to_vec();
                self.pieces.push(TokenSpan { tokens, from: counted.start as u32 });
            }
        }
        self.last = Some((text, number, counted.end));
    }

    fn score(&self, nats: &[f64]) -> Score {
        Score { nats: nats.iter().sum(), tokens: self.tokens, bytes: self.bytes }
    }
}

fn score(
    client: &mut dyn InferenceClient,
    texts: &[Documents],
    every: Option<usize>,
) -> anyhow::Result<Vec<PathScore>> {
    let (starts, grid) = (client.config().starts(), client.config().grid()?);
    let token_bytes = client.tokenizer().token_bytes_for(&client.config().model);
    // Every path is listed, even without text.
    let mut groups: BTreeMap<(PathId, Option<u32>), Group> =
        grid.paths().map(|path| ((path, None), Group::default())).collect();
    for (number, text) in texts.iter().enumerate() {
        for (route, domain) in text.routes.iter().zip(&text.domains) {
            groups.entry((*route, *domain)).or_default().documents += 1;
        }
        let windows = windows(&text.set, starts, every.unwrap_or(usize::MAX));
        let paths = paths_of(client, text, &windows)?;
        for (window, path) in windows.iter().zip(paths) {
            let domain = text.domains[window.document];
            groups.entry((text.routes[window.document], domain)).or_default().scored += usize::from(window.first);
            let group = groups.entry((path, domain)).or_default();
            for (sequence, counted) in &window.pieces {
                group.add((number, *sequence), text.set.sequence(*sequence), counted.clone(), &token_bytes);
            }
        }
    }
    let read: Vec<_> = groups.iter().filter(|(_, group)| !group.pieces.is_empty()).collect();
    if read.is_empty() {
        return Err(ScoringError::TooShort(starts.of_document.max(starts.of_sequence)).into());
    }
    let reading = |player: &dyn Fn(PathId) -> QueriedModel| -> Vec<(QueriedModel, &[TokenSpan])> {
        read.iter().map(|((path, _), group)| (player(*path), &group.pieces[..])).collect()
    };
    let ancestor = client.nats(&reading(&|_| QueriedModel::Ancestor))?;
    let dipaco = client.nats(&reading(&QueriedModel::Path))?;
    let right = match client.config().model.reads_images() {
        true => client.right(&read.iter().map(|((path, _), group)| (*path, &group.pieces[..])).collect::<Vec<_>>())?,
        false => None,
    };
    let (told, mut right) = (right.is_some(), right.into_iter().flatten());
    let mut nats = ancestor.into_iter().zip(dipaco);
    let score = |((path, domain), group): (&(PathId, Option<u32>), &Group)| {
        let unread = group.pieces.is_empty();
        let (ancestor, dipaco) = if unread { None } else { nats.next() }.unwrap_or_default();
        let right = told.then(|| if unread { None } else { right.next() }.unwrap_or_default());
        let (ancestor, dipaco) = (group.score(&ancestor), group.score(&dipaco));
        PathScore {
            path: *path,
            domain: *domain,
            documents: group.documents,
            scored: group.scored,
            ancestor,
            dipaco,
            right,
        }
    };
    Ok(groups.iter().map(score).collect())
}

/// The path of each window: for a document's first, the document's path; for others, by the tokens before it.
fn paths_of(client: &mut dyn InferenceClient, text: &Documents, windows: &[Window]) -> anyhow::Result<Vec<PathId>> {
    let reach = client.reach();
    let ranges: Vec<Range<usize>> = text.set.documents().collect();
    let last = |window: &Window| last_before(&text.set, &ranges[window.document], window.beginning(), reach);
    let before: Vec<(PathId, Vec<u32>)> = windows
        .iter()
        .filter(|window| !window.first)
        .map(|window| (text.routes[window.document], last(window)))
        .collect();
    let mut chosen = match before.is_empty() {
        true => Vec::new(),
        false => client.routes_on(&before.iter().map(|(own, last)| (*own, last.as_slice())).collect::<Vec<_>>())?,
    }
    .into_iter();
    let path = |window: &Window| {
        let route = text.routes[window.document];
        if window.first { route } else { chosen.next().unwrap_or(route) }
    };
    Ok(windows.iter().map(path).collect())
}

/// The last tokens of a document before a position in one of its sequences, each of which begins with the last token of
/// the one before.
fn last_before(set: &TokenSet, document: &Range<usize>, place: (usize, usize), count: usize) -> Vec<u32> {
    let (sequence, at) = place;
    let mut tokens = set.sequence(sequence)[..at].to_vec();
    for earlier in (document.start..sequence).rev() {
        if tokens.len() >= count {
            break;
        }
        let own = set.sequence(earlier);
        tokens.splice(0..0, own[..own.len() - 1].iter().copied());
    }
    tokens.split_off(tokens.len().saturating_sub(count))
}

/// Agreement of paths and domains, 0 to 1: their mutual information over tokens, divided by the mean of their
/// entropies. `None` with only one path or one domain.
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
    use crate::config::Starts;

    /// Scores with these tokens by path and domain.
    fn scores(tokens: &[(u32, Option<u32>, u64)]) -> Vec<PathScore> {
        let score = |(path, domain, tokens): &(u32, Option<u32>, u64)| PathScore {
            path: PathId(*path),
            domain: *domain,
            documents: 1,
            scored: 1,
            ancestor: Score::default(),
            dipaco: Score { nats: 1.0, tokens: *tokens, bytes: 1 },
            right: None,
        };
        tokens.iter().map(score).collect()
    }

    #[test]
    fn what_chose_a_window_is_what_stands_before_it_also_across_sequences() {
        let document: Vec<u32> = (0..30).collect();
        let set = TokenSet::cut_for_scoring(&[document.clone(), document.clone()], 8);
        let ranges: Vec<Range<usize>> = set.documents().collect();
        for window in windows(&set, Starts { of_document: 3, of_sequence: 0 }, 4).iter().filter(|window| !window.first)
        {
            let (sequence, at) = window.beginning();
            let first = set.sequence(sequence)[at] as usize;
            for count in [1, 3, 12, 40] {
                let found = last_before(&set, &ranges[window.document], (sequence, at), count);
                assert_eq!(found, document[first.saturating_sub(count)..first], "{count} before {first}");
            }
        }
    }

    #[test]
    fn windows_that_follow_each_other_on_one_path_are_read_at_once() {
        let sequence: Vec<u32> = (0..20).collect();
        let mut group = Group::default();
        for (place, counted) in [((0, 1), 4..8), ((0, 1), 8..10), ((0, 1), 14..20), ((0, 2), 1..4)] {
            group.add(place, &sequence, counted, &[2; 20]);
        }
        let pieces: Vec<_> = group.pieces.iter().map(|piece| (piece.from, piece.tokens.len())).collect();
        assert_eq!(pieces, [(4, 10), (14, 20), (1, 4)]);
        assert_eq!((group.tokens, group.bytes), (15, 30));
    }

    #[test]
    fn paths_that_are_domains_agree_with_them_wholly_and_paths_by_chance_not_at_all() {
        let same = scores(&[(0, Some(1), 50), (1, Some(0), 20), (2, Some(2), 30), (2, None, 99)]);
        assert!((agreement(&same).unwrap() - 1.0).abs() < 1e-12);
        let chance = scores(&[(0, Some(0), 30), (0, Some(1), 60), (1, Some(0), 10), (1, Some(1), 20)]);
        assert!(agreement(&chance).unwrap() < 1e-12);
        // As scikit-learn's normalized_mutual_info_score([0, 0, 0, 1], [0, 0, 1, 1]).
        let some = scores(&[(0, Some(0), 2), (0, Some(1), 1), (1, Some(1), 1)]);
        assert!((agreement(&some).unwrap() - 0.343_711_0).abs() < 1e-6);
        assert_eq!(agreement(&scores(&[(0, Some(0), 3), (1, Some(0), 4)])), None);
        assert_eq!(agreement(&scores(&[(0, None, 3), (1, None, 4)])), None);
    }
}
