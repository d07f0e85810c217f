//! Whole documents as ids, and how they are cut into sequences.

use std::io;
use std::sync::Arc;

use super::ids::{Ids, IdsWriter};
use super::learnt::LearntBits;
use super::tokenizer::masked::MaskedIds;
use super::tokens::TokenSet;

/// Whole documents as ids, each with its end token, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Tokenized {
    ids: Arc<Ids>,
    /// Which ids are learnt; `None` if all are.
    learnt: Option<Arc<LearntBits>>,
    /// Number of ids of each document.
    lengths: Vec<u32>,
}

impl Tokenized {
    /// Documents whose ids, lengths and [runs](MaskedIds::runs) were written. Without runs, everything is learnt.
    pub fn written(ids: IdsWriter, lengths: IdsWriter, runs: IdsWriter) -> io::Result<Self> {
        let (lengths, runs) = (lengths.finish()?.to_vec(), runs.finish()?);
        Ok(Self { ids: Arc::new(ids.finish()?), learnt: learnt_of(&lengths, &runs).map(Arc::new), lengths })
    }

    /// Cuts documents for training: as many sequences as by [`Tokenized::cut_for_scoring`], but of equal length,
    /// `context + 1` tokens, spread evenly over the document so that neighbours overlap. So no remainder of a document
    /// wastes a place in a batch. A shorter document is one sequence. Documents are numbered by their position. A sequence
    /// of which nothing is learnt is left out.
    pub fn cut_for_training(&self, context: usize) -> TokenSet {
        let context = context.max(1);
        let teaches = |(start, length): (usize, u32)| match &self.learnt {
            None => true,
            // The first token is never predicted.
            Some(bits) => (start + 1..start + length as usize).any(|at| bits.get(at)),
        };
        self.cut_at(context + 1, teaches, |length| {
            let count = length.saturating_sub(1).div_ceil(context);
            let room = length.saturating_sub(context + 1);
            (0..count).map(move |index| if count < 2 { 0 } else { room * index / (count - 1) })
        })
    }

    /// Cuts documents for scoring: sequences of at most `context + 1` tokens, each beginning with the last token of the
    /// one before, so that every token of a document but the first is a target once. A model with this context reads
    /// all but the last token of a sequence.
    pub fn cut_for_scoring(&self, context: usize) -> TokenSet {
        let context = context.max(1);
        self.cut_at(context + 1, |_| true, |length| (0..length.saturating_sub(1)).step_by(context))
    }

    /// Those sequences that are wanted of at most `longest` tokens from starts that depend on the document's length; the
    /// first start is 0.
    fn cut_at<I: Iterator<Item = usize>>(
        &self,
        longest: usize,
        is_wanted: impl Fn((usize, u32)) -> bool,
        starts: impl Fn(usize) -> I,
    ) -> TokenSet {
        let mut set = TokenSet { ids: self.ids.clone(), learnt: self.learnt.clone(), ..TokenSet::default() };
        let mut begin = 0;
        for (number, length) in self.lengths.iter().map(|length| *length as usize).enumerate() {
            let sequence = |start| (begin + start, longest.min(length - start) as u32);
            for (wanted, at) in starts(length).map(sequence).filter(|at| is_wanted(*at)).enumerate() {
                if wanted == 0 {
                    set.begin_document(number as u32, sequence(0));
                }
                set.push_sequence(at);
            }
            begin += length;
        }
        set
    }
}

/// The bits of documents of these lengths; `None` without runs.
fn learnt_of(lengths: &[u32], runs: &[u32]) -> Option<LearntBits> {
    if runs.is_empty() {
        return None;
    }
    let (mut bits, mut runs) = (LearntBits::default(), runs.iter());
    for length in lengths {
        let (mut left, mut learnt) = (*length, false);
        while left > 0 {
            let run = runs.next().map_or(left, |run| left.min(*run));
            bits.push_run(learnt, run as usize);
            (left, learnt) = (left - run, !learnt);
        }
    }
    Some(bits)
}

impl TokenSet {
    /// See [`Tokenized::cut_for_scoring`].
    pub fn cut_for_scoring(documents: &[Vec<u32>], context: usize) -> Self {
        Tokenized::from(documents).cut_for_scoring(context)
    }
}

impl From<&[Vec<u32>]> for Tokenized {
    fn from(documents: &[Vec<u32>]) -> Self {
        let lengths = documents.iter().map(|document| document.len() as u32).collect();
        Self { ids: Arc::new(Ids::Own(documents.concat())), learnt: None, lengths }
    }
}

