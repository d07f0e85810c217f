//! Inner steps on one path, and its measurements: loss, scores, samples.

pub mod batches;
pub mod choose;
pub mod classes;
pub mod device;
pub mod errors;
pub mod evaluate;
pub mod generate;
pub mod inner;
pub mod level_bytes;
pub mod memory_plan;
pub mod outer_gradient;
pub mod sampler;
#[cfg(test)]
pub(crate) mod samples;
pub mod smaller_batches;
pub mod token_scores;

pub use crate::training::batches::marked::Marked;
pub use crate::training::inner::schedule::{learning_rate, place_in_schedule};
pub use crate::training::inner::state::{InnerState, InnerStateError};
pub use batches::{BatchOrder, Sequences};
pub use choose::preferences;
pub use classes::right_classes;
pub use errors::{StepError, TrainerError};
pub use evaluate::{EvaluateError, Score, evaluate, evaluate_each, target_losses};
pub use generate::{Decoding, GenerateError, Sampling, generate, seen_from};
pub use inner::{InnerTrainer, StepReport};
pub use level_bytes::{LevelReader, put_levels};
pub use outer_gradient::{OuterGradientError, outer_gradient, own_copy};
pub use sampler::{Sampler, likeliest, log_normalizer};
pub use token_scores::{TokenScore, generate_with_scores, scored, token_scores};
