//! Hooks into a forward pass, by which the tools of `inspect` record or replace intermediate values.

use tch::{TchError, Tensor};

/// The choices of tokens in one step.
pub struct Routed<'a> {
    pub step: usize,
    /// ρ, `[tokens, modules]`.
    pub scores: &'a Tensor,
    /// The chosen modules of each token, `top_k` for each, best first.
    pub chosen: &'a [i64],
    /// Number of tokens that chose each module.
    pub counts: &'a [u64],
}

/// The source of an addition to the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writer {
    /// The embedding, before the first block.
    Embedding,
    /// The heads of a block's attention, before suppression.
    Heads(usize),
    /// The suppressed part, with its sign.
    Routing(usize),
    /// A block's feed-forward part.
    FeedForward(usize),
}

/// Observes a forward pass block by block, and can replace values.
pub trait Watch {
    /// The suppression of each direction of a block, `[batch, time or 1, heads · directions]`, f32.
    fn routing(&self, _block: usize, routing: Tensor) -> Result<Tensor, TchError> {
        Ok(routing)
    }

    /// The choices in a step.
    fn routed(&self, _routed: &Routed<'_>) -> Result<(), TchError> {
        Ok(())
    }

    /// The outputs of a block's heads, `[batch, time, heads · head]`.
    fn heads(&self, _block: usize, heads: Tensor) -> Result<Tensor, TchError> {
        Ok(heads)
    }

    /// An addition to the residual stream, `[batch, time, width]`.
    fn added(&self, _by: Writer, _what: &Tensor) -> Result<(), TchError> {
        Ok(())
    }
}

/// Does nothing.
pub struct Unwatched;

impl Watch for Unwatched {}
