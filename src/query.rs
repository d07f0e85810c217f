//! What peers ask each other about text: which path a text belongs to, how likely it is there, and how it continues.
//!
//! A query needs no state of the protocol: the inference server of a peer that holds the path answers it. Queries and
//! their results are bounded and checked here, before anything is computed.

use serde::{Deserialize, Serialize};

use crate::names::PathId;

/// Tokens that a peer reads for one query, or as many as its context has. It is a second's work for most machines, so that
/// the result comes in time.
pub const MAX_READ_TOKENS: usize = 4_096;

/// Tokens that a peer generates for one query: each takes a step of its own.
pub const MAX_MADE_TOKENS: usize = 32;

/// Texts in one query.
pub const MAX_SPANS: usize = 512;

/// Queries that wait at one peer. The last should have its result before the client gives up.
pub const MAX_QUERIES: usize = 4;

/// Of these and the one in work, those of a single client.
pub const MAX_QUERIES_OF_ONE: usize = 2;

/// And those of all clients together that are no members of the run.
pub const MAX_QUERIES_OF_STRANGERS: usize = MAX_QUERIES / 2;

/// The longest text: positions are summed, and sums must not overflow.
const MAX_TEXT_TOKENS: u64 = 1 << 40;

/// The least loss of a valid result. Losses are sums of rounded numbers, so one that should be 0 may be a little less.
const LEAST_NATS: f64 = -1e-2;

/// A floating-point number as its bits, so that messages can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloatBits(u64);

impl FloatBits {
    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for FloatBits {
    fn from(number: f64) -> Self {
        Self(number.to_bits())
    }
}

/// The model that a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum QueriedModel {
    /// The dense ancestor, which every peer has.
    Ancestor,
    /// A path of the grid.
    Path(PathId),
}

/// Tokens to read, and the first of them that is scored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenSpan {
    /// At most one more than the context: the last one is scored and not read.
    pub tokens: Vec<u32>,
    /// The position of the first scored token, at least 1: the first token has nothing before it.
    pub from: u32,
}

/// A text to continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// The path that continues it.
    pub path: PathId,
    /// The text's last tokens, at most as many as the context.
    pub tokens: Vec<u32>,
    /// The number of its tokens before these.
    pub before: u64,
    /// The most tokens to generate.
    pub count: u32,
    /// Logits are divided by it; 0 always takes the likeliest token.
    pub temperature: FloatBits,
    /// The number of likeliest tokens that are drawn from; 0 for all.
    pub top_k: u32,
    /// The seed of the draws.
    pub seed: u64,
    /// The token that ends the text.
    pub stop: u32,
}

/// Asked of one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// The paths of texts that begin with these tokens.
    Route(Vec<Vec<u32>>),
    /// The loss of these spans.
    Score(QueriedModel, Vec<TokenSpan>),
    /// The tokens that follow this prompt.
    Continue(Prompt),
    /// The same, and how likely the path finds each.
    ContinueWithScores(Prompt),
}

/// The response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryResult {
    /// The path of each text.
    Routes(Vec<PathId>),
    /// The negative log-likelihood of each span's scored tokens, summed.
    Nats(Vec<FloatBits>),
    /// The tokens that follow, and whether the text has ended with them.
    Tokens(Vec<u32>, bool),
    /// The same, each with the natural logarithm of its probability.
    ScoredTokens(Vec<(u32, FloatBits)>, bool),
}

/// The bounds of queries in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Paths of the grid.
    pub paths: u32,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// Tokens that a path reads at once.
    pub context: usize,
    /// Tokens that choose a path.
    pub prefix_tokens: usize,
}

