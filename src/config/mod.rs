//! What a run is and what a machine brings, from files to checked values.

mod checking;
pub mod directional;
pub mod levels;
pub mod machine;
pub mod model;
pub mod outer;
pub mod parts;
mod places;
pub mod resolve;
pub mod routing;
pub mod run;
pub mod sample;
mod schema;
pub mod settings;
mod stages;
mod starts;

pub use directional::{DirectionalConfig, Pooling};
pub use levels::{LevelConfig, level_parameters, level_tensors};
pub use machine::{DeviceChoice, MachineConfig, Precision};
pub use model::{Activation, ModelConfig, ModelError, Positions};
pub use outer::{Codec, Divide, OuterConfig, OuterMode, Rescale};
pub use parts::{Part, TensorSpec};
pub use resolve::{Entry, ResolveError, Resolved};
pub use routing::{RoutingConfig, RoutingMethod};
pub use run::{RunConfig, TextConfig, TrainingConfig};
pub use sample::SampleConfig;
pub use settings::{Origin, Setting, SettingError, Settings};
pub use starts::Starts;
