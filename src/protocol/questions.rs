//! Questions about text, which whoever has a path can answer without the protocol: which path a text belongs to, how
//! likely it is there, and how it goes on. What is asked and what is answered is bounded here, before any tensor.

use serde::{Deserialize, Serialize};

use super::limits::{MAX_MADE_TOKENS, MAX_PIECES, MAX_READ_TOKENS};
use crate::names::PathId;

/// No text is longer: what stands in front of a piece is counted, and sums must not overflow.
const MAX_TEXT_TOKENS: u64 = 1 << 40;

/// Losses are sums of rounded numbers: one that should be 0 may be a little less.
const LEAST_NATS: f64 = -1e-2;

/// A number with a fraction, as its bits, so that messages can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Real(u64);

impl Real {
    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for Real {
    fn from(number: f64) -> Self {
        Self(number.to_bits())
    }
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Player {
    /// The dense ancestor, which every peer has.
    Ancestor,
    /// A path of the grid.
    Path(PathId),
}

/// Tokens to be read, and which of them count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// One more than the context at the most: the last one is not read.
    pub tokens: Vec<u32>,
    /// The position of the first that counts, 1 at the least: nothing is known before the first token.
    pub from: u32,
}

/// A text that is to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Who goes on with it.
    pub path: PathId,
    /// What is read of it: its last tokens, as many as the context at the most.
    pub tokens: Vec<u32>,
    /// How many of its tokens come before these.
    pub before: u64,
    /// Tokens to make, at most.
    pub count: u32,
    /// Logits are divided by it; 0 takes the likeliest token always.
    pub temperature: Real,
    /// Only so many of the likeliest tokens are drawn from; 0 for all.
    pub top_k: u32,
    /// Root of the draws.
    pub seed: u64,
    /// The token that ends the text.
    pub stop: u32,
}

/// Asked of one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// The paths of texts that begin with these tokens.
    Route(Vec<Vec<u32>>),
    /// What these pieces cost.
    Score(Player, Vec<Piece>),
    /// How this goes on.
    Continue(Opening),
}

/// Answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Played {
    /// The path of each text.
    Routes(Vec<PathId>),
    /// Of each piece, the sum of the negative logarithms of the likelihoods of the tokens that count.
    Nats(Vec<Real>),
    /// The tokens that follow, and whether the text has ended with them.
    Tokens(Vec<u32>, bool),
}

/// What a run's questions are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Paths of the grid.
    pub paths: u32,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// Tokens that a path reads at once.
    pub context: usize,
    /// Tokens that choose a path.
    pub prefix_tokens: usize,
}

/// Why a question is not answered, or an answer is none.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum QuestionError {
    /// Nothing is asked.
    #[error("there is nothing in it to read")]
    Empty,
    /// More than a question may have.
    #[error("{what}: {found}, at most {most}")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// In the question.
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
    /// None of the piece's tokens counts, or its first.
    #[error("the first token that counts is {from} of {tokens}")]
    From {
        /// Its position.
        from: u32,
        /// Tokens of the piece.
        tokens: usize,
    },
    /// Not a temperature.
    #[error("the temperature must be 0 or more, and finite")]
    Temperature,
    /// Not what was asked for.
    #[error("the answer is not one to the question")]
    OtherAnswer,
    /// Not what a model can say.
    #[error("the answer has {0} nats")]
    Nats(f64),
}

fn at_most(what: &'static str, found: usize, most: usize) -> Result<(), QuestionError> {
    if found > most { Err(QuestionError::TooMuch { what, found, most }) } else { Ok(()) }
}

impl Bounds {
    /// Tokens that one question may have read: as many as one sequence has, at the least.
    pub fn most_tokens(&self) -> usize {
        MAX_READ_TOKENS.max(self.context + 1)
    }

    fn tokens(&self, tokens: &[u32], most: usize) -> Result<(), QuestionError> {
        if tokens.is_empty() {
            return Err(QuestionError::Empty);
        }
        at_most("tokens in a row", tokens.len(), most)?;
        let foreign = tokens.iter().find(|token| **token as usize >= self.vocabulary);
        foreign.map_or(Ok(()), |token| Err(QuestionError::Token(*token)))
    }

    fn path(&self, path: PathId) -> Result<(), QuestionError> {
        if path.0 < self.paths { Ok(()) } else { Err(QuestionError::NoPath(path)) }
    }

    fn piece(&self, piece: &Piece) -> Result<(), QuestionError> {
        self.tokens(&piece.tokens, self.context + 1)?;
        match piece.from {
            from if from >= 1 && (from as usize) < piece.tokens.len() => Ok(()),
            from => Err(QuestionError::From { from, tokens: piece.tokens.len() }),
        }
    }

    fn pieces(&self, count: usize, tokens: usize) -> Result<(), QuestionError> {
        if count == 0 {
            return Err(QuestionError::Empty);
        }
        at_most("texts in a question", count, MAX_PIECES)?;
        at_most("tokens in a question", tokens, self.most_tokens())
    }