impl From<&[MaskedIds]> for Tokenized {
    fn from(documents: &[MaskedIds]) -> Self {
        let lengths: Vec<u32> = documents.iter().map(|document| document.ids.len() as u32).collect();
        let runs: Vec<u32> = documents.iter().flat_map(|document| &document.runs).copied().collect();
        let ids = documents.iter().flat_map(|document| &document.ids).copied().collect();
        Self { ids: Arc::new(Ids::Own(ids)), learnt: learnt_of(&lengths, &runs).map(Arc::new), lengths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_training_sequences_are_full_and_spread_over_their_document() {
        let documents = [(0..10).collect(), (0..3).collect(), vec![9], (0..5).collect()];
        let set = Tokenized::from(&documents[..]).cut_for_training(4);
        let sequences: Vec<&[u32]> = (0..set.len()).map(|i| set.sequence(i)).collect();
        let expected = [&[0, 1, 2, 3, 4][..], &[2, 3, 4, 5, 6], &[5, 6, 7, 8, 9], &[0, 1, 2], &[0, 1, 2, 3, 4]];
        assert_eq!(sequences, expected);
        assert_eq!(set.documents().collect::<Vec<_>>(), [0..3, 3..4, 4..5]);
    }

    /// Documents whose ids follow each other, of which those at some places are learnt.
    fn masked(documents: &[(usize, &[usize])]) -> Tokenized {
        let of = |(length, learnt): &(usize, &[usize])| {
            // A run for each id, with empty ones in between.
            let run = |at: usize| if learnt.contains(&at) { [0, 1] } else { [1, 0] };
            MaskedIds { ids: (0..*length as u32).collect(), runs: (0..*length).flat_map(run).collect() }
        };
        let mut documents: Vec<MaskedIds> = documents.iter().map(of).collect();
        documents.iter_mut().for_each(|document| _ = document.runs.pop_if(|run| *run == 0));
        Tokenized::from(&documents[..])
    }

    /// The learnt tokens of each sequence.
    fn learnt(set: &TokenSet) -> Vec<Vec<u32>> {
        let of = |i| set.sequence(i).iter().enumerate().filter(move |(at, _)| set.is_learnt(i, *at)).map(|(_, id)| *id);
        (0..set.len()).map(|i| of(i).collect()).collect()
    }

    #[test]
    fn a_long_conversation_is_cut_into_windows_and_those_without_an_answer_are_left_out() {
        let documents = masked(&[(13, &[6, 7, 12]), (5, &[0]), (4, &[2, 3])]);
        let set = documents.cut_for_training(4);
        let sequences: Vec<&[u32]> = (0..set.len()).map(|i| set.sequence(i)).collect();
        assert_eq!(sequences, [&[4, 5, 6, 7, 8][..], &[8, 9, 10, 11, 12], &[0, 1, 2, 3]]);
        assert_eq!(learnt(&set), [vec![6, 7], vec![12], vec![2, 3]]);
        assert_eq!((0..3).map(|i| set.document(i)).collect::<Vec<_>>(), [0, 0, 2]);
        assert_eq!((set.prefix(0, 3), set.prefix(1, 3)), (&[0, 1, 2][..], &[0, 1, 2][..]), "the document's own");
        assert_eq!((0..3).map(|i| set.begins_document(i)).collect::<Vec<_>>(), [false, false, true]);
        let scored = documents.cut_for_scoring(4);
        assert_eq!(learnt(&scored), [vec![], vec![6, 7], vec![12], vec![0], vec![2, 3]]);
    }

    #[test]
    fn a_mask_goes_where_its_tokens_go() {
        let set = masked(&[(13, &[6, 7, 12]), (4, &[2, 3])]).cut_for_training(4);
        let later = set.subset(&[2, 1]);
        assert_eq!(learnt(&later), [vec![2, 3], vec![12]]);
        for set in [&set, &later] {
            let again = TokenSet::decode(&set.encode(), 20, 5).unwrap();
            assert_eq!((&again, again.encode()), (set, set.encode()));
        }
        let plain = TokenSet::cut_for_scoring(&[vec![1, 2, 3]], 4);
        let joined = TokenSet::joined(&[later.clone(), plain, set.clone()], IdsWriter::in_memory()).unwrap();
        assert_eq!(learnt(&joined), [learnt(&later), vec![vec![1, 2, 3]], learnt(&set)].concat());
        assert_ne!(set, masked(&[(13, &[6, 12]), (4, &[2, 3])]).cut_for_training(4));
    }
}
