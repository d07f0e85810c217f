//! Hooks into a forward pass: the tools of `inspect` record intermediate values, or replace them.

use tch::{TchError, Tensor};

use crate::model::layers::token_positions::TokenPositions;

/// What tokens chose in one step.
pub struct Routed<'a> {
    pub step: usize,
    /// Which tokens.
    pub places: &'a TokenPositions,
    /// ρ, `[tokens, modules]`.
    pub scores: &'a Tensor,
    /// The modules that each token chose, `top_k` for each, the best first.
    pub chosen: &'a [i64],
    /// How many tokens chose each module.
    pub counts: &'a [u64],
}

/// What adds to the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writer {
    /// The embedding, before the first block.
    Embedding,
    /// The heads of a block's attention, before any direction is taken away.
    Heads(usize),
    /// What is taken away: added with its sign.
    Routing(usize),
    /// A block's feed-forward part.
    FeedForward(usize),
}

/// Sees what a network computes, block by block, and may put something else in its place.
pub trait Watch {
    /// How far each direction of a block is suppressed, `[batch, time or 1, heads · directions]`, f32.
    fn routing(&self, _block: usize, routing: Tensor) -> Result<Tensor, TchError> {
        Ok(routing)
    }

    /// What tokens chose in a step.
    fn routed(&self, _routed: &Routed<'_>) -> Result<(), TchError> {
        Ok(())
    }

    /// What a block's heads say, `[batch, time, heads · head]`.
    fn heads(&self, _block: usize, heads: Tensor) -> Result<Tensor, TchError> {
        Ok(heads)
    }

    /// What is added to the residual stream, `[batch, time, width]`.
    fn added(&self, _by: Writer, _what: &Tensor) -> Result<(), TchError> {
        Ok(())
    }
}

/// Looks on and does nothing.
pub struct Unwatched;

impl Watch for Unwatched {}
