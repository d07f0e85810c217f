//! The outer step: contributions are summed exactly, averaged, and applied to a module by Nesterov's rule, once per
//! round ([`nesterov`]) or as they arrive ([`delayed`]).
//!
//! The same bytes give the same state on any machine and in any order of arrival: [`ExactSum`] rounds each value once
//! to a fixed grid and adds integers, [`nesterov::step`] uses plain f32 operations in a fixed order, and the hash of a
//! [`ModuleState`] covers all of it. Plain slices, no tensors.

pub mod agreement;
pub mod centred_clipping;
pub mod delayed;
pub mod exact_sum;
pub mod mixing;
pub mod nesterov;
pub mod norm;
pub mod open_sum;
pub mod recount;
pub mod rescale;
pub mod state;
pub mod step;

pub use agreement::{GradientNorms, Lengths};
pub use centred_clipping::CentredClipping;
pub use delayed::Share;
pub use exact_sum::ExactSum;
pub use mixing::mix;
pub use open_sum::OpenSum;
pub use rescale::rescale_factor;
pub use state::{ModuleState, StateError};

/// Values per rayon task. Every operation here is elementwise, so this changes no result.
const CHUNK_VALUES: usize = 1 << 16;
