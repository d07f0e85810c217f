//! An outer step, on the bytes that are stored and sent: what an owner makes of a sum, and what every member makes of
//! that. The peer and the simulator both call just this.

use super::delayed::Share;
use super::exact_sum::ExactSum;
use super::rescale::rescaled;
use super::state::{ModuleState, StateError};
use crate::compress::frame::{self, EncodeError, FrameError};
use crate::config::OuterConfig;
use crate::names::ModuleId;

/// Why an average could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The state is not this module's.
    #[error("the state before it: {0}")]
    State(#[from] StateError),
    /// The average is not a frame of as many values.
    #[error("the average: {0}")]
    Frame(#[from] FrameError),
}

/// The compressed average of a sum, rescaled for this many paths (DiPaCo, section 2.3).
///
/// # Errors
/// If the average is not finite.
pub fn combine(sum: &ExactSum, paths: usize, outer: &OuterConfig) -> Result<Vec<u8>, EncodeError> {
    frame::encode(outer.average_codec(), &rescaled(sum, outer.rescale, paths))
}

/// The encoded state that a compressed average, this share of a round, makes of an encoded state of `count` values.
///
/// # Errors
/// If either does not decode.
pub fn apply(
    state: &[u8],
    module: ModuleId,
    count: usize,
    average: &[u8],
    share: Share,
    outer: &OuterConfig,
) -> Result<Vec<u8>, ApplyError> {
    let mut state = ModuleState::decode(state, module, count)?;
    let average = frame::decode(average, count)?;
    state.apply(&average, share, outer.learning_rate, outer.momentum)?;
    Ok(state.encode())
}
