//! Configuration of a run and of a machine, from files to checked values.

pub mod admission;
pub mod augment;
mod checking;
pub mod emulated_link;
mod key_error;
pub mod machine;
pub mod model;
pub mod outer;
pub mod routing;
pub mod run;
pub mod sample;
pub mod source;
mod stages;
pub mod streaming;
mod trainers;
pub mod training;

pub use crate::config::checking::MOST_IN_A_ROUND;
pub use crate::config::model::adapter::AdapterConfig;
pub use crate::config::model::directional::{DirectionalConfig, Pooling, RouterReads};
pub use crate::config::model::dna::{DnaConfig, ModuleKind, Pool};
pub use crate::config::model::images::{ImagesConfig, Reads};
pub use crate::config::model::levels::{
    LevelConfig, first_block, frozen_parts, level_parameters, level_parts, level_tensors,
};
pub use crate::config::model::parts::{Part, TensorSpec};
pub use crate::config::source::resolve::{Entry, ResolveError, Resolved};
pub use crate::config::source::settings::{Origin, Setting, Settings};
pub use augment::Augment;
pub use emulated_link::Link;
pub use key_error::KeyError;
pub use machine::device::{DeviceChoice, Devices, MOST_DEVICES, NotDevices};
pub use machine::{Answer, Checkpointing, MachineConfig, MomentFormat, Precision, PrecisionChoice, Share};
pub use model::blocks::{Activation, Biases, NormKind, NormPlacement, Positions, QkNorm};
pub use model::rotary::{RotaryConfig, RotaryScaling};
pub use model::{Architecture, ModelConfig};
pub use outer::{Codec, OuterConfig, OuterMode, Rescale, Unsent};
pub use routing::{RoutingMethod, Starts};
pub use run::{ChatConfig, RunConfig, TextConfig, TextFormat};
pub use sample::SampleConfig;
pub use streaming::{Stagger, Streaming};
pub use training::{Decay, MAX_PHASES, Optimizer, TrainingConfig};

// For keys that may be left out. What has its default is not written to a manifest, so that the ids of runs that lack the key
// stay the same.

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
