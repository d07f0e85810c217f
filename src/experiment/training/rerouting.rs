//! Routes that are chosen again every so many tokens: by a transducer fine-tuned from the ancestor, and, as a bound, by
//! the path that turns out best (DiPaCo, section 2.4.3 and supplement 7.2.2).
//!
//! A path reads all earlier tokens of a document, also those that another path has scored. So its losses on whole
//! documents give the cost of any choice of paths.

use std::ops::Range;

use crate::config::Starts;
use crate::experiment::dataset::Documents;
use crate::experiment::results::outcome::{Numbers, Routed};
use crate::names::PathId;
use crate::peer::transducer::training_set::TrainingSet;
use crate::text::{Window, windows};
use crate::training::{Marked, Score};

/// Documents with the losses of every path.
pub struct Judged<'a> {
    pub documents: &'a Documents,
    /// The path of each document.
    pub routes: &'a [PathId],
    /// By path, the losses of each sequence's last tokens.
    pub losses: &'a [Vec<Vec<f32>>],
}

/// The ancestor's network.
pub trait Ancestor {
    /// Fine-tunes a copy to predict the targets of `training_set`, which are below `paths`. Returns its
    /// log-probabilities of these paths, `[targets][paths]`, at the targets of each set in `asked`.
    fn transduce(
        &mut self,
        training_set: &Marked<'_>,
        asked: [&Marked<'_>; 2],
        paths: usize,
    ) -> anyhow::Result<[Vec<Vec<f32>>; 2]>;
}

/// Fits a transducer on one text and scores its routes on another, whose documents' routes are `routes`.
pub fn reroute(
    ancestor: &mut dyn Ancestor,
    (training_set, test): (&Judged<'_>, &Judged<'_>),
    token_bytes: &[u32],
    (starts, every): (Starts, usize),
) -> anyhow::Result<Routed> {
    let paths = test.losses.len();
    let asked = windows(&test.documents.set, starts, every);
    let of_places = |places: &[Window]| Ok(places.iter().map(|place| costs(place, training_set)).collect());
    let taught = TrainingSet::new(&training_set.documents.set, training_set.routes, (starts, every), of_places)?;
    let test_marks = Marked::at(&test.documents.set, &asked, &|_| vec![0]);
    let [apart, said] = ancestor.transduce(&taught.learnt(), [&taught.apart(), &test_marks], paths)?;
    let switch_threshold = taught.switch_threshold(&apart);
    let homes = asked.iter().map(|window| test.routes[window.document].0);
    let by_transducer: Vec<u32> =
        said.iter().zip(homes).map(|(said, home)| switch_threshold.choose(said, home)).collect();
    let by_the_past = best_so_far(&asked, test);
    let by_oracle: Vec<u32> = asked.iter().map(|window| least(&costs(window, test))).collect();

    let score = |choice: &[u32]| -> Numbers {
        let of = |(window, path): (&Window, &u32)| {
            let path = if window.first { test.routes[window.document].0 } else { *path };
            Score { nats: nats(window, test.documents, &test.losses[path as usize]), ..size(window, test, token_bytes) }
        };
        asked.iter().zip(choice).map(of).sum::<Score>().into()
    };
    Ok(Routed { every, transducer: score(&by_transducer), so_far: score(&by_the_past), oracle: score(&by_oracle) })
}

/// For each window, the path with the least loss on the earlier windows of the document; for a first window, any.
fn best_so_far(windows: &[Window], judged: &Judged<'_>) -> Vec<u32> {
    let mut sums = Vec::new();
    let of = |window: &Window| {
        if window.first {
            sums = vec![0.0; judged.losses.len()];
        }
        let best = least(&sums);
        sums.iter_mut().zip(costs(window, judged)).for_each(|(sum, cost)| *sum += cost);
        best
    };
    windows.iter().map(of).collect()
}

/// The loss of each path on a window.
fn costs(window: &Window, judged: &Judged<'_>) -> Vec<f64> {
    judged.losses.iter().map(|losses| nats(window, judged.documents, losses)).collect()
}

/// The path with the least loss, the first of equals.
fn least(costs: &[f64]) -> u32 {
    let first_least =
        |least: (u32, f64), (path, cost): (usize, &f64)| if *cost < least.1 { (path as u32, *cost) } else { least };
    costs.iter().enumerate().fold((0, f64::INFINITY), first_least).0
}

fn size(window: &Window, judged: &Judged<'_>, token_bytes: &[u32]) -> Score {
    let tokens =
        window.pieces.iter().flat_map(|(sequence, range)| &judged.documents.set.sequence(*sequence)[range.clone()]);
    let (count, bytes) =
        tokens.fold((0, 0), |(count, bytes), token| (count + 1, bytes + u64::from(token_bytes[*token as usize])));
    Score { nats: 0.0, tokens: count, bytes }
}

/// The losses of a path on the tokens of a window. `losses` has those of each sequence's last tokens that are learnt.
fn nats(window: &Window, documents: &Documents, losses: &[Vec<f32>]) -> f64 {
    let of_piece = |(sequence, tokens): &(usize, Range<usize>)| -> f64 {
        let known = &losses[*sequence];
        let (set, length) = (&documents.set, documents.set.sequence(*sequence).len());
        let later = |from: usize| (from..length).filter(|at| set.is_learnt(*sequence, *at)).count();
        let counted = known.len() - later(tokens.start)..known.len() - later(tokens.end);
        known[counted].iter().map(|loss| f64::from(*loss)).sum()
    };
    window.pieces.iter().map(of_piece).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenizer::masked::MaskedIds;
    use crate::text::{TokenSet, Tokenized};
    use crate::training::Sequences;

    const STARTS: Starts = Starts { of_document: 4, of_sequence: 0 };

    /// Knows the path of what follows a token.
    struct LastToken;

    impl Ancestor for LastToken {
        fn transduce(
            &mut self,
            training_set: &Marked<'_>,
            asked: [&Marked<'_>; 2],
            paths: usize,
        ) -> anyhow::Result<[Vec<Vec<f32>>; 2]> {
            let mut counts = std::collections::BTreeMap::new();
            for index in 0..training_set.len() {
                for (position, path) in training_set.targets(index, 1) {
                    let counts: &mut Vec<u32> = counts.entry(training_set.sequence(index)[position]).or_default();
                    counts.resize(paths, 0);
                    counts[path as usize] += 1;
                }
            }
            Ok(asked.map(|asked| {
                let at = |index: usize| asked.targets(index, 1).into_iter().map(move |(position, _)| (index, position));
                let known = |(index, position)| -> Vec<f32> {
                    counts[&asked.sequence(index)[position]].iter().map(|counts| *counts as f32).collect()
                };
                (0..asked.len()).flat_map(at).map(known).collect()
            }))
        }
    }

    /// Runs of four tokens: after a 0 the next four are of the kind that path 0 knows, after a 9 those that path 1
    /// does.
    fn documents(count: u32) -> Documents {
        let document = |seed: u32| -> Vec<u32> {
            (0..9u32).flat_map(|run| if (seed >> (run % 5)) & 1 == 0 { [1, 2, 3, 0] } else { [5, 6, 7, 9] }).collect()
        };
        // The last token of a run announces the next one: shift the ends by a run.
        let shifted = |mut tokens: Vec<u32>| {
            for end in (3..tokens.len() - 4).step_by(4) {
                tokens[end] = if tokens[end + 1] < 4 { 0 } else { 9 };
            }
            tokens
        };
        Documents::of(TokenSet::cut_for_scoring(
            &(0..count).map(|seed| shifted(document(seed))).collect::<Vec<_>>(),
            16,
        ))
    }

    fn losses(documents: &Documents, good: std::ops::Range<u32>) -> Vec<Vec<f32>> {
        let set = &documents.set;
        let cost = |token: &u32| if good.contains(token) { 1.0 } else { 3.0 };
        let of = |at| set.sequence(at)[if set.begins_document(at) { 4 } else { 1 }..].iter().map(cost).collect();
        (0..set.len()).map(of).collect()
    }

    #[test]
    fn what_windows_cost_is_what_their_tokens_cost() {
        let documents = documents(3);
        let all = losses(&documents, 0..5);
        let found = windows(&documents.set, STARTS, 3);
        assert!(found.iter().any(|window| window.pieces.len() == 2), "some lie across two sequences");
        let sum: f64 = found.iter().map(|window| nats(window, &documents, &all)).sum();
        assert_eq!(sum, all.iter().flatten().map(|loss| f64::from(*loss)).sum::<f64>());
    }

    #[test]
    fn windows_of_a_conversation_cost_what_its_answers_cost() {
        let document = MaskedIds { ids: (0..12).collect(), runs: vec![2, 2, 3, 5] };
        let documents = Documents::of(Tokenized::from(&[document][..]).cut_for_scoring(8));
        // Tokens 0 to 8 and 8 to 11; the first token of each, and those before token 3, are not scored.
        let losses = vec![vec![3.0, 7.0, 8.0], vec![9.0, 10.0, 11.0]];
        let starts = Starts { of_document: 3, of_sequence: 0 };
        let found = windows(&documents.set, starts, 2);
        let costs: Vec<f64> = found.iter().map(|window| nats(window, &documents, &losses)).collect();
        assert_eq!(costs, [3.0 + 7.0, 8.0 + 9.0, 10.0 + 11.0]);
    }

    #[test]
    fn the_past_of_a_document_chooses_who_has_needed_least_and_that_of_another_says_nothing() {
        let texts = [vec![7u32; 20], vec![1; 20]];
        let (documents, routes) = (Documents::of(TokenSet::cut_for_scoring(&texts, 16)), [PathId(0); 2]);
        let losses = vec![losses(&documents, 0..5), losses(&documents, 5..10)];
        let judged = Judged { documents: &documents, losses: &losses, routes: &routes };
        let places = windows(&documents.set, STARTS, 4);
        let firsts: Vec<bool> = places.iter().map(|window| window.first).collect();
        assert_eq!(firsts, [true, false, false, false, true, false, false, false]);
        assert_eq!(best_so_far(&places, &judged), [0, 1, 1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_transducer_that_sees_what_comes_next_does_as_well_as_the_best_and_a_single_route_does_worse() {
        let (training_set, test) = (documents(32), documents(7));
        let by_path = |documents: &Documents| vec![losses(documents, 0..5), losses(documents, 5..10)];
        let (training_losses, test_losses) = (by_path(&training_set), by_path(&test));
        let routes = vec![PathId(0); 32];
        let judged = |documents, losses| Judged { documents, losses, routes: &routes };
        let (training_set, test) = (judged(&training_set, &training_losses), judged(&test, &test_losses));
        let found = reroute(&mut LastToken, (&training_set, &test), &[1; 10], (STARTS, 4)).unwrap();
        let once: f64 = windows(&test.documents.set, STARTS, 4)
            .iter()
            .map(|window| nats(window, test.documents, &test_losses[0]))
            .sum();
        assert_eq!(found.transducer, found.oracle);
        assert_eq!((found.oracle.tokens, found.oracle.bytes), (7 * 32, 7 * 32));
        assert!(found.oracle.nats < 0.9 * once, "{} {once}", found.oracle.nats);
    }
}
