//! Divides work into queries, one after the other, to peers that can run one model.

use crate::names::PathId;
use crate::peer::inference::client::Draw;
use crate::query::{MAX_MADE_TOKENS, MAX_SPANS};
use crate::query::{Prompt, QueriedModel, Query, QueryLimits, QueryResult, TokenSpan};
use crate::training::seen_from;

/// Work that takes a sequence of queries.
pub(super) trait QuerySequence {
    /// The model to query.
    fn player(&self) -> QueriedModel;

    /// The next query within `bounds`, and halved as often as `halved` says if peers are slow. `None` if the work is
    /// done.
    fn next(&self, bounds: &QueryLimits, halved: u32) -> Option<Query>;

    /// Takes a checked result.
    fn take(&mut self, answer: QueryResult);
}

/// As many of the first items as fit one query, at least one.
fn some<'a, T>(of: &'a [T], tokens: impl Fn(&T) -> usize, bounds: &QueryLimits, halved: u32) -> &'a [T] {
    let most = bounds.most_tokens() >> halved;
    let mut sum = 0;
    let fit = of.iter().take(MAX_SPANS).take_while(|one| {
        sum += tokens(one);
        sum <= most
    });
    &of[..fit.count().max(1).min(of.len())]
}

/// The paths of texts.
pub(super) struct Routing<'a> {
    pub prefixes: &'a [&'a [u32]],
    pub paths: Vec<PathId>,
}

impl QuerySequence for Routing<'_> {
    fn player(&self) -> QueriedModel {
        QueriedModel::Ancestor
    }

    fn next(&self, bounds: &QueryLimits, halved: u32) -> Option<Query> {
        let some = some(&self.prefixes[self.paths.len()..], |prefix| prefix.len(), bounds, halved);
        (!some.is_empty()).then(|| Query::Route(some.iter().map(|prefix| prefix.to_vec()).collect()))
    }

    fn take(&mut self, answer: QueryResult) {
        if let QueryResult::Routes(paths) = answer {
            self.paths.extend(paths);
        }
    }
}

/// The nats of pieces.
pub(super) struct Scoring<'a> {
    pub player: QueriedModel,
    pub pieces: &'a [TokenSpan],
    pub nats: Vec<f64>,
}

impl QuerySequence for Scoring<'_> {
    fn player(&self) -> QueriedModel {
        self.player
    }

    fn next(&self, bounds: &QueryLimits, halved: u32) -> Option<Query> {
        let some = some(&self.pieces[self.nats.len()..], |piece| piece.tokens.len(), bounds, halved);
        (!some.is_empty()).then(|| Query::Score(self.player, some.to_vec()))
    }

    fn take(&mut self, answer: QueryResult) {
        if let QueryResult::Nats(nats) = answer {
            self.nats.extend(nats.into_iter().map(|nats| nats.get()));
        }
    }
}

/// The continuation of a text.
pub(super) struct Continuing {
    pub path: PathId,
    /// The text so far.
    pub text: Vec<u32>,
    /// Tokens still to generate.
    pub left: usize,
    pub draw: Draw,
    pub stop: u32,
    /// The scores of the new tokens, if they are wanted.
    pub logprobs: Option<Vec<f64>>,
}

impl Continuing {
    /// Without scores.
    pub fn new(path: PathId, text: &[u32], left: usize, draw: Draw, stop: u32) -> Self {
        Self { path, text: text.to_vec(), left, draw, stop, logprobs: None }
    }

    fn add(&mut self, tokens: Vec<u32>, ended: bool) {
        self.left = if ended { 0 } else { self.left.saturating_sub(tokens.len()) };
        self.text.extend(tokens);
    }
}

impl QuerySequence for Continuing {
    fn player(&self) -> QueriedModel {
        QueriedModel::Path(self.path)
    }

    fn next(&self, bounds: &QueryLimits, halved: u32) -> Option<Query> {
        let count = (MAX_MADE_TOKENS >> halved).max(1).min(self.left);
        let before = seen_from(self.text.len(), bounds.context);
        let query = if self.logprobs.is_some() { Query::ContinueWithScores } else { Query::Continue };
        (count > 0).then(|| {
            query(Prompt {
                path: self.path,
                tokens: self.text[before..].to_vec(),
                before: before as u64,
                count: count as u32,
                temperature: self.draw.temperature.into(),
                top_k: u32::try_from(self.draw.top_k).unwrap_or(u32::MAX),
                seed: self.draw.seed,
                stop: self.stop,
            })
        })
    }

