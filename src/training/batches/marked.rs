//! Sequences with marked places at which a network predicts a path, to train and to query a transducer (DiPaCo,
//! supplement 7.2.2).

use crate::text::{TokenSet, Window};
use crate::training::batches::Sequences;

/// Sequences with a path as target after some of their tokens.
pub struct Marked<'a> {
    set: &'a TokenSet,
    /// The marked sequences, each with pairs of token position and target.
    marks: Vec<(usize, Vec<(usize, u32)>)>,
}

impl<'a> Marked<'a> {
    /// Marks the beginnings of windows. `targets` returns the paths of a window, by its number, with repetition as
    /// weight. For inference, any targets will do.
    pub fn at(set: &'a TokenSet, windows: &[Window], targets: &dyn Fn(usize) -> Vec<u32>) -> Self {
        let mut marks: Vec<(usize, Vec<(usize, u32)>)> = Vec::new();
        for (number, window) in windows.iter().enumerate() {
            let (sequence, begin) = window.beginning();
            if marks.last().is_none_or(|(last, _)| *last != sequence) {
                marks.push((sequence, Vec::new()));
            }
            let targets = targets(number).into_iter().map(|path| (begin - 1, path));
            marks.last_mut().into_iter().for_each(|(_, marks)| marks.extend(targets.clone()));
        }
        Self { set, marks }
    }

    /// Marks one place in each sequence, before its last token.
    pub fn at_ends(set: &'a TokenSet) -> Self {
        let end = |sequence| (sequence, vec![(set.sequence(sequence).len() - 2, 0)]);
        Self { set, marks: (0..set.len()).map(end).collect() }
    }
}

impl Sequences for Marked<'_> {
    fn len(&self) -> usize {
        self.marks.len()
    }

    fn sequence(&self, index: usize) -> &[u32] {
        self.set.sequence(self.marks[index].0)
    }

    fn targets(&self, index: usize, _first: usize) -> Vec<(usize, u32)> {
        self.marks[index].1.clone()
    }
}