    /// Whether a question is one that a peer answers.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn check(&self, question: &Question) -> Result<(), QuestionError> {
        match question {
            Question::Route(prefixes) => {
                self.pieces(prefixes.len(), prefixes.iter().map(Vec::len).sum())?;
                prefixes.iter().try_for_each(|prefix| self.tokens(prefix, self.prefix_tokens.min(self.context)))
            }
            Question::Score(player, pieces) => {
                if let Player::Path(path) = player {
                    self.path(*path)?;
                }
                self.pieces(pieces.len(), pieces.iter().map(|piece| piece.tokens.len()).sum())?;
                pieces.iter().try_for_each(|piece| self.piece(piece))
            }
            Question::Continue(opening) => {
                self.path(opening.path)?;
                self.tokens(&opening.tokens, self.context)?;
                at_most("tokens in front", opening.before as usize, MAX_TEXT_TOKENS as usize)?;
                at_most("tokens to make", opening.count as usize, MAX_MADE_TOKENS)?;
                let temperature = opening.temperature.get();
                if temperature.is_finite() && temperature >= 0.0 { Ok(()) } else { Err(QuestionError::Temperature) }
            }
        }
    }

    /// Whether an answer can be one to a question.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn check_answer(&self, question: &Question, answer: &Played) -> Result<(), QuestionError> {
        match (question, answer) {
            (Question::Route(prefixes), Played::Routes(paths)) if paths.len() == prefixes.len() => {
                paths.iter().try_for_each(|path| self.path(*path))
            }
            (Question::Score(_, pieces), Played::Nats(nats)) if nats.len() == pieces.len() => {
                let wrong = nats.iter().map(|nats| nats.get()).find(|nats| !nats.is_finite() || *nats < LEAST_NATS);
                wrong.map_or(Ok(()), |nats| Err(QuestionError::Nats(nats)))
            }
            (Question::Continue(opening), Played::Tokens(tokens, ended)) => {
                let (made, wanted) = (tokens.len(), opening.count as usize);
                if made > wanted || (made < wanted) != *ended {
                    return Err(QuestionError::OtherAnswer);
                }
                if made == 0 { Ok(()) } else { self.tokens(tokens, wanted) }
            }
            _ => Err(QuestionError::OtherAnswer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::encoding;
    use crate::protocol::{Request, Response};

    const BOUNDS: Bounds = Bounds { paths: 4, vocabulary: 300, context: 64, prefix_tokens: 8 };

    fn opening() -> Opening {
        Opening {
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

    fn golden(kind: u8, number: u32, numbers: &[u64]) -> Vec<u8> {
        let mut bytes = [&b"PSW1\x04\x00"[..], &[kind, 0], &number.to_le_bytes()].concat();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes
    }

    #[track_caller]
    fn asks(question: Question, body: &[u8]) {
        let request = Request::Play(question);
        let bytes = [&golden(2, 4, &[])[..], body].concat();
        assert_eq!(encoding::encode(&request).unwrap(), bytes);
        assert_eq!(encoding::decode::<Request>(&bytes), Ok(request));
    }

    #[track_caller]
    fn answers(played: Played, body: &[u8]) {
        let response = Response::Played(played);
        let bytes = [&golden(3, 6, &[])[..], body].concat();
        assert_eq!(encoding::encode(&response).unwrap(), bytes);
        assert_eq!(encoding::decode::<Response>(&bytes), Ok(response));
    }

    #[test]
    fn questions_have_these_bytes() {
        let (word, long) = (|number: u32| number.to_le_bytes(), |number: u64| number.to_le_bytes());
        asks(Question::Route(vec![vec![258]]), &[&word(0)[..], &long(1), &long(1), &word(258)].concat());
        let piece = Piece { tokens: vec![7, 8], from: 1 };
        let body = [&long(1)[..], &long(2), &word(7), &word(8), &word(1)].concat();
        asks(Question::Score(Player::Ancestor, vec![piece.clone()]), &[&word(1)[..], &word(0), &body].concat());
        let of_path = [&word(1)[..], &word(1), &word(3), &body].concat();
        asks(Question::Score(Player::Path(PathId(3)), vec![piece]), &of_path);
        let head = [&word(2)[..], &word(3), &long(2), &word(7), &word(258), &long(9), &word(32)].concat();
        let tail = [&0.5f64.to_le_bytes()[..], &word(40), &long(5), &word(1)].concat();
        asks(Question::Continue(opening()), &[head, tail].concat());
    }

    #[test]
    fn answers_have_these_bytes() {
        let (word, long) = (|number: u32| number.to_le_bytes(), |number: u64| number.to_le_bytes());
        answers(Played::Routes(vec![PathId(3)]), &[&word(0)[..], &long(1), &word(3)].concat());
        answers(Played::Nats(vec![1.5.into()]), &[&word(1)[..], &long(1), &1.5f64.to_le_bytes()].concat());
        answers(Played::Tokens(vec![258], true), &[&word(2)[..], &long(1), &word(258), &[1]].concat());
    }

    #[test]
    fn what_is_too_much_or_makes_no_sense_is_refused_before_it_is_read() {
        let check = |question: Question| BOUNDS.check(&question);
        let score = |tokens: Vec<u32>, from| check(Question::Score(Player::Ancestor, vec![Piece { tokens, from }]));
        assert_eq!(check(Question::Route(vec![vec![1; 8]; 512])), Ok(()));
        assert_eq!(check(Question::Route(vec![])), Err(QuestionError::Empty));
        assert_eq!(check(Question::Route(vec![vec![]])), Err(QuestionError::Empty));
        assert!(matches!(check(Question::Route(vec![vec![1; 9]])), Err(QuestionError::TooMuch { most: 8, .. })));
        assert!(matches!(check(Question::Route(vec![vec![1]; 513])), Err(QuestionError::TooMuch { most: 512, .. })));
        assert_eq!(score(vec![1; 65], 64), Ok(()));
        assert!(matches!(score(vec![1; 66], 1), Err(QuestionError::TooMuch { most: 65, .. })));
        assert_eq!(score(vec![1, 300], 1), Err(QuestionError::Token(300)));
        for from in [0, 2, u32::MAX] {
            assert_eq!(score(vec![1, 2], from), Err(QuestionError::From { from, tokens: 2 }));
        }
        let many = vec![Piece { tokens: vec![1; 65], from: 1 }; 64];
        let refused = check(Question::Score(Player::Path(PathId(0)), many.clone()));
        assert!(matches!(refused, Err(QuestionError::TooMuch { found: 4_160, most: 4_096, .. })), "{refused:?}");
        assert_eq!(check(Question::Score(Player::Path(PathId(0)), many[1..].to_vec())), Ok(()));
        let nowhere = Question::Score(Player::Path(PathId(4)), many[1..].to_vec());
        assert_eq!(check(nowhere), Err(QuestionError::NoPath(PathId(4))));
        // A model that reads more at once may be given one sequence.
        assert_eq!(Bounds { context: 9_000, ..BOUNDS }.most_tokens(), 9_001);
    }

    #[test]
    fn a_text_goes_on_for_a_little_at_a_time() {
        let check = |change: &dyn Fn(&mut Opening)| {
            let mut changed = opening();
            change(&mut changed);
            BOUNDS.check(&Question::Continue(changed))
        };
        assert_eq!(check(&|_| {}), Ok(()));
        assert_eq!(check(&|opening| opening.tokens.clear()), Err(QuestionError::Empty));
        assert!(check(&|opening| opening.tokens = vec![1; 65]).is_err());
        assert!(check(&|opening| opening.count = 33).is_err());
        assert!(check(&|opening| opening.before = u64::MAX).is_err());
        assert_eq!(check(&|opening| opening.path = PathId(4)), Err(QuestionError::NoPath(PathId(4))));
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(check(&|opening| opening.temperature = wrong.into()), Err(QuestionError::Temperature));
        }
    }

    #[test]
    fn an_answer_is_believed_only_if_it_can_be_one() {
        let route = Question::Route(vec![vec![1], vec![2]]);
        let check = |question: &Question, answer: Played| BOUNDS.check_answer(question, &answer);
        assert_eq!(check(&route, Played::Routes(vec![PathId(0), PathId(3)])), Ok(()));
        assert_eq!(check(&route, Played::Routes(vec![PathId(0)])), Err(QuestionError::OtherAnswer));
        assert!(check(&route, Played::Routes(vec![PathId(0), PathId(4)])).is_err());
        assert_eq!(check(&route, Played::Nats(vec![1.0.into(); 2])), Err(QuestionError::OtherAnswer));
        let score = Question::Score(Player::Ancestor, vec![Piece { tokens: vec![1, 2], from: 1 }]);
        assert_eq!(check(&score, Played::Nats(vec![0.0.into()])), Ok(()));
        assert_eq!(check(&score, Played::Nats(vec![])), Err(QuestionError::OtherAnswer));
        for wrong in [-1.0, f64::INFINITY] {
            assert_eq!(check(&score, Played::Nats(vec![wrong.into()])), Err(QuestionError::Nats(wrong)));
        }
        let on = Question::Continue(Opening { count: 2, ..opening() });
        assert_eq!(check(&on, Played::Tokens(vec![1, 2], false)), Ok(()));
        assert_eq!(check(&on, Played::Tokens(vec![], true)), Ok(()));
        assert_eq!(check(&on, Played::Tokens(vec![1, 300], false)), Err(QuestionError::Token(300)));
        for (tokens, ended) in [(vec![1], false), (vec![1, 2], true), (vec![1, 2, 3], false)] {
            assert_eq!(check(&on, Played::Tokens(tokens, ended)), Err(QuestionError::OtherAnswer));
        }
    }
}
