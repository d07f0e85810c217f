//! The text of an experiment: training documents, held-out documents for early stopping, and the slice on which only
//! routers are fitted. The document's hash decides, before any routing, so that all arms divide the text alike.

use std::ops::Range;

use crate::routing::DocumentKey;
use crate::text::TokenSet;
use crate::text::corpus::falls_within;

pub struct Dataset {
    pub train: Documents,
    pub held_out: Documents,
    /// The slice for fitting routers.
    pub slice: Documents,
    pub test: Documents,
    /// Bytes of text of each token.
    pub token_bytes: Vec<u32>,
}

/// Some documents, cut into sequences.
#[derive(Clone, Default)]
pub struct Documents {
    pub set: TokenSet,
    ranges: Vec<Range<usize>>,
}

impl Documents {
    /// All documents of a set.
    pub fn of(set: TokenSet) -> Self {
        let ranges = set.documents().collect();
        Self { set, ranges }
    }

    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// The sequences of each document.
    pub fn sequences(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// The first tokens of each document, by which it is routed.
    pub fn prefixes(&self, count: usize) -> Vec<&[u32]> {
        self.ranges.iter().map(|sequences| self.set.prefix(sequences.start, count)).collect()
    }

    /// Only these documents, in this order.
    pub fn only(&self, documents: impl IntoIterator<Item = usize>) -> Self {
        let sequences: Vec<usize> = documents.into_iter().flat_map(|document| self.ranges[document].clone()).collect();
        Self::of(self.set.subset(&sequences))
    }

    fn key(&self, document: usize) -> DocumentKey {
        DocumentKey::of(&self.set.span(self.ranges[document].clone()))
    }
}

/// Shares of the training text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    pub held_out: f64,
    pub slice: f64,
    /// The share of the rest that is trained on.
    pub train: f64,
}

impl Dataset {
    /// Divides the training text. Of documents with equal tokens, the first is taken.
    pub fn part(train: TokenSet, test: TokenSet, token_bytes: Vec<u32>, shares: Shares) -> Self {
        let all = Documents::of(train);
        let mut seen = std::collections::BTreeSet::new();
        let [mut train, mut held_out, mut slice] = [const { Vec::new() }; 3];
        for document in 0..all.count() {
            let key = all.key(document);
            if !seen.insert(key) {
                continue;
            }
            // Each choice uses another hash of the key.
            let falls = |purpose: &str, share| {
                let mut hasher = blake3::Hasher::new_derive_key(purpose);
                falls_within(hasher.update(&key.0).finalize().as_bytes(), share)
            };
            if falls("pathswarm experiment: slice", shares.slice) {
                slice.push(document);
            } else if falls_within(&key.0, shares.held_out) {
                held_out.push(document);
            } else if falls("pathswarm experiment: train", shares.train) {
                train.push(document);
            }
        }
        let [train, held_out, slice] = [train, held_out, slice].map(|documents| all.only(documents));
        Self { train, held_out, slice, test: Documents::of(test), token_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(shares: Shares) -> Dataset {
        let documents: Vec<Vec<u32>> = (0..400u32).map(|i| vec![i % 390, 1, 2, 3, 4, 5]).collect();
        let set = TokenSet::cut_for_scoring(&documents, 3);
        Dataset::part(set.clone(), set, vec![1; 400], shares)
    }

    fn firsts(documents: &Documents) -> Vec<u32> {
        documents.prefixes(1).iter().map(|prefix| prefix[0]).collect()
    }

    #[test]
    fn every_document_is_in_one_part_however_large_the_others_are() {
        let shares = Shares { held_out: 0.1, slice: 0.2, train: 1.0 };
        let whole = dataset(shares);
        let mut all = [&whole.train, &whole.held_out, &whole.slice].map(firsts).concat();
        all.sort_unstable();
        assert_eq!(all, (0..390).collect::<Vec<u32>>());
        assert!((20..60).contains(&whole.held_out.count()) && (50..110).contains(&whole.slice.count()));
        assert_eq!(whole.test.count(), 400);

        let half = dataset(Shares { train: 0.5, ..shares });
        assert_eq!(firsts(&half.held_out), firsts(&whole.held_out));
        assert_eq!(firsts(&half.slice), firsts(&whole.slice));
        let kept = firsts(&whole.train);
        assert!((120..200).contains(&half.train.count()) && firsts(&half.train).iter().all(|it| kept.contains(it)));
    }

    #[test]
    fn some_documents_keep_their_sequences_and_first_tokens() {
        let whole = dataset(Shares { held_out: 0.0, slice: 0.0, train: 1.0 });
        let two = whole.train.only([7, 3]);
        assert_eq!(firsts(&two), [7, 3]);
        assert_eq!(two.sequences(), [0..2, 2..4]);
        assert_eq!(two.set.sequence(1), whole.train.set.sequence(15));
    }
}
