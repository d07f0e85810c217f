//! The network of a path: where its tensors live, how its levels lie in memory, and what it computes.

pub mod attention;
pub mod block;
pub mod device;
pub mod directional;
pub mod exchange;
pub mod hugging_face;
pub mod initial;
pub mod linear;
pub mod memory;
pub mod transformer;
pub mod watch;
pub mod weights;

pub use device::{DeviceError, end_process, open_device, set_threads, spin_briefly};
pub use initial::initial_levels;
pub use memory::Memory;
pub use transformer::{ForwardError, PathModel};
pub use weights::WeightsError;
