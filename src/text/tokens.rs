//! Sequences of token ids, none spanning two documents, with the first tokens of each one's document beside it.

use std::ops::Range;

/// Sequences of one document each. How a document is cut depends on the purpose: see the functions that make a set. A
/// last piece of one token is dropped, since there is nothing to predict in it.
///
/// The router sees the first tokens of a *document*, whichever of its sequences is asked about. They are the
/// beginning of the document's first sequence; a [`TokenSet::subset`] without that sequence carries a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSet {
    /// Of every document in turn: the copy of its head, if any, then its sequences.
    pub(super) tokens: Vec<u32>,
    pub(super) sequences: Vec<Sequence>,
    pub(super) documents: Vec<Document>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    start: usize,
    pub(super) length: u32,
    /// Position in `documents`.
    document: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) number: u32,
    /// How many tokens of a copied head lie before the first sequence.
    pub(super) copied: u32,
    head_start: usize,
    head_length: u32,
    first_sequence: usize,
}

impl TokenSet {
    /// Cuts documents, which already have their end, into sequences of at most `context` tokens (2 or more), for
    /// training. Documents are numbered by their position.
    pub fn cut(documents: &[Vec<u32>], context: usize) -> Self {
        let context = context.max(2);
        Self::windows(documents, context, context)
    }

    /// Cuts documents for scoring: at most `context + 1` tokens a sequence, each beginning with the last token of the
    /// one before, so that every token of a document but its first is a target once. A model of this context takes all
    /// but the last token of a sequence in.
    pub fn cut_for_scoring(documents: &[Vec<u32>], context: usize) -> Self {
        let context = context.max(1);
        Self::windows(documents, context + 1, context)
    }

    /// Cuts documents for training: as many sequences as [`TokenSet::cut_for_scoring`] makes, but of equal length,
    /// `context + 1` tokens, spread evenly over their document so that neighbours overlap. A document that is shorter is
    /// one sequence. No place of a batch is wasted on what a document's end leaves over.
    pub fn cut_for_training(documents: &[Vec<u32>], context: usize) -> Self {
        let context = context.max(1);
        Self::cut_at(documents, context + 1, |length| {
            let count = length.saturating_sub(1).div_ceil(context);
            let room = length.saturating_sub(context + 1);
            (0..count).map(move |index| if count < 2 { 0 } else { room * index / (count - 1) })
        })
    }

    fn windows(documents: &[Vec<u32>], longest: usize, stride: usize) -> Self {
        Self::cut_at(documents, longest, |length| (0..length.saturating_sub(1)).step_by(stride))
    }

    /// Sequences of at most `longest` tokens from the places that a document's length leads to, the first being 0.
    fn cut_at<I: Iterator<Item = usize>>(documents: &[Vec<u32>], longest: usize, starts: impl Fn(usize) -> I) -> Self {
        let mut set = Self::default();
        for (number, tokens) in documents.iter().enumerate() {
            for start in starts(tokens.len()) {
                if start == 0 {
                    set.begin_document(number as u32, &[]);
                }
                set.push_sequence(&tokens[start..tokens.len().min(start + longest)]);
            }
        }
        set
    }

    /// How many sequences.
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Whether there is no sequence.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// How many tokens all sequences have together.
    pub fn tokens(&self) -> u64 {
        self.sequences.iter().map(|sequence| u64::from(sequence.length)).sum()
    }

