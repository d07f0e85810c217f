//! How outer gradients and their averages travel: few bits a value, checked before they are believed.
//!
//! Values are cut into chunks, each chunk is quantised (`quantize`), compressed by zstd and put behind one header
//! (`header`, [`frame`]); what quantising lost is kept for the next time ([`residual`]). Plain slices, no tensors.
//! The layout, byte by byte, is in `docs/formats.md`.

pub mod frame;
mod header;
mod quantize;
pub mod residual;

pub use frame::{EncodeError, FrameError, decode, encode, max_bytes};
pub use quantize::MAX_MAGNITUDE;
pub use residual::compress_with_feedback;
