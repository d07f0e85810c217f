//! An outer step on encoded bytes: an owner combines a sum into an average, and every member applies it. Peers and the
//! simulator share this code.

use super::delayed::Share;
use super::exact_sum::ExactSum;
use super::rescale::rescale_factor;
use super::state::{ModuleState, StateError};
use crate::compress::{EncodeError, FrameError, frame};
use crate::config::OuterConfig;
use crate::names::ModuleId;

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("the state before it: {0}")]
    State(#[from] StateError),
    #[error("the average: {0}")]
    Frame(#[from] FrameError),
}

/// The compressed average of a sum, rescaled for this many paths (DiPaCo, section 2.7).
pub fn combine(sum: &ExactSum, paths: usize, outer: &OuterConfig) -> Result<Vec<u8>, EncodeError> {
    frame::encode(outer.average_codec(), &sum.average(rescale_factor(outer.rescale, paths)))
}

/// Applies a compressed average, with this share of a round, to an encoded state of `count` values, and returns the new
/// encoded state.
pub fn apply(
    state: &[u8],
    module: ModuleId,
    count: usize,
    average: &[u8],
    share: Share,
    outer: &OuterConfig,
) -> Result<Vec<u8>, ApplyError> {
    let mut state = ModuleState::decode(state, module, count)?;
    let average = frame::decode_as(outer.average_codec(), average, count)?;
    state.apply(&average, share, outer.learning_rate, outer.momentum)?;
    Ok(state.encode())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compress::{decode_as, encode};
    use crate::config::{Codec, OuterMode, Rescale};

    const COUNT: usize = 300;

    proptest! {
        /// No accepted contribution prevents an update that every member can apply.
        #[test]
        fn accepted_contributions_always_make_an_applicable_update(
            codec in prop::sample::select(vec![Codec::Fp32, Codec::Int4, Codec::Int2, Codec::Sparse, Codec::TopK(40)]),
            rescale in prop::sample::select(vec![Rescale::None, Rescale::SqrtPaths]),
            exponents in prop::collection::vec((-40i32..17, any::<bool>(), 1u32..20_000), 1..9),
        ) {
            let outer = OuterConfig { codec, rescale, ..OuterConfig::default() };
            let module = ModuleId { level: 0, expert: 0 };
            let mut sum = ExactSum::new(COUNT);
            for (exponent, cancels, weight) in &exponents {
                let sign = if *cancels { -1.0 } else { 1.0 };
                let mut values = vec![sign * 2.0f32.powi(*exponent); COUNT];
                values[7] = 2.0f32.powi(exponent / 2);
                let frame = encode(codec, &values).unwrap();
                sum.add(&decode_as(codec, &frame, COUNT).unwrap(), *weight).unwrap();
            }
            let average = combine(&sum, exponents.len(), &outer).unwrap();
            let state = ModuleState::initial(module, vec![0.5; COUNT], OuterMode::Synchronous).encode();
            prop_assert!(apply(&state, module, COUNT, &average, Share::FULL, &outer).is_ok());
        }
    }
}