    /// The tokens of sequence `i`.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn sequence(&self, i: usize) -> &[u32] {
        let sequence = self.sequences[i];
        &self.tokens[sequence.start..sequence.start + sequence.length as usize]
    }

    /// The number of the document that sequence `i` is from.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn document(&self, i: usize) -> u32 {
        self.documents[self.sequences[i].document as usize].number
    }

    /// Whether sequence `i` is the beginning of its document: only there does the prefix that chose the path stand.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn begins_document(&self, i: usize) -> bool {
        let sequence = self.sequences[i];
        sequence.start == self.documents[sequence.document as usize].head_start
    }

    /// The first `count` tokens of the document that sequence `i` is from; fewer if the document, or `context`, is
    /// shorter.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn prefix(&self, i: usize, count: usize) -> &[u32] {
        let document = self.documents[self.sequences[i].document as usize];
        &self.tokens[document.head_start..][..count.min(document.head_length as usize)]
    }

    /// For each document in turn, the range of its sequences.
    pub fn documents(&self) -> impl ExactSizeIterator<Item = Range<usize>> + '_ {
        let ends = self.documents.iter().skip(1).map(|document| document.first_sequence).chain([self.len()]);
        let starts = self.documents.iter().map(|document| document.first_sequence);
        let ranges: Vec<Range<usize>> = starts.zip(ends).map(|(start, end)| start..end).collect();
        ranges.into_iter()
    }

    /// The tokens of neighbouring sequences of one document, one after the other.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn span(&self, sequences: Range<usize>) -> &[u32] {
        if sequences.is_empty() {
            return &[];
        }
        let last = self.sequences[sequences.end - 1];
        &self.tokens[self.sequences[sequences.start].start..last.start + last.length as usize]
    }

    /// These sequences, in this order. Documents keep their numbers and their first tokens.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn subset(&self, sequences: &[usize]) -> Self {
        let mut set = Self::default();
        let mut previous = None;
        for i in sequences {
            let position = self.sequences[*i].document;
            if previous != Some(position) {
                let document = self.documents[position as usize];
                let head = if self.begins_document(*i) { &[] } else { self.prefix(*i, usize::MAX) };
                set.begin_document(document.number, head);
            }
            previous = Some(position);
            set.push_sequence(self.sequence(*i));
        }
        set
    }

    /// The documents of several sets, one set after the other.
    pub fn joined(sets: &[Self]) -> Self {
        let mut joined = Self::default();
        for (set, document) in sets.iter().flat_map(|set| set.documents().map(move |document| (set, document))) {
            let of = set.documents[set.sequences[document.start].document as usize];
            let head = if of.copied > 0 { set.prefix(document.start, usize::MAX) } else { &[] };
            joined.begin_document(of.number, head);
            document.for_each(|sequence| joined.push_sequence(set.sequence(sequence)));
        }
        joined
    }

    pub(super) fn begin_document(&mut self, number: u32, head: &[u32]) {
        let length = head.len() as u32;
        let (head_start, first_sequence) = (self.tokens.len(), self.sequences.len());
        self.tokens.extend_from_slice(head);
        self.documents.push(Document { number, copied: length, head_start, head_length: length, first_sequence });
    }

    pub(super) fn push_sequence(&mut self, tokens: &[u32]) {
        let (position, length) = (self.documents.len() - 1, tokens.len() as u32);
        let document = &mut self.documents[position];
        if document.head_length == 0 {
            document.head_length = length;
        }
        self.sequences.push(Sequence { start: self.tokens.len(), length, document: position as u32 });
        self.tokens.extend_from_slice(tokens);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set() -> TokenSet {
        TokenSet::cut(&[vec![1, 2, 3, 4, 5, 6, 7], vec![9], vec![10, 11, 12, 13, 14], vec![15, 16]], 4)
    }

    #[test]
    fn no_sequence_spans_two_documents_and_a_lone_last_token_is_dropped() {
        let set = set();
        let sequences: Vec<&[u32]> = (0..set.len()).map(|i| set.sequence(i)).collect();
        assert_eq!(sequences, [&[1, 2, 3, 4][..], &[5, 6, 7], &[10, 11, 12, 13], &[15, 16]]);
        assert_eq!((0..4).map(|i| set.document(i)).collect::<Vec<_>>(), [0, 0, 2, 3]);
        assert_eq!(set.tokens(), 13);
        assert_eq!(set.documents().collect::<Vec<_>>(), [0..2, 2..3, 3..4]);
        assert_eq!(set.span(0..2), [1, 2, 3, 4, 5, 6, 7]);
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
    fn for_training_sequences_are_full_and_spread_over_their_document() {
        let set = TokenSet::cut_for_training(&[(0..10).collect(), (0..3).collect(), vec![9], (0..5).collect()], 4);
        let sequences: Vec<&[u32]> = (0..set.len()).map(|i| set.sequence(i)).collect();
        let expected = [&[0, 1, 2, 3, 4][..], &[2, 3, 4, 5, 6], &[5, 6, 7, 8, 9], &[0, 1, 2], &[0, 1, 2, 3, 4]];
        assert_eq!(sequences, expected);
        assert_eq!(set.documents().collect::<Vec<_>>(), [0..3, 3..4, 4..5]);
    }

    #[test]
    fn the_prefix_is_the_documents_even_where_its_first_sequence_is_missing() {
        let set = set();
        assert_eq!(set.prefix(1, 3), [1, 2, 3]);
        assert_eq!(set.prefix(3, 3), [15, 16]);
        let later = set.subset(&[3, 1]);
        assert_eq!(later.len(), 2);
        assert_eq!((later.sequence(1), later.document(1)), (&[5, 6, 7][..], 0));
        assert_eq!(later.prefix(1, 3), [1, 2, 3]);
        assert_eq!(later.tokens(), 5);
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
            let set = TokenSet::cut(&documents, context);
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
