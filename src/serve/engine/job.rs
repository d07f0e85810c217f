//! Work for the engine, and what comes of it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::names::PathId;
use crate::serve::engine::Place;
use crate::serve::request::ApiError;
use crate::serve::request::sampling::Target;
use crate::training::{Sampler, TokenScore};

/// Events that wait for a client, of one request.
pub const EVENTS: usize = 64;

/// What the thread is asked for.
pub enum Work {
    /// A text to continue.
    Generate(Box<Job>),
    /// Features of texts.
    Features {
        /// Their first tokens.
        texts: Vec<Vec<u32>>,
        /// Where the rows go.
        reply: oneshot::Sender<Result<Vec<Vec<f32>>, ApiError>>,
        /// Held until it is answered.
        _place: Place,
    },
}

/// A prompt to be continued once or several times.
#[derive(Clone)]
pub struct Job {
    pub target: Target,
    /// At least one token.
    pub prompt: Vec<u32>,
    /// Whether the prompt's own tokens are scored, with so many of the likeliest in their places.
    pub score_prompt: Option<usize>,
    /// Number of the first choice in the answer.
    pub first_choice: usize,
    /// The choices of the prompt that this job makes; the first of all is 0.
    pub numbers: Range<usize>,
    /// Tokens of each choice, at most; 0 only for scores of the prompt.
    pub tokens: usize,
    /// Its seed is replaced by one for each choice.
    pub sampler: Sampler,
    /// The seed of the first choice, as of `pathswarm generate`.
    pub seed: u64,
    /// Whether tokens are scored, with so many of the likeliest in their places.
    pub logprobs: Option<usize>,
    pub stop: Vec<String>,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
    /// When a choice ends whatever it has.
    pub deadline: Instant,
    pub events: mpsc::Sender<Event>,
    /// Held until the last choice has ended.
    pub place: Place,
}

/// Why a choice has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The path ended the document, or a stop string came.
    Stop,
    /// It has all its tokens.
    Tokens,
    /// Its time is over.
    Time,
}

/// A token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnsweredToken {
    /// The token; its score, if that was asked for.
    pub token: u32,
    pub score: Option<TokenScore>,
}

/// What happens to a choice.
#[derive(Clone, Debug)]
pub enum Happening {
    /// Its path is chosen; the router's ranking, best first, if it was asked.
    Begins { ranking: Vec<PathId> },
    /// The scores of the prompt's tokens: none for the first.
    Prompt(Arc<[Option<TokenScore>]>),
    /// More text, and its tokens.
    Piece { text: String, tokens: Vec<AnsweredToken> },
    /// Nothing more comes. The paths in turn, `None` for the ancestor, each with its tokens; all tokens generated; and the
    /// token that ended the text, which is not among them, if scores were asked for.
    Ends { ending: Ending, paths: Vec<(Option<PathId>, usize)>, tokens: usize, end: Option<AnsweredToken> },
    /// It failed; nothing more comes.
    Fails(ApiError),
}

/// An event of one choice.
#[derive(Clone, Debug)]
pub struct Event {
    pub choice: usize,
    pub what: Happening,
}
