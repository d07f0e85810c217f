//! Sequences of token ids within one document, with the first tokens of that document.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::ids::{Ids, IdsWriter};
use super::learnt::LearntBits;

/// Sequences of one document each. The functions that make a set differ in how they cut documents. A final piece of one
/// token is dropped, since it has nothing to predict.
///
/// The ids are in memory or in a file, and derived sets share them: a set itself only has positions.
///
/// The router sees the first tokens of the *document* for each of its sequences. They are the beginning of the
/// document's first sequence, also in a [`TokenSet::subset`] without that sequence.
///
/// In a set with a mask, only some tokens are learnt and scored.
#[derive(Clone, Debug, Default)]
pub struct TokenSet {
    pub(super) ids: Arc<Ids>,
    /// Which ids are learnt; `None` if all are.
    pub(super) learnt: Option<Arc<LearntBits>>,
    pub(super) sequences: Vec<Sequence>,
    pub(super) documents: Vec<Document>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    start: usize,
    pub(super) length: u32,
    /// Index in `documents`.
    document: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) number: u32,
    head_start: usize,
    head_length: u32,
    first_sequence: usize,
}

impl TokenSet {
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Number of tokens of all sequences.
    pub fn tokens(&self) -> u64 {
        self.sequences.iter().map(|sequence| u64::from(sequence.length)).sum()
    }

    /// The tokens of sequence `i`.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn sequence(&self, i: usize) -> &[u32] {
        let sequence = self.sequences[i];
        &self.ids[sequence.start..sequence.start + sequence.length as usize]
    }

    /// Whether only some tokens are learnt.
    pub fn is_masked(&self) -> bool {
        self.learnt.is_some()
    }

    /// Whether the token at a position of sequence `i` is learnt and scored.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn is_learnt(&self, i: usize, position: usize) -> bool {
        let start = self.sequences[i].start;
        self.learnt.as_ref().is_none_or(|bits| bits.get(start + position))
    }

    /// The number of the document of sequence `i`.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn document(&self, i: usize) -> u32 {
        self.documents[self.sequences[i].document as usize].number
    }

    /// Whether sequence `i` is the beginning of its document, with the prefix that chose the path.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn begins_document(&self, i: usize) -> bool {
        let sequence = self.sequences[i];
        let document = self.documents[sequence.document as usize];
        document.first_sequence == i && sequence.start == document.head_start
    }

    /// The first `count` tokens of the document of sequence `i`, or fewer if the document or `context` is shorter.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn prefix(&self, i: usize, count: usize) -> &[u32] {
        let document = self.documents[self.sequences[i].document as usize];
        &self.ids[document.head_start..][..count.min(document.head_length as usize)]
    }

    /// The range of sequences of each document in turn.
    pub fn documents(&self) -> impl ExactSizeIterator<Item = Range<usize>> + '_ {
        let ends = self.documents.iter().skip(1).map(|document| document.first_sequence).chain([self.len()]);
        let starts = self.documents.iter().map(|document| document.first_sequence);
        let ranges: Vec<Range<usize>> = starts.zip(ends).map(|(start, end)| start..end).collect();
        ranges.into_iter()
    }

    /// The tokens of consecutive sequences, one after the other. Overlaps are repeated.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn span(&self, sequences: Range<usize>) -> Vec<u32> {
        sequences.flat_map(|sequence| self.sequence(sequence)).copied().collect()
    }

    /// These sequences, in this order. Documents keep their numbers and their first tokens.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn subset(&self, sequences: &[usize]) -> Self {
        let mut set = Self { ids: self.ids.clone(), learnt: self.learnt.clone(), ..Self::default() };
        let mut previous = None;
        for i in sequences {
            let Sequence { start, length, document } = self.sequences[*i];
            if previous != Some(document) {
                let Document { number, head_start, head_length, .. } = self.documents[document as usize];
                set.begin_document(number, (head_start, head_length));
            }
            previous = Some(document);
            set.push_sequence((start, length));
        }
        set
    }

    /// The documents of several sets, one set after the other, with their ids written to `ids`.
    pub fn joined(sets: &[Self], ids: IdsWriter) -> io::Result<Self> {
        let mut joined = Building::new(ids, Self::bits_in_order(sets));
        for (set, mut document) in sets.iter().flat_map(|set| set.documents().map(move |document| (set, document))) {
            joined.begin_document(set.document(document.start), set.missing_head(document.start))?;
            document.try_for_each(|sequence| joined.push_sequence(set.sequence(sequence)))?;
        }
        joined.finish()
    }

    /// The bits of the ids of several sets as [`TokenSet::joined`] has them; `None` if no set has a mask. First tokens that
    /// stand for themselves are not learnt.
    pub(super) fn bits_in_order(sets: &[Self]) -> Option<LearntBits> {
        if !sets.iter().any(Self::is_masked) {
            return None;
        }
        let mut bits = LearntBits::default();
        for (set, document) in sets.iter().flat_map(|set| set.documents().map(move |document| (set, document))) {
            bits.push_run(false, set.missing_head(document.start).len());
            for sequence in document {
                (0..set.sequence(sequence).len()).for_each(|at| bits.push(set.is_learnt(sequence, at)));
            }
        }
        Some(bits)
    }

    /// A document's first tokens, if its first sequence in this set does not begin with them.
    pub(super) fn missing_head(&self, sequence: usize) -> &[u32] {
        if self.begins_document(sequence) { &[] } else { self.prefix(sequence, usize::MAX) }
    }

    pub(super) fn begin_document(&mut self, number: u32, (head_start, head_length): (usize, u32)) {
        self.documents.push(Document { number, head_start, head_length, first_sequence: self.sequences.len() });
    }

    pub(super) fn push_sequence(&mut self, (start, length): (usize, u32)) {
        let document = (self.documents.len() - 1) as u32;
        self.sequences.push(Sequence { start, length, document });
    }
}

