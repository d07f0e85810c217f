//! The network of a path: where its tensors live, how its levels lie in memory, and what it computes.

pub mod attention;
pub mod block;
pub mod device;
pub mod directional;
pub mod dna;
pub mod exchange;
pub mod feed_forward;
pub mod hugging_face;
pub mod initial;
pub mod input;
pub mod linear;
pub mod machine_class;
pub mod memory;
pub mod norm;
pub mod transformer;
pub mod watch;
pub mod weights;

pub use device::{DeviceError, device_name, end_process, open_device, set_threads, spin_briefly};
pub use initial::initial_levels;
pub use machine_class::machine_class;
pub use memory::Memory;
pub use transformer::{ForwardError, PathModel};
pub use weights::WeightsError;
