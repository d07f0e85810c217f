//! Scoring a trained arm: the test text on its paths, in all and by domain, and with only earlier tokens in view, as a
//! language model is used.

use std::collections::BTreeMap;

use rand::RngExt;

use crate::experiment::dataset::Documents;
use crate::experiment::results::outcome::Honest;
use crate::model::PathModel;
use crate::seed::Seed;
use crate::text::TokenSet;
use crate::text::corpus::Domains;
use crate::training::{EvaluateError, Score, Sequences, target_losses};

/// Sequences that are scored only from a given token on.
pub struct From<'a> {
    pub set: &'a TokenSet,
    /// The first scored token.
    pub first: usize,
}

impl Sequences for From<'_> {
    fn len(&self) -> usize {
        self.set.len()
    }

    fn sequence(&self, index: usize) -> &[u32] {
        self.set.sequence(index)
    }

    fn begins_document(&self, index: usize) -> bool {
        self.set.begins_document(index)
    }

    fn targets(&self, index: usize, first: usize) -> Vec<(usize, u32)> {
        Sequences::targets(self.set, index, first.max(self.first))
    }
}

/// Sequences cut off after one token, the only target, so that no network can see later tokens.
pub struct CutOff<'a> {
    set: &'a TokenSet,
    /// Pairs of a sequence and a token of it.
    positions: Vec<(usize, usize)>,
}

impl<'a> CutOff<'a> {
    /// At random positions among the scored ones, by a seed; at all of them if they are fewer.
    pub fn sample(set: &'a From<'_>, prefix: usize, count: usize, seed: Seed) -> CutOff<'a> {
        let mut positions: Vec<(usize, usize)> = Vec::new();
        for index in 0..set.len() {
            let first = if set.begins_document(index) { prefix.max(1) } else { 1 };
            positions.extend(set.targets(index, first).into_iter().map(|(before, _)| (index, before + 1)));
        }
        let mut generator = seed.generator();
        let taken = count.min(positions.len());
        for at in 0..taken {
            let other = generator.random_range(at..positions.len());
            positions.swap(at, other);
        }
        positions.truncate(taken);
        positions.sort_unstable();
        CutOff { set: set.set, positions }
    }
}

impl Sequences for CutOff<'_> {
    fn len(&self) -> usize {
        self.positions.len()
    }

    fn sequence(&self, index: usize) -> &[u32] {
        let (sequence, token) = self.positions[index];
        &self.set.sequence(sequence)[..=token]
    }

    fn targets(&self, index: usize, _first: usize) -> Vec<(usize, u32)> {
        let (sequence, token) = self.positions[index];
        vec![(token - 1, self.set.sequence(sequence)[token])]
    }
}

/// Scores of documents' sequences, summed by each document's domain: `domains` has the domains by document number.
pub fn by_domain(documents: &Documents, scores: &[Score], domains: &Domains, sums: &mut BTreeMap<u32, Score>) {
    for range in documents.sequences() {
        if let Some(domain) = domains.of(documents.set.document(range.start) as usize) {
            let own: Score = scores[range.clone()].iter().copied().sum();
            let sum = sums.entry(domain).or_default();
            *sum = *sum + own;
        }
    }
}

/// The losses of a network on the tokens at some positions, as in training and cut off after each of them.
pub fn cut_off(
    model: &PathModel,
    set: &From<'_>,
    cut: &CutOff<'_>,
    prefix: usize,
    token_bytes: &[u32],
) -> Result<Honest, EvaluateError> {
    let (whole, alone) = (target_losses(model, set, prefix, &mut || {})?, target_losses(model, cut, 1, &mut || {})?);
    let (mut as_trained, mut honest) = (Score::default(), Score::default());
    for ((sequence, token), loss) in cut.positions.iter().zip(alone) {
        let bytes = u64::from(token_bytes[set.sequence(*sequence)[*token] as usize]);
        let score = |loss: f32| Score { nats: f64::from(loss), tokens: 1, bytes };
        // Later targets are as many in both, wherever scoring begins.
        let later = set.targets(*sequence, token + 1).len();
        let of_all = whole[*sequence].iter().rev().nth(later);
        as_trained = as_trained + of_all.map_or_else(Score::default, |loss| score(*loss));
        honest = honest + loss.first().map_or_else(Score::default, |loss| score(*loss));
    }
    Ok(Honest { as_trained: as_trained.into(), honest: honest.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> TokenSet {
        TokenSet::cut_for_scoring(&[(0..23).collect::<Vec<u32>>(), (0..9).collect(), vec![1, 2]], 8)
    }

    #[test]
    fn no_sequence_counts_before_the_token_from_which_all_do() {
        let set = set();
        let from = From { set: &set, first: 5 };
        for index in 0..set.len() {
            let (own, all) = (from.targets(index, 1), Sequences::targets(&set, index, 1));
            assert_eq!(own, all.into_iter().filter(|(before, _)| before + 1 >= 5).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_cut_off_ends_with_the_token_that_is_to_be_predicted() {
        let set = set();
        let from = From { set: &set, first: 2 };
        let cut = CutOff::sample(&from, 3, 7, Seed::root(1));
        assert_eq!(cut.len(), 7);
        assert!(cut.positions.is_sorted());
        for (index, (sequence, token)) in cut.positions.iter().enumerate() {
            assert_eq!(cut.sequence(index), &set.sequence(*sequence)[..=*token]);
            assert_eq!(cut.targets(index, 1), [(token - 1, set.sequence(*sequence)[*token])]);
            assert!(*token >= if set.begins_document(*sequence) { 3 } else { 2 });
        }
        let all = CutOff::sample(&from, 3, 1000, Seed::root(1));
        let counted = |index: usize| from.targets(index, if set.begins_document(index) { 3 } else { 1 }).len();
        assert_eq!(all.len(), (0..set.len()).map(counted).sum::<usize>());
        assert_ne!(CutOff::sample(&from, 3, 7, Seed::root(2)).positions, cut.positions);
    }
}
