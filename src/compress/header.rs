//! The 32 bytes before the chunks: a description of the frame, and a checksum over all of it.

use super::error::{FORMAT_VERSION, FrameError};
use crate::config::Codec;

const MAGIC: [u8; 4] = *b"pswf";
pub(super) const HEADER_BYTES: usize = 32;
const CHECKED_BYTES: usize = 24;

/// The fields of a header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Header {
    /// The quantisation. [`Codec::Sparse`] also stands for top-k, which decodes alike.
    pub codec: Codec,
    /// Number of values.
    pub count: u64,
    /// Size of all chunks, decompressed.
    pub payload: u64,
}

impl Header {
    /// A header without its checksum, which [`seal`] fills in when the body is complete.
    pub fn unsealed(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&number_of(self.codec).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..CHECKED_BYTES].copy_from_slice(&self.payload.to_le_bytes());
        bytes
    }

    /// Reads the header of a frame. [`is_sealed`] checks the checksum.
    pub fn read(frame: &[u8]) -> Result<Self, FrameError> {
        let header: &[u8; HEADER_BYTES] = frame.first_chunk().ok_or(FrameError::NotAFrame)?;
        let [m0, m1, m2, m3, v0, v1, c0, c1, rest @ ..] = *header;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(FrameError::NotAFrame);
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != FORMAT_VERSION {
            return Err(FrameError::Version(version));
        }
        let number = u16::from_le_bytes([c0, c1]);
        let codec = codec_of(number).ok_or(FrameError::Codec(number))?;
        let word = |at: usize| rest[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Ok(Self { codec, count: word(0), payload: word(8) })
    }
}

/// The number of a codec in a header.
pub(super) fn number_of(codec: Codec) -> u16 {
    match codec {
        Codec::Fp32 => 0,
        Codec::Int8 => 1,
        Codec::Int4 => 2,
        Codec::Fp16 => 3,
        Codec::Int2 => 4,
        Codec::Sparse | Codec::TopK(_) => 5,
    }
}

fn codec_of(number: u16) -> Option<Codec> {
    let codecs = [Codec::Fp32, Codec::Int8, Codec::Int4, Codec::Fp16, Codec::Int2, Codec::Sparse];
    codecs.into_iter().find(|codec| number_of(*codec) == number)
}

/// Sets the checksum of a frame with at least a header.
pub(super) fn seal(frame: &mut [u8]) {
    let checksum = checksum(frame);
    frame[CHECKED_BYTES..HEADER_BYTES].copy_from_slice(&checksum);
}

/// Whether the checksum of a frame with at least a header is right.
pub(super) fn is_sealed(frame: &[u8]) -> bool {
    frame[CHECKED_BYTES..HEADER_BYTES] == checksum(frame)
}

/// Over the header before it and the body after it.
fn checksum(frame: &[u8]) -> [u8; HEADER_BYTES - CHECKED_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&frame[..CHECKED_BYTES]);
    hasher.update_rayon(&frame[HEADER_BYTES..]);
    let mut checksum = [0; HEADER_BYTES - CHECKED_BYTES];
    hasher.finalize_xof().fill(&mut checksum);
    checksum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::{decode, encode};

    #[test]
    fn the_header_is_what_the_document_says() {
        let frame = encode(Codec::Int4, &[7.0; 200]).unwrap();
        assert_eq!(frame[..8], *b"pswf\x01\0\x02\0");
        assert_eq!(frame[8..16], 200u64.to_le_bytes());
        assert_eq!(frame[16..24], (2u64 * 66).to_le_bytes());
        let checked = [&frame[..24], &frame[32..]].concat();
        assert_eq!(frame[24..32], blake3::hash(&checked).as_bytes()[..8]);
        assert_eq!(frame[32..36], (frame.len() as u32 - 36).to_le_bytes());
    }

    #[test]
    fn each_wrong_header_is_named() {
        let frame = encode(Codec::Int8, &[0.5; 300]).unwrap();
        let with = |at: usize, byte: u8| {
            let mut frame = frame.clone();
            frame[at] = byte;
            seal(&mut frame);
            decode(&frame, 300).unwrap_err()
        };
        assert_eq!(with(0, b'P'), FrameError::NotAFrame);
        assert_eq!(with(4, 2), FrameError::Version(2));
        assert_eq!(with(6, 9), FrameError::Codec(9));
        assert_eq!(with(7, 1), FrameError::Codec(257));
        assert_eq!(with(15, 1), FrameError::Count { found: 300 + (1 << 56), expected: 300 });
        assert!(matches!(with(16, 0), FrameError::Size(_)));
        assert!(matches!(with(6, 2), FrameError::Size(_)));
        assert!(matches!(with(34, 255), FrameError::Size(_)));
        assert_eq!(decode(&frame, 301), Err(FrameError::Count { found: 300, expected: 301 }));
        let mut longer = [&frame[..], &[0]].concat();
        seal(&mut longer);
        assert_eq!(decode(&longer, 300), Err(FrameError::Size("bytes follow the last chunk")));
    }
}
