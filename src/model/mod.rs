//! The network of a path: its tensors, the layout of its levels in memory, and its computation.

pub mod device;
pub mod dna;
pub mod exchange;
pub mod forward_error;
pub mod fused;
pub(crate) mod host_values;
pub mod hugging_face;
pub mod initial;
pub mod kernels;
pub mod layers;
pub mod merged;
pub mod precision;
mod prefix_features;
#[cfg(test)]
pub(crate) mod samples;
pub mod tensor_memory;
pub mod transformer;
pub mod weights;

pub use crate::model::layers::kv_cache::Memory;
pub use device::{LIBTORCH, device_name, kind_of_sums, open_device, set_threads, spin_briefly, threads, unused_card};
pub use forward_error::ForwardError;
pub use initial::initial_levels;
pub use precision::{matrix_flops_per_s, precision_on, synchronize};
pub use tch::Device;
pub use transformer::PathModel;
pub use weights::WeightsError;
