//! What can go wrong with an inner step, or a trainer.

use tch::TchError;

use super::batches::BatchError;
use crate::model::WeightsError;

/// Why there was no step. Parameters, moments and cursor are as they were before it.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The sequences make no batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// No sequence of the batch has two tokens.
    #[error("no sequence of the batch at {cursor} has two tokens, so no token can be predicted")]
    NoTargets {
        /// Position in the order of sequences.
        cursor: u64,
    },
    /// Training diverged.
    #[error("step {step}: the {what} is {value}; training diverged, try a lower training.learning_rate")]
    NotFinite {
        /// Which step of the schedule.
        step: u64,
        /// The loss or the gradient's norm.
        what: &'static str,
        /// What it is.
        value: f64,
    },
    /// The network has no balance of choices to keep.
    #[error("balance of choices: {0}")]
    Balance(#[from] WeightsError),
    /// libtorch refused, out of memory most likely.
    #[error("inner step: {0}; if memory is short, set micro_batch_sequences in the machine's configuration")]
    Tensor(#[from] TchError),
}

/// Why there is no trainer, or it cannot take a state.
#[derive(Debug, thiserror::Error)]
pub enum TrainerError {
    /// The model cannot be made or its parameters not set.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Not one buffer for each level.
    #[error("this model has {expected} levels, found {found}")]
    Levels {
        /// What it has.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// The state is another model's.
    #[error("the inner state does not fit the model: level {level} has {expected} parameters, found {found}")]
    State {
        /// Which level.
        level: usize,
        /// Its parameters.
        expected: usize,
        /// Moments given.
        found: usize,
    },
    /// No threads.
    #[error("cannot start the optimiser's threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// libtorch refused, out of memory most likely.
    #[error("inner trainer: {0}")]
    Tensor(#[from] TchError),
}
