//! How outer gradients and their averages travel: few bits a value, checked before they are believed.
//!
//! Values are cut into chunks. A chunk is quantised (`quantize`) and compressed by zstd, or few of its values are chosen
//! (`sparse`) and told where they stand (`range_coded`). Chunks come behind one header (`header`, [`frame`]); what is lost
//! is kept for the next time ([`residual`]). Plain slices, no tensors.
//! The layout, byte by byte, is in `docs/reference/formats/compression.md`.

mod error;
pub mod frame;
mod header;
mod quantize;
mod range_coded;
pub mod residual;
mod sparse;

pub use error::{EncodeError, FrameError};
pub use frame::{decode, decode_as, encode, max_bytes};
pub use quantize::MAX_MAGNITUDE;
pub use residual::compress_with_feedback;
