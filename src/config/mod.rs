//! What a run is and what a machine brings, from files to checked values.

pub mod levels;
pub mod machine;
pub mod model;
pub mod run;

pub use levels::{LevelConfig, level_parameters, level_tensors};
pub use machine::{DeviceChoice, MachineConfig, Precision};
pub use model::{ModelConfig, Part, Positions, TensorSpec};
pub use run::{Codec, OuterConfig, Rescale, RoutingConfig, RoutingMethod, RunConfig, TextConfig, TrainingConfig};