    fn take(&mut self, answer: QueryResult) {
        match answer {
            QueryResult::Tokens(tokens, ended) => self.add(tokens, ended),
            QueryResult::ScoredTokens(scored, ended) => {
                let (tokens, logprobs): (Vec<u32>, Vec<f64>) =
                    scored.into_iter().map(|(token, logprob)| (token, logprob.get())).unzip();
                self.logprobs.get_or_insert_default().extend(logprobs);
                self.add(tokens, ended);
            }
            QueryResult::Routes(_) | QueryResult::Nats(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: QueryLimits = QueryLimits { paths: 4, vocabulary: 300, context: 64, prefix_tokens: 8 };

    /// Queries until the work is done. Returns the sizes of the queries.
    fn ask(
        sequence: &mut dyn QuerySequence,
        halved: u32,
        answer: impl Fn(&Query) -> (usize, QueryResult),
    ) -> Vec<usize> {
        let mut sizes = Vec::new();
        while let Some(question) = sequence.next(&BOUNDS, halved) {
            assert_eq!(BOUNDS.check(&question), Ok(()));
            let (size, result) = answer(&question);
            assert_eq!(BOUNDS.check_result(&question, &result), Ok(()));
            sizes.push(size);
            sequence.take(result);
        }
        sizes
    }

    #[test]
    fn pieces_are_asked_in_questions_that_are_answered_and_smaller_ones_of_slow_peers() {
        let pieces: Vec<TokenSpan> = (0..150).map(|number| TokenSpan { tokens: vec![number; 65], from: 1 }).collect();
        for (halved, expected) in [(0, vec![63, 63, 24]), (1, vec![31, 31, 31, 31, 26]), (12, vec![1; 150])] {
            let mut sequence = Scoring { player: QueriedModel::Ancestor, pieces: &pieces, nats: Vec::new() };
            let sizes = ask(&mut sequence, halved, |question| {
                let Query::Score(_, pieces) = question else { unreachable!() };
                let nats = pieces.iter().map(|piece| f64::from(piece.tokens[0]).into());
                (pieces.len(), QueryResult::Nats(nats.collect()))
            });
            assert_eq!(sizes, expected);
            assert_eq!(sequence.nats, (0..150).map(f64::from).collect::<Vec<f64>>());
        }
    }

    #[test]
    fn texts_are_routed_some_at_a_time() {
        let prefixes: Vec<[u32; 8]> = (0..700).map(|number| [number % 300; 8]).collect();
        let prefixes: Vec<&[u32]> = prefixes.iter().map(|prefix| &prefix[..]).collect();
        let mut sequence = Routing { prefixes: &prefixes, paths: Vec::new() };
        let sizes = ask(&mut sequence, 0, |question| {
            let Query::Route(prefixes) = question else { unreachable!() };
            (prefixes.len(), QueryResult::Routes(prefixes.iter().map(|prefix| PathId(prefix[0] % 4)).collect()))
        });
        assert_eq!(sizes, [512, 188]);
        assert!(sequence.paths.iter().zip(&prefixes).all(|(path, prefix)| path.0 == prefix[0] % 4));
    }

    #[test]
    fn a_text_goes_on_until_it_is_long_enough_or_ends() {
        let draw = Draw { temperature: 0.0, top_k: 0, seed: 1 };
        let continuing = |left| Continuing::new(PathId(1), &[9; 100], left, draw, 0);
        let mut sequence = continuing(70);
        let sizes = ask(&mut sequence, 0, |question| {
            let Query::Continue(opening) = question else { unreachable!() };
            let place = opening.before as usize + opening.tokens.len();
            (opening.count as usize, QueryResult::Tokens(vec![place as u32; opening.count as usize], false))
        });
        assert_eq!(sizes, [32, 32, 6]);
        assert_eq!((sequence.text.len(), sequence.text[131], sequence.text[169]), (170, 100, 164));
        let mut sequence = continuing(70);
        assert_eq!(ask(&mut sequence, 2, |_| (0, QueryResult::Tokens(vec![5; 3], true))), [0]);
        assert_eq!(sequence.text.len(), 103);
    }
}
