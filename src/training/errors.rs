//! Errors of inner steps and of trainers.

use tch::TchError;

use super::batches::BatchError;
use crate::model::WeightsError;

/// Why a step failed. Parameters, moments and cursor are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("no sequence of the batch at {cursor} has two tokens, so no token can be predicted")]
    NoTargets { cursor: u64 },
    #[error("step {step}: the {what} is {value}; training diverged, try a lower training.learning_rate")]
    NotFinite { step: u64, what: &'static str, value: f64 },
    #[error("balance of choices: {0}")]
    Balance(#[from] WeightsError),
    #[error("inner step: {0}; if memory is short, set micro_batch_sequences in the machine's configuration")]
    Tensor(#[from] TchError),
}

/// # Errors
/// If the value is not finite.
pub(super) fn finite(step: u64, what: &'static str, value: f64) -> Result<(), StepError> {
    if value.is_finite() { Ok(()) } else { Err(StepError::NotFinite { step, what, value }) }
}

#[derive(Debug, thiserror::Error)]
pub enum TrainerError {
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("this model has {expected} levels, found {found}")]
    Levels { expected: usize, found: usize },
    #[error("the inner state does not fit the model: level {level} has {expected} parameters, found {found}")]
    State { level: usize, expected: usize, found: usize },
    #[error("cannot start the optimiser's threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    #[error("inner trainer: {0}")]
    Tensor(#[from] TchError),
}
