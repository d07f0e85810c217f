//! Errors of encoding and decoding frames.

use super::quantize::MAX_MAGNITUDE;

/// Version of the frame format.
pub(super) const FORMAT_VERSION: u16 = 1;

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum EncodeError {
    #[error(
        "value {value} at position {index} cannot be sent: values must be finite and at most {MAX_MAGNITUDE}; the path \
         has diverged, so lower its learning rate"
    )]
    Unfit { index: usize, value: f32 },
    #[error("zstd could not compress a chunk: {0}")]
    Zstd(String),
}

/// Why received bytes are not a frame of the expected values.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum FrameError {
    #[error("not a frame of compressed values")]
    NotAFrame,
    #[error("format version {0} of the frame is unknown; this program reads version {FORMAT_VERSION}")]
    Version(u16),
    #[error("codec {0} of the frame is unknown")]
    Codec(u16),
    #[error("the frame's codec is {found}, the run's is {expected}")]
    OtherCodec { found: u16, expected: u16 },
    #[error("the frame holds {found} values, expected {expected}")]
    Count { found: u64, expected: usize },
    #[error("the frame's sizes do not add up: {0}")]
    Size(&'static str),
    #[error("the frame's checksum is wrong")]
    Checksum,
    #[error("chunk {0} of the frame does not decompress to its stated size")]
    Chunk(usize),
    #[error("chunk {0} of the frame holds values or scales that are not finite, negative or too large")]
    Values(usize),
    #[error("chunk {0} of the frame has padding that is not zero")]
    Padding(usize),
}
