//! What runs the models of a run.

use std::collections::BTreeMap;

use crate::names::PathId;
use crate::query::QueriedModel;
use crate::training::{Decoding, Sampler, TokenScore};

/// A text in generation.
pub struct Text {
    pub decoding: Decoding,
    pub sampler: Sampler,
    /// The seed of the sampler's root, for peers.
    pub seed: u64,
    /// How often each token was generated.
    pub counts: BTreeMap<u32, u32>,
    /// Whether tokens are scored, with so many of the likeliest in their places.
    pub logprobs: Option<usize>,
    /// Tokens that end it.
    pub ends: Vec<u32>,
    /// Tokens that it may still get on its path.
    pub left: usize,
}

/// What comes next in a text. It is part of the text already.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Next {
    /// Tokens, with their scores if these were asked for.
    pub tokens: Vec<(u32, Option<TokenScore>)>,
    /// Whether the text has ended with them.
    pub ended: bool,
    /// The token that ended it, with its score, if scores were asked for. It is no part of the text.
    pub end: Option<(u32, TokenScore)>,
}

impl Text {
    /// Appends a token.
    pub fn push(&mut self, token: u32) {
        self.decoding.push(token);
        *self.counts.entry(token).or_default() += 1;
        self.left = self.left.saturating_sub(1);
    }
}

/// The models of a run.
pub trait Backend: Send {
    /// The paths of a text, best first: of its beginning, or, from its path so far, of its last tokens. A backend that
    /// knows only the best gives that.
    fn ranking(&mut self, tokens: &[u32], before: Option<PathId>) -> anyhow::Result<Vec<PathId>>;

    /// The features of texts by their first tokens.
    fn features(&mut self, texts: &[Vec<u32>]) -> anyhow::Result<Vec<Vec<f32>>>;

    /// The scores of a text's tokens after its first.
    fn scores(&mut self, model: QueriedModel, tokens: &[u32], top: usize) -> anyhow::Result<Vec<TokenScore>>;

    /// Reads a prompt that several texts begin with.
    fn read_ahead(&mut self, _model: QueriedModel, _prompt: &mut Decoding) -> anyhow::Result<()> {
        Ok(())
    }

    /// A text goes from one path to another, by which it has read nothing unless the two have modules in common.
    fn moves(&mut self, _: PathId, _: PathId, text: &mut Decoding) {
        text.forget();
    }

    /// Steps in a row on one model: more than 1 if changing models is slow.
    fn quantum(&self) -> usize {
        1
    }

    /// Continues texts on one model by at least one token each, unless they end, or their prompts are so long that they are
    /// read in pieces: then there may be none.
    fn step(&mut self, model: QueriedModel, texts: &mut [&mut Text]) -> Vec<anyhow::Result<Next>>;
}