/// Sets are equal if they cut the same documents alike, wherever their ids are.
impl PartialEq for TokenSet {
    fn eq(&self, other: &Self) -> bool {
        let documents = |set: &Self| set.documents.iter().map(|of| (of.number, of.first_sequence)).collect::<Vec<_>>();
        let alike = |i: usize| {
            let of = |set: &Self| (set.sequences[i].document, set.begins_document(i));
            of(self) == of(other)
                && self.sequence(i) == other.sequence(i)
                && self.prefix(i, usize::MAX) == other.prefix(i, usize::MAX)
                && (0..self.sequence(i).len()).all(|at| self.is_learnt(i, at) == other.is_learnt(i, at))
        };
        documents(self) == documents(other) && self.len() == other.len() && (0..self.len()).all(alike)
    }
}

impl Eq for TokenSet {}

/// A set that is built sequence by sequence.
pub(super) struct Building {
    ids: IdsWriter,
    set: TokenSet,
}

impl Building {
    /// Writes its ids to `ids`. The bits say which of them are learnt.
    pub(super) fn new(ids: IdsWriter, learnt: Option<LearntBits>) -> Self {
        Self { ids, set: TokenSet { learnt: learnt.map(Arc::new), ..TokenSet::default() } }
    }

    /// Whether one of the next ids is learnt.
    pub(super) fn learns_of_next(&self, count: usize) -> bool {
        let next = self.ids.count();
        self.set.learnt.as_ref().is_some_and(|bits| (next..next + count).any(|at| bits.get(at)))
    }

    /// Begins the next document. `head` has its first tokens, if its first sequence here does not.
    pub(super) fn begin_document(&mut self, number: u32, head: &[u32]) -> io::Result<()> {
        self.set.begin_document(number, (self.ids.count(), head.len() as u32));
        self.ids.push(head)
    }

    /// Adds the next sequence of the present document.
    pub(super) fn push_sequence(&mut self, tokens: &[u32]) -> io::Result<()> {
        if let Some(document) = self.set.documents.last_mut().filter(|document| document.head_length == 0) {
            document.head_length = tokens.len() as u32;
        }
        self.set.push_sequence((self.ids.count(), tokens.len() as u32));
        self.ids.push(tokens)
    }

