//! What a device is worth: whether it computes what the CPU computes, and how fast it trains.

pub mod agreement;
pub mod networks;
pub mod speed;

pub use agreement::{Agreement, Mode, agreement};
pub use networks::{Network, SIZES, Size, networks};
pub use speed::{Rate, rate};

use crate::model::WeightsError;
use crate::training::{EvaluateError, StepError, TrainerError};

/// Why a device could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum DeviceCheckError {
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("{0}")]
    Tensor(#[from] tch::TchError),
}
