//! What each path reads: the words that its test text has more often than that of the other paths, and beginnings of
//! its documents.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::names::PathId;
use crate::peer::Collected;
use crate::peer::collected::CollectedError;
use crate::report::html::clipped;
use crate::text::TokenSet;

/// Paths that are described.
pub(super) const MOST_PATHS: usize = 64;
/// Documents of a path whose words are counted.
const MOST_DOCUMENTS: usize = 400;
const MOST_WORDS: usize = 12;
const MOST_EXAMPLES: usize = 2;
/// A rarer word says nothing about a path.
const LEAST_COUNT: u64 = 3;
/// How many times as often as in all text a word has to be there.
const LEAST_TIMES: f64 = 1.2;
/// Characters of an example.
const EXAMPLE: usize = 280;

/// A word that is typical of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TypicalWord {
    pub(super) word: String,
    /// How many times as often it is there as in the text of all paths.
    pub(super) times: f64,
}

/// What a path reads.
#[derive(Clone, Debug, Default)]
pub(super) struct PathReads {
    pub(super) path: u32,
    /// Training sequences.
    pub(super) sequences: u64,
    /// Test documents.
    pub(super) documents: usize,
    /// The most typical first.
    pub(super) words: Vec<TypicalWord>,
    /// Beginnings of documents that have many of these words.
    pub(super) examples: Vec<String>,
}

/// All paths, and how many are left out.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    pub(super) paths: Vec<PathReads>,
    pub(super) left_out: usize,
    /// Whether the texts are there.
    pub(super) has_text: bool,
}

/// Reads a collected run.
///
/// # Errors
/// If a file of it is damaged.
pub(super) fn read(collected: &Collected) -> Result<Reads, CollectedError> {
    let reads_text = !collected.manifest.config.model.reads_images();
    let (mut paths, mut texts) = (Vec::new(), Vec::new());
    for path in collected.grid.paths().take(MOST_PATHS) {
        let sequences = collected.manifest.shard(path).sequences;
        let test = if reads_text { collected.test_text(path)? } else { None };
        let texts_of_path = test.as_ref().map_or_else(Vec::new, |set| documents(collected, set));
        let documents = test.as_ref().map_or(0, |set| set.documents().len());
        let PathId(path) = path;
        paths.push(PathReads { path, sequences, documents, ..PathReads::default() });
        texts.push(texts_of_path);
    }
    let has_text = texts.iter().any(|texts| !texts.is_empty());
    for (reads, (words, examples)) in paths.iter_mut().zip(typical(&texts)) {
        (reads.words, reads.examples) = (words, examples);
    }
    let left_out = (collected.grid.path_count() as usize).saturating_sub(paths.len());
    Ok(Reads { paths, left_out, has_text })
}

/// The first documents of a set, as text.
fn documents(collected: &Collected, set: &TokenSet) -> Vec<String> {
    let text = |range: Range<usize>| {
        // Each sequence of a document but its first begins with the last token of the one before.
        let new = |index: usize| {
            if index == range.start { set.sequence(index) } else { set.sequence(index).get(1..).unwrap_or_default() }
        };
        let ids: Vec<u32> = range.clone().flat_map(new).copied().collect();
        collected.tokenizer.decode(&ids)
    };
    set.documents().take(MOST_DOCUMENTS).map(text).collect()
}

/// Words of at least three letters, in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    let pieces = text.split(|character: char| !character.is_alphanumeric());
    pieces
        .filter(|word| (3..=40).contains(&word.chars().count()) && word.chars().any(char::is_alphabetic))
        .map(str::to_lowercase)
}

/// Typical words and examples of each path, given the documents of each.
fn typical(paths: &[Vec<String>]) -> Vec<(Vec<TypicalWord>, Vec<String>)> {
    let counted: Vec<BTreeMap<String, u64>> = paths.iter().map(|documents| count(documents)).collect();
    let mut all: HashMap<&str, u64> = HashMap::new();
    for (word, count) in counted.iter().flatten() {
        *all.entry(word).or_default() += count;
    }
    let in_all = all.values().sum::<u64>().max(1) as f64;
    let of_path = |(counts, documents): (&BTreeMap<String, u64>, &Vec<String>)| {
        let of_path = counts.values().sum::<u64>().max(1) as f64;
        let times = |word: &str, count: u64| (count as f64 / of_path) / (all[word] as f64 / in_all);
        let frequent = counts.iter().filter(|(_, count)| **count >= LEAST_COUNT);
        // What the word adds to the divergence of the path's words from those of all.
        let mut scored: Vec<(f64, &str, f64)> = frequent
            .map(|(word, count)| (times(word, *count), word, *count))
            .map(|(times, word, count)| (count as f64 * times.ln(), word.as_str(), times))
            .filter(|(_, _, times)| *times >= LEAST_TIMES)
            .collect();
        scored.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
        scored.truncate(MOST_WORDS);
        let typical: HashSet<&str> = scored.iter().map(|(_, word, _)| *word).collect();
        let examples = examples(documents, &typical);
        let word = |(_, word, times): &(f64, &str, f64)| TypicalWord { word: (*word).to_owned(), times: *times };
        (scored.iter().map(word).collect(), examples)
    };
    counted.iter().zip(paths).map(of_path).collect()
}

fn count(documents: &[String]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for word in documents.iter().flat_map(|document| words(document)) {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

/// The beginnings that have most typical words.
fn examples(documents: &[String], typical: &HashSet<&str>) -> Vec<String> {
    let mut beginnings: Vec<(usize, String)> = documents
        .iter()
        .map(|document| clipped(document.trim(), EXAMPLE))
        .filter(|beginning| !beginning.is_empty())
        .map(|beginning| (words(&beginning).filter(|word| typical.contains(word.as_str())).count(), beginning))
        .collect();
    // Stable: of equals, the first document.
    beginnings.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    beginnings.into_iter().take(MOST_EXAMPLES).map(|(_, beginning)| beginning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_path_are_those_that_others_have_more_seldom() {
        let of = |words: &str, times: usize| vec![words.to_owned(); times];
        let paths = [of("the river and the boat", 4), of("the oven and the bread", 4)];
        let found = typical(&paths);
        let words: Vec<Vec<&str>> =
            found.iter().map(|(words, _)| words.iter().map(|word| word.word.as_str()).collect()).collect();
        assert_eq!(words, [["boat", "river"], ["bread", "oven"]]);
        assert!((found[0].0[0].times - 2.0).abs() < 1e-9, "all of them are in one of two equal halves");
    }

    #[test]
    fn examples_are_the_beginnings_with_most_of_these_words() {
        let documents = ["nothing of it", "a boat", "boat on boat on boat"].map(str::to_owned);
        assert_eq!(examples(&documents, &HashSet::from(["boat"])), ["boat on boat on boat", "a boat"]);
    }

    #[test]
    fn a_word_that_is_rare_or_nowhere_else_missing_is_no_word_of_a_path() {
        let paths = [vec!["once twice twice".to_owned()], Vec::new()];
        assert!(typical(&paths).iter().all(|(words, _)| words.is_empty()));
    }
}