    pub(super) fn finish(self) -> io::Result<TokenSet> {
        Ok(TokenSet { ids: Arc::new(self.ids.finish()?), ..self.set })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set() -> TokenSet {
        TokenSet::cut_for_scoring(&[vec![1, 2, 3, 4, 5, 6, 7], vec![9], vec![10, 11, 12, 13, 14], vec![15, 16]], 3)
    }

    #[test]
    fn no_sequence_spans_two_documents_and_a_lone_last_token_is_dropped() {
        let set = set();
        let sequences: Vec<&[u32]> = (0..set.len()).map(|i| set.sequence(i)).collect();
        assert_eq!(sequences, [&[1, 2, 3, 4][..], &[4, 5, 6, 7], &[10, 11, 12, 13], &[13, 14], &[15, 16]]);
        assert_eq!((0..5).map(|i| set.document(i)).collect::<Vec<_>>(), [0, 0, 2, 2, 3]);
        assert_eq!(set.tokens(), 16);
        assert_eq!(set.documents().collect::<Vec<_>>(), [0..2, 2..4, 4..5]);
        assert_eq!(set.span(0..2), [1, 2, 3, 4, 4, 5, 6, 7]);
        assert!(Arc::ptr_eq(&set.ids, &set.subset(&[1, 3]).ids), "ids are not copied");
    }

    #[test]
    fn for_scoring_every_token_but_a_documents_first_is_a_target_once() {
        let set = TokenSet::cut_for_scoring(&[(0..9).collect(), vec![9], (10..14).collect(), (20..26).collect()], 4);
        let sequences: Vec<&[u32]> = (0..set.len()).map(|i| set.sequence(i)).collect();
        let expected = [&[0, 1, 2, 3, 4][..], &[4, 5, 6, 7, 8], &[10, 11, 12, 13], &[20, 21, 22, 23, 24], &[24, 25]];
        assert_eq!(sequences, expected);
        let begins: Vec<bool> = (0..set.len()).map(|i| set.begins_document(i)).collect();
        assert_eq!(begins, [true, false, true, true, false]);
        assert!(!set.subset(&[1]).begins_document(0));
        assert_eq!(TokenSet::decode(&set.encode(), 26, 5).unwrap(), set);
    }

    #[test]
    fn the_prefix_is_the_documents_even_where_its_first_sequence_is_missing() {
        let set = set();
        assert_eq!(set.prefix(1, 3), [1, 2, 3]);
        assert_eq!(set.prefix(4, 3), [15, 16]);
        let later = set.subset(&[4, 1]);
        assert_eq!(later.len(), 2);
        assert_eq!((later.sequence(1), later.document(1)), (&[4, 5, 6, 7][..], 0));
        assert_eq!(later.prefix(1, 3), [1, 2, 3]);
        assert_eq!(later.tokens(), 6);
        let again = TokenSet::decode(&later.encode(), 20, 4).unwrap();
        assert_eq!(again, later);
        assert_eq!(again.subset(&[1]).prefix(0, 9), [1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn what_was_cut_comes_back(
            documents in prop::collection::vec(prop::collection::vec(0u32..300, 0..40), 0..12),
            context in 2usize..12,
            picks in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let set = TokenSet::cut_for_scoring(&documents, context - 1);
            prop_assert_eq!(&TokenSet::decode(&set.encode(), 300, context).unwrap(), &set);
            if !set.is_empty() {
                let picks: Vec<usize> = picks.iter().map(|pick| pick.index(set.len())).collect();
                let subset = set.subset(&picks);
                for (position, pick) in picks.iter().enumerate() {
                    prop_assert_eq!(subset.sequence(position), set.sequence(*pick));
                    prop_assert_eq!(subset.prefix(position, 5), set.prefix(*pick, 5));
                    prop_assert_eq!(subset.document(position), set.document(*pick));
                }
                prop_assert_eq!(&TokenSet::decode(&subset.encode(), 300, context).unwrap(), &subset);
            }
        }
    }
}
