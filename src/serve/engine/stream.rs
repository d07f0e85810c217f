//! One choice in generation.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::names::PathId;
use crate::query::QueriedModel;
use crate::serve::engine::Place;
use crate::serve::engine::assembler::Assembler;
use crate::serve::engine::backend::{Next, Text};
use crate::serve::engine::job::{AnsweredToken, Ending, Event, Happening};
use crate::serve::request::ApiError;
use crate::text::Tokenizer;

/// A client that reads nothing for so long is given up.
const READS_WITHIN: Duration = Duration::from_secs(60);

/// A choice, its text, and what its client has not got yet.
pub(super) struct Stream {
    pub choice: usize,
    pub model: QueriedModel,
    pub text: Text,
    pub rerouting: Rerouting,
    assembler: Assembler,
    paths: Vec<(Option<PathId>, usize)>,
    tokens: usize,
    outbox: VecDeque<Event>,
    events: mpsc::Sender<Event>,
    deadline: Instant,
    sent: Instant,
    ended: bool,
    _place: Place,
}

/// When and among which paths the path of a text is chosen again.
#[derive(Clone, Debug, Default)]
pub(super) struct Rerouting {
    /// After so many tokens; `None` for never.
    pub every: Option<usize>,
    /// Tokens until the next choice are in `text.left`, those after it here.
    pub later: usize,
    pub without: BTreeSet<PathId>,
}

/// Where a choice's events go, until when it goes on, and its request's place.
pub(super) type Client = (mpsc::Sender<Event>, Instant, Place);

impl Stream {
    pub fn new(
        choice: usize,
        model: QueriedModel,
        text: Text,
        rerouting: Rerouting,
        stop: Vec<String>,
        (events, deadline, place): Client,
        now: Instant,
    ) -> Self {
        Self {
            choice,
            model,
            text,
            rerouting,
            assembler: Assembler::new(stop),
            paths: Vec::new(),
            tokens: 0,
            outbox: VecDeque::new(),
            events,
            deadline,
            sent: now,
            ended: false,
            _place: place,
        }
    }

    /// Whether all is generated and sent, or its client is gone.
    pub fn is_over(&self, now: Instant) -> bool {
        let is_slow = !self.outbox.is_empty() && now.saturating_duration_since(self.sent) > READS_WITHIN;
        (self.ended && self.outbox.is_empty()) || self.events.is_closed() || is_slow
    }

    /// Whether it can go on: its client has read everything so far.
    pub fn is_ready(&self) -> bool {
        !self.ended && self.outbox.is_empty()
    }

    /// Sends what the client has room for.
    pub fn flush(&mut self, now: Instant) {
        while let Some(event) = self.outbox.pop_front() {
            match self.events.try_send(event) {
                Ok(()) => self.sent = now,
                Err(TrySendError::Full(event)) => {
                    self.outbox.push_front(event);
                    return;
                }
                Err(TrySendError::Closed(_)) => return,
            }
        }
        self.sent = now;
    }

    pub fn say(&mut self, what: Happening) {
        self.outbox.push_back(Event { choice: self.choice, what });
    }

    /// Nothing more comes.
    pub fn fail(&mut self, error: ApiError) {
        self.say(Happening::Fails(error));
        self.ended = true;
    }

    /// Takes what has come of a step.
    pub fn take(&mut self, next: Next, tokenizer: &Tokenizer, now: Instant) {
        let path = match self.model {
            QueriedModel::Ancestor => None,
            QueriedModel::Path(path) => Some(path),
        };
        let count = next.tokens.len();
        match self.paths.last_mut() {
            Some((last, tokens)) if *last == path => *tokens += count,
            _ => self.paths.push((path, count)),
        }
        let (mut text, mut shown) = (String::new(), Vec::new());
        let mut add = |(more, tokens): (String, Vec<AnsweredToken>)| {
            text.push_str(&more);
            shown.extend(tokens);
        };
        for (token, score) in next.tokens {
            self.tokens += 1;
            add(self.assembler.push(AnsweredToken { token, score }, tokenizer.piece(token)));
            if self.assembler.stopped() {
                break;
            }
        }
        let ending = if next.ended || self.assembler.stopped() {
            Some(Ending::Stop)
        } else if self.text.left == 0 && self.rerouting.later == 0 {
            Some(Ending::Tokens)
        } else {
            (now >= self.deadline).then_some(Ending::Time)
        };
        if ending.is_some() {
            add(self.assembler.rest());
        }
        if !text.is_empty() || !shown.is_empty() {
            self.say(Happening::Piece { text, tokens: shown });
        }
        if let Some(ending) = ending {
            let end = next.end.map(|(token, score)| AnsweredToken { token, score: Some(score) });
            self.end(ending, end);
        }
    }

    /// All that there is has come, and perhaps a token that ended it.
    pub fn end(&mut self, ending: Ending, end: Option<AnsweredToken>) {
        self.ended = true;
        let (paths, tokens) = (std::mem::take(&mut self.paths), self.tokens);
        self.say(Happening::Ends { ending, paths, tokens, end });
    }
}
