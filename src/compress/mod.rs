//! Compression of outer gradients and averages: a few bits a value, with checks of everything received.
//!
//! Values are cut into chunks. A chunk is quantised (`quantize`) and compressed by zstd; or a few of its values are
//! selected (`sparse`) and their positions encoded (`range_coded`). Chunks follow a header (`header`, [`frame`]); the
//! residual is kept for the next time ([`residual`]). Plain slices, no tensors. The layout, byte by byte, is in
//! `docs/reference/formats/compression.md`.

mod error;
pub mod frame;
mod header;
mod quantize;
mod range_coded;
pub mod residual;
mod sparse;

pub use error::{EncodeError, FrameError};
pub use frame::{decode, decode_as, encode, max_bytes};
pub use residual::compress_with_feedback;
