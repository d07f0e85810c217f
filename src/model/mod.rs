//! The network of a path: its tensors, the layout of its levels in memory, and its computation.

pub mod device;
pub mod dna;
pub mod exchange;
pub mod hugging_face;
pub mod initial;
pub mod layers;
#[cfg(test)]
pub(crate) mod samples;
pub mod transformer;
pub mod weights;

pub use crate::model::layers::kv_cache::Memory;
pub use device::{device_name, open_device, set_threads, spin_briefly};
pub use initial::initial_levels;
pub use transformer::{ForwardError, PathModel};
pub use weights::WeightsError;