/// Why a query or a result is refused.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum QueryError {
    /// The query is empty.
    #[error("the query is empty")]
    Empty,
    /// More than a query may have.
    #[error("{what}: {found}, at most {most}")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// In the query.
        found: usize,
        /// Allowed.
        most: usize,
    },
    /// Not in the grid.
    #[error("the run has no path {0}")]
    NoPath(PathId),
    /// Not in the vocabulary.
    #[error("token {0} is outside the vocabulary")]
    Token(u32),
    /// No token of the span is scored, or its first.
    #[error("the first scored token is {from} of {tokens}")]
    From {
        /// Its position.
        from: u32,
        /// Tokens of the span.
        tokens: usize,
    },
    /// Not a temperature.
    #[error("the temperature must be 0 or more, and finite")]
    Temperature,
    /// The result is for another query.
    #[error("the result does not fit the query")]
    OtherResult,
    /// Not what a model can say.
    #[error("the result has {0} nats")]
    Nats(f64),
}

impl Query {
    /// The prompt to continue, if it asks for that.
    pub fn prompt(&self) -> Option<&Prompt> {
        match self {
            Self::Continue(prompt) | Self::ContinueWithScores(prompt) => Some(prompt),
            Self::Route(_) | Self::Score(..) => None,
        }
    }
}

fn at_most(what: &'static str, found: usize, most: usize) -> Result<(), QueryError> {
    if found > most { Err(QueryError::TooMuch { what, found, most }) } else { Ok(()) }
}

impl QueryLimits {
    /// Tokens that one query may have read: at least one sequence.
    pub fn most_tokens(&self) -> usize {
        MAX_READ_TOKENS.max(self.context + 1)
    }

    fn tokens(&self, tokens: &[u32], most: usize) -> Result<(), QueryError> {
        if tokens.is_empty() {
            return Err(QueryError::Empty);
        }
        at_most("tokens in a row", tokens.len(), most)?;
        let foreign = tokens.iter().find(|token| **token as usize >= self.vocabulary);
        foreign.map_or(Ok(()), |token| Err(QueryError::Token(*token)))
    }

    fn path(&self, path: PathId) -> Result<(), QueryError> {
        if path.0 < self.paths { Ok(()) } else { Err(QueryError::NoPath(path)) }
    }

    fn span(&self, span: &TokenSpan) -> Result<(), QueryError> {
        self.tokens(&span.tokens, self.context + 1)?;
        match span.from {
            from if from >= 1 && (from as usize) < span.tokens.len() => Ok(()),
            from => Err(QueryError::From { from, tokens: span.tokens.len() }),
        }
    }

    fn spans(&self, count: usize, tokens: usize) -> Result<(), QueryError> {
        if count == 0 {
            return Err(QueryError::Empty);
        }
        at_most("texts in a query", count, MAX_SPANS)?;
        at_most("tokens in a query", tokens, self.most_tokens())
    }

