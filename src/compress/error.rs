//! Why values cannot be sent, or received bytes are not values.

use super::quantize::MAX_MAGNITUDE;

/// The version of the frame's format.
pub(super) const FORMAT_VERSION: u16 = 1;

/// Why values cannot be sent.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum EncodeError {
    /// Training went wrong before this.
    #[error(
        "value {value} at position {index} cannot be sent: values must be finite and at most {MAX_MAGNITUDE}; the path \
         has diverged, so lower its learning rate"
    )]
    Unfit {
        /// Where.
        index: usize,
        /// What stands there.
        value: f32,
    },
    /// zstd would not.
    #[error("zstd could not compress a chunk: {0}")]
    Zstd(String),
}

/// Why received bytes are not a frame of the expected values.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum FrameError {
    /// Too short, or another kind of file.
    #[error("not a frame of compressed values")]
    NotAFrame,
    /// Written by a newer program.
    #[error("format version {0} of the frame is unknown; this program reads version {FORMAT_VERSION}")]
    Version(u16),
    /// An unknown codec, or reserved bits that are set.
    #[error("codec {0} of the frame is unknown")]
    Codec(u16),
    /// Another way of writing values than the run's.
    #[error("the frame's codec is {found}, the run's is {expected}")]
    OtherCodec {
        /// The number in its header.
        found: u16,
        /// The number of the run's.
        expected: u16,
    },
    /// Values of another module.
    #[error("the frame holds {found} values, expected {expected}")]
    Count {
        /// What its header says.
        found: u64,
        /// What the module needs.
        expected: usize,
    },
    /// The sizes in the frame do not add up.
    #[error("the frame's sizes do not add up: {0}")]
    Size(&'static str),
    /// Damaged on the way.
    #[error("the frame's checksum is wrong")]
    Checksum,
    /// zstd refuses a chunk.
    #[error("chunk {0} of the frame does not decompress to its stated size")]
    Chunk(usize),
    /// A chunk whose values make no sense.
    #[error("chunk {0} of the frame holds values or scales that are not finite, negative or too large")]
    Values(usize),
    /// A chunk whose padding carries something.
    #[error("chunk {0} of the frame has padding that is not zero")]
    Padding(usize),
}
