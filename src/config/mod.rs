//! Configuration of a run and of a machine, from files to checked values.

mod admission;
pub mod augment;
mod checking;
pub mod emulated_link;
pub mod machine;
pub mod model;
pub mod outer;
pub mod routing;
pub mod run;
pub mod sample;
mod scored_tokens;
pub mod source;
mod stages;
pub mod streaming;
pub mod training;

pub use crate::config::checking::MOST_IN_A_ROUND;
pub use crate::config::model::directional::{DirectionalConfig, Pooling};
pub use crate::config::model::dna::{DnaConfig, ModuleKind, Pool};
pub use crate::config::model::images::{ImagesConfig, Reads};
pub use crate::config::model::levels::{LevelConfig, level_parameters, level_tensors};
pub use crate::config::model::parts::{Part, TensorSpec};
pub use crate::config::scored_tokens::Starts;
pub use crate::config::source::resolve::{Entry, ResolveError, Resolved};
pub use crate::config::source::settings::{Origin, Setting, Settings};
pub use augment::Augment;
pub use emulated_link::Link;
pub use machine::{Answer, DeviceChoice, MachineConfig, Precision, Share};
pub use model::blocks::{Activation, Biases, NormKind, NormPlacement, Positions, QkNorm};
pub use model::rotary::{RotaryConfig, RotaryError, RotaryScaling};
pub use model::{Architecture, ModelConfig, ModelError};
pub use outer::{Codec, OuterConfig, OuterMode, Rescale, Unsent};
pub use routing::RoutingMethod;
pub use run::{RunConfig, TextConfig};
pub use sample::SampleConfig;
pub use streaming::{Stagger, Streaming};
pub use training::{Decay, TrainingConfig};