    /// Whether a peer answers this query.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn check(&self, query: &Query) -> Result<(), QueryError> {
        match query {
            Query::Route(prefixes) => {
                self.spans(prefixes.len(), prefixes.iter().map(Vec::len).sum())?;
                prefixes.iter().try_for_each(|prefix| self.tokens(prefix, self.prefix_tokens.min(self.context)))
            }
            Query::Score(model, spans) => {
                if let QueriedModel::Path(path) = model {
                    self.path(*path)?;
                }
                self.spans(spans.len(), spans.iter().map(|span| span.tokens.len()).sum())?;
                spans.iter().try_for_each(|span| self.span(span))
            }
            Query::Continue(prompt) | Query::ContinueWithScores(prompt) => {
                self.path(prompt.path)?;
                self.tokens(&prompt.tokens, self.context)?;
                at_most("tokens in front", prompt.before as usize, MAX_TEXT_TOKENS as usize)?;
                at_most("tokens to make", prompt.count as usize, MAX_MADE_TOKENS)?;
                let temperature = prompt.temperature.get();
                if temperature.is_finite() && temperature >= 0.0 { Ok(()) } else { Err(QueryError::Temperature) }
            }
        }
    }

    /// Whether these tokens can follow the prompt.
    fn made(&self, prompt: &Prompt, tokens: &[u32], ended: bool) -> Result<(), QueryError> {
        let (made, wanted) = (tokens.len(), prompt.count as usize);
        if made > wanted || (made < wanted) != ended {
            return Err(QueryError::OtherResult);
        }
        if made == 0 { Ok(()) } else { self.tokens(tokens, wanted) }
    }

    /// Whether a result can be the one of this query.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn check_result(&self, query: &Query, result: &QueryResult) -> Result<(), QueryError> {
        match (query, result) {
            (Query::Route(prefixes), QueryResult::Routes(paths)) if paths.len() == prefixes.len() => {
                paths.iter().try_for_each(|path| self.path(*path))
            }
            (Query::Score(_, spans), QueryResult::Nats(nats)) if nats.len() == spans.len() => {
                let wrong = nats.iter().map(|nats| nats.get()).find(|nats| !nats.is_finite() || *nats < LEAST_NATS);
                wrong.map_or(Ok(()), |nats| Err(QueryError::Nats(nats)))
            }
            (Query::Continue(prompt), QueryResult::Tokens(tokens, ended)) => self.made(prompt, tokens, *ended),
            (Query::ContinueWithScores(prompt), QueryResult::ScoredTokens(scored, ended)) => {
                let tokens: Vec<u32> = scored.iter().map(|(token, _)| *token).collect();
                self.made(prompt, &tokens, *ended)?;
                let mut nats = scored.iter().map(|(_, logprob)| -logprob.get());
                let wrong = nats.find(|nats| !nats.is_finite() || *nats < LEAST_NATS);
                wrong.map_or(Ok(()), |nats| Err(QueryError::Nats(nats)))
            }
            _ => Err(QueryError::OtherResult),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: QueryLimits = QueryLimits { paths: 4, vocabulary: 300, context: 64, prefix_tokens: 8 };

    fn prompt() -> Prompt {
        Prompt {
            path: PathId(3),
            tokens: vec![7, 258],
            before: 9,
            count: 32,
            temperature: 0.5.into(),
            top_k: 40,
            seed: 5,
            stop: 1,
        }
    }

    #[test]
    fn what_is_too_much_or_makes_no_sense_is_refused_before_it_is_read() {
        let check = |query: Query| BOUNDS.check(&query);
        let score =
            |tokens: Vec<u32>, from| check(Query::Score(QueriedModel::Ancestor, vec![TokenSpan { tokens, from }]));
        assert_eq!(check(Query::Route(vec![vec![1; 8]; 512])), Ok(()));
        assert_eq!(check(Query::Route(vec![])), Err(QueryError::Empty));
        assert_eq!(check(Query::Route(vec![vec![]])), Err(QueryError::Empty));
        assert!(matches!(check(Query::Route(vec![vec![1; 9]])), Err(QueryError::TooMuch { most: 8, .. })));
        assert!(matches!(check(Query::Route(vec![vec![1]; 513])), Err(QueryError::TooMuch { most: 512, .. })));
        assert_eq!(score(vec![1; 65], 64), Ok(()));
        assert!(matches!(score(vec![1; 66], 1), Err(QueryError::TooMuch { most: 65, .. })));
        assert_eq!(score(vec![1, 300], 1), Err(QueryError::Token(300)));
        for from in [0, 2, u32::MAX] {
            assert_eq!(score(vec![1, 2], from), Err(QueryError::From { from, tokens: 2 }));
        }
        let many = vec![TokenSpan { tokens: vec![1; 65], from: 1 }; 64];
        let refused = check(Query::Score(QueriedModel::Path(PathId(0)), many.clone()));
        assert!(matches!(refused, Err(QueryError::TooMuch { found: 4_160, most: 4_096, .. })), "{refused:?}");
        assert_eq!(check(Query::Score(QueriedModel::Path(PathId(0)), many[1..].to_vec())), Ok(()));
        let nowhere = Query::Score(QueriedModel::Path(PathId(4)), many[1..].to_vec());
        assert_eq!(check(nowhere), Err(QueryError::NoPath(PathId(4))));
        // A model that reads more at once may be given one sequence.
        assert_eq!(QueryLimits { context: 9_000, ..BOUNDS }.most_tokens(), 9_001);
    }

    #[test]
    fn a_text_goes_on_for_a_little_at_a_time() {
        let check = |change: &dyn Fn(&mut Prompt)| {
            let mut changed = prompt();
            change(&mut changed);
            BOUNDS.check(&Query::Continue(changed))
        };
        assert_eq!(check(&|_| {}), Ok(()));
        assert_eq!(check(&|prompt| prompt.tokens.clear()), Err(QueryError::Empty));
        assert!(check(&|prompt| prompt.tokens = vec![1; 65]).is_err());
        assert!(check(&|prompt| prompt.count = 33).is_err());
        assert!(check(&|prompt| prompt.before = u64::MAX).is_err());
        assert_eq!(check(&|prompt| prompt.path = PathId(4)), Err(QueryError::NoPath(PathId(4))));
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(check(&|prompt| prompt.temperature = wrong.into()), Err(QueryError::Temperature));
        }
    }

    #[test]
    fn an_answer_is_believed_only_if_it_can_be_one() {
        let route = Query::Route(vec![vec![1], vec![2]]);
        let check = |query: &Query, result: QueryResult| BOUNDS.check_result(query, &result);
        assert_eq!(check(&route, QueryResult::Routes(vec![PathId(0), PathId(3)])), Ok(()));
        assert_eq!(check(&route, QueryResult::Routes(vec![PathId(0)])), Err(QueryError::OtherResult));
        assert!(check(&route, QueryResult::Routes(vec![PathId(0), PathId(4)])).is_err());
        assert_eq!(check(&route, QueryResult::Nats(vec![1.0.into(); 2])), Err(QueryError::OtherResult));
        let score = Query::Score(QueriedModel::Ancestor, vec![TokenSpan { tokens: vec![1, 2], from: 1 }]);
        assert_eq!(check(&score, QueryResult::Nats(vec![0.0.into()])), Ok(()));
        assert_eq!(check(&score, QueryResult::Nats(vec![])), Err(QueryError::OtherResult));
        for wrong in [-1.0, f64::INFINITY] {
            assert_eq!(check(&score, QueryResult::Nats(vec![wrong.into()])), Err(QueryError::Nats(wrong)));
        }
        let on = Query::Continue(Prompt { count: 2, ..prompt() });
        assert_eq!(check(&on, QueryResult::Tokens(vec![1, 2], false)), Ok(()));
        assert_eq!(check(&on, QueryResult::Tokens(vec![], true)), Ok(()));
        assert_eq!(check(&on, QueryResult::Tokens(vec![1, 300], false)), Err(QueryError::Token(300)));
        let scored = Query::ContinueWithScores(Prompt { count: 2, ..prompt() });
        let tokens = |logprob: f64| vec![(1, logprob.into()), (2, (-0.5).into())];
        assert_eq!(check(&scored, QueryResult::ScoredTokens(tokens(-1.0), false)), Ok(()));
        assert_eq!(check(&scored, QueryResult::Tokens(vec![1, 2], false)), Err(QueryError::OtherResult));
        assert_eq!(check(&scored, QueryResult::ScoredTokens(tokens(-1.0), true)), Err(QueryError::OtherResult));
        for wrong in [1.0, f64::NEG_INFINITY] {
            let result = check(&scored, QueryResult::ScoredTokens(tokens(wrong), false));
            assert_eq!(result, Err(QueryError::Nats(-wrong)));
        }
        for (tokens, ended) in [(vec![1], false), (vec![1, 2], true), (vec![1, 2, 3], false)] {
            assert_eq!(check(&on, QueryResult::Tokens(tokens, ended)), Err(QueryError::OtherResult));
        }
    }
}
