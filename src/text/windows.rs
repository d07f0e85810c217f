//! Documents in windows, each of which may be read on another path (DiPaCo, section 2.4.3).

use std::ops::Range;

use super::tokens::TokenSet;
use crate::config::Starts;

/// Some tokens of a document that are read on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Index of its document.
    pub document: usize,
    /// Whether it is the first of its document, which is read on the document's path.
    pub first: bool,
    /// Sequences and ranges of its tokens that are scored.
    pub pieces: Vec<(usize, Range<usize>)>,
}

impl Window {
    /// The sequence in which the window begins, and the number of tokens before it there: everything that may be used
    /// to choose its path.
    pub fn beginning(&self) -> (usize, usize) {
        self.pieces.first().map_or((0, 0), |(sequence, tokens)| (*sequence, tokens.start))
    }
}

/// The windows of a set that is [cut for scoring](TokenSet::cut_for_scoring), in order, each with `every` scored
/// tokens. A document's last window may be shorter.
pub fn windows(set: &TokenSet, starts: Starts, every: usize) -> Vec<Window> {
    let mut found: Vec<Window> = Vec::new();
    for (document, sequences) in set.documents().enumerate() {
        let mut room = 0;
        let mut first = true;
        for sequence in sequences {
            let length = set.sequence(sequence).len();
            let first_of = if set.begins_document(sequence) { starts.of_document } else { 1 };
            let mut at = first_of.max(starts.of_sequence).max(1);
            while at < length {
                if !set.is_learnt(sequence, at) {
                    at += 1;
                    continue;
                }
                if room == 0 {
                    found.push(Window { document, first, pieces: Vec::new() });
                    (room, first) = (every.max(1), false);
                }
                let end = length.min(at.saturating_add(room));
                let end = (at + 1..end).find(|next| !set.is_learnt(sequence, *next)).unwrap_or(end);
                if let Some(window) = found.last_mut() {
                    window.pieces.push((sequence, at..end));
                }
                room -= end - at;
                at = end;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Tokenized;
    use crate::text::tokenizer::masked::MaskedIds;

    #[test]
    fn windows_hold_every_token_after_the_prefix_once() {
        let documents: Vec<Vec<u32>> = [3, 4, 23, 9].iter().map(|length| (0..*length).collect()).collect();
        let set = TokenSet::cut_for_scoring(&documents, 8);
        let found = windows(&set, Starts { of_document: 3, of_sequence: 0 }, 4);
        let tokens = |window: &Window| -> Vec<u32> {
            window.pieces.iter().flat_map(|(at, range)| set.sequence(*at)[range.clone()].to_vec()).collect()
        };
        let all: Vec<(usize, bool, Vec<u32>)> =
            found.iter().map(|window| (window.document, window.first, tokens(window))).collect();
        assert_eq!(all[0], (1, true, vec![3]));
        assert_eq!(all[1], (2, true, vec![3, 4, 5, 6]));
        assert_eq!(all[2], (2, false, vec![7, 8, 9, 10]));
        assert_eq!(found[2].pieces.len(), 2, "across two sequences");
        assert_eq!(found[2].beginning(), (found[1].pieces[0].0, 7));
        assert_eq!(all[5], (2, false, vec![19, 20, 21, 22]));
        assert_eq!(all[6..], [(3, true, vec![3, 4, 5, 6]), (3, false, vec![7, 8])]);
    }

    #[test]
    fn what_is_not_learnt_is_in_no_window() {
        let document = MaskedIds { ids: (0..12).collect(), runs: vec![2, 2, 3, 5] };
        let set = Tokenized::from(&[document][..]).cut_for_scoring(8);
        let found = windows(&set, Starts { of_document: 3, of_sequence: 0 }, 3);
        let pieces: Vec<_> = found.iter().map(|window| window.pieces.clone()).collect();
        assert_eq!(pieces, [vec![(0, 3..4), (0, 7..9)], vec![(1, 1..4)]]);
    }

    #[test]
    fn what_a_network_may_have_seen_is_in_no_window() {
        let set = TokenSet::cut_for_scoring(&[(0..23).collect::<Vec<u32>>()], 8);
        let found = windows(&set, Starts { of_document: 3, of_sequence: 5 }, 4);
        let counted = found.iter().flat_map(|window| &window.pieces).map(|(_, range)| range.clone());
        assert!(counted.clone().all(|range| range.start >= 5));
        let per_sequence = |at: usize| set.sequence(at).len().saturating_sub(5);
        let all: usize = (0..set.len()).map(per_sequence).sum();
        assert_eq!(counted.map(|range| range.len()).sum::<usize>(), all);
    }
}
