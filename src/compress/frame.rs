//! The frame in which values travel: a checked header, then chunks that zstd has compressed.
//!
//! Chunks are independent, so that large modules are encoded and decoded on all cores; how many there are follows from
//! the count alone, so the bytes do not depend on the number of threads. A decoder is told how many values to expect
//! and believes nothing: sizes are checked before allocation, the checksum before decompression, and each chunk is
//! decompressed into a buffer of exactly the stated size.

use std::cell::RefCell;

use rayon::prelude::*;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

use super::header::{FORMAT_VERSION, HEADER_BYTES, Header, is_sealed, number_of, seal};
use super::quantize::{MAX_MAGNITUDE, PayloadError, dequantize, payload_bytes, quantize};
use super::sparse;
use crate::config::Codec;

/// Values in a chunk; the last one holds the rest.
pub const CHUNK_VALUES: usize = 1 << 18;

const LENGTH_BYTES: usize = 4;

/// Levels 1 to 6 come out alike on quantised noise, which has no repetitions to be found: only the entropy coder
/// saves, and the lowest level is the fastest (figures in `docs/formats.md`).
const ZSTD_LEVEL: i32 = 1;

/// 2²¹ bytes, twice the largest chunk: no honest chunk needs a wider window.
const WINDOW_LOG_MAX: u32 = 21;

/// Why values cannot be sent.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum EncodeError {
    /// Training went wrong before this.
    #[error(
        "value {value} at position {index} cannot be sent: values must be finite and at most {MAX_MAGNITUDE}; the path has diverged, lower its learning rate"
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

/// No frame of `count` values is longer than this.
pub fn max_bytes(codec: Codec, count: usize) -> u64 {
    let body: u64 = chunk_counts(count).map(|count| (LENGTH_BYTES + max_chunk_bytes(codec, count)) as u64).sum();
    HEADER_BYTES as u64 + body
}

fn max_chunk_bytes(codec: Codec, count: usize) -> usize {
    if is_sparse(codec) {
        return sparse::max_bytes(codec, count);
    }
    let payload = payload_bytes(codec, count);
    payload + payload / 256 + 512
}

/// Whether chunks are [places and sizes](super::sparse), not values that zstd has compressed.
fn is_sparse(codec: Codec) -> bool {
    matches!(codec, Codec::Sparse | Codec::TopK(_))
}

fn chunk_counts(count: usize) -> impl Iterator<Item = usize> {
    (0..count.div_ceil(CHUNK_VALUES)).map(move |chunk| CHUNK_VALUES.min(count - chunk * CHUNK_VALUES))
}

/// The bytes that stand for these values.
///
/// # Errors
/// A value that is not finite or larger than [`MAX_MAGNITUDE`].
pub fn encode(codec: Codec, values: &[f32]) -> Result<Vec<u8>, EncodeError> {
    let chunks = values.par_chunks(CHUNK_VALUES).enumerate();
    let chunks = chunks.map(|(chunk, values)| encode_chunk(codec, chunk, values, None));
    let chunks = chunks.collect::<Result<Vec<_>, _>>()?;
    Ok(assemble(codec, values.len(), &chunks))
}

/// As [`encode`]; fills `residual`, which must be as long as `values`, with what a receiver will be missing.
pub(super) fn encode_with_residual(codec: Codec, values: &[f32], residual: &mut [f32]) -> Result<Vec<u8>, EncodeError> {
    let pairs = values.par_chunks(CHUNK_VALUES).zip(residual.par_chunks_mut(CHUNK_VALUES));
    let chunks = pairs.enumerate().map(|(chunk, (values, residual))| {
        let bytes = encode_chunk(codec, chunk, values, Some(residual))?;
        for (residual, value) in residual.iter_mut().zip(values) {
            *residual = value - *residual;
        }
        Ok(bytes)
    });
    let chunks = chunks.collect::<Result<Vec<_>, _>>()?;
    Ok(assemble(codec, values.len(), &chunks))
}

type Ready<Coder> = RefCell<(std::io::Result<Coder>, Vec<u8>)>;

thread_local! {
    /// zstd's contexts and a chunk's payload, for each thread: making a context takes longer than a small chunk.
    static COMPRESSOR: Ready<Compressor<'static>> = RefCell::new((Compressor::new(ZSTD_LEVEL), Vec::new()));
    static DECOMPRESSOR: Ready<Decompressor<'static>> = RefCell::new((bounded_decompressor(), Vec::new()));
}

fn bounded_decompressor() -> std::io::Result<Decompressor<'static>> {
    let mut decompressor = Decompressor::new()?;
    decompressor.window_log_max(WINDOW_LOG_MAX)?;
    Ok(decompressor)
}

/// Fills `decoded` with what a receiver will have.
fn encode_chunk(
    codec: Codec,
    chunk: usize,
    values: &[f32],
    decoded: Option<&mut [f32]>,
) -> Result<Vec<u8>, EncodeError> {
    let unfit = |index| EncodeError::Unfit { index: chunk * CHUNK_VALUES + index, value: values[index] };
    let well_formed = "what was just encoded is well formed";
    if is_sparse(codec) {
        let mut bytes = Vec::new();
        sparse::encode(codec, values, &mut bytes).map_err(unfit)?;
        if let Some(decoded) = decoded {
            sparse::decode(codec, &bytes, decoded).expect(well_formed);
        }
        return Ok(bytes);
    }
    COMPRESSOR.with_borrow_mut(|(compressor, payload)| {
        quantize(codec, values, payload).map_err(unfit)?;
        if let Some(decoded) = decoded {
            dequantize(codec, payload, decoded).expect(well_formed);
        }
        let zstd = |error: &std::io::Error| EncodeError::Zstd(error.to_string());
        compressor.as_mut().map_err(|error| zstd(error))?.compress(payload).map_err(|error| zstd(&error))
    })
}

fn assemble(codec: Codec, count: usize, chunks: &[Vec<u8>]) -> Vec<u8> {
    let body: usize = chunks.iter().map(|chunk| LENGTH_BYTES + chunk.len()).sum();
    let mut frame = Vec::with_capacity(HEADER_BYTES + body);
    frame.extend(Header { codec, count: count as u64, payload: total_payload(codec, count) }.unsealed());
    for chunk in chunks {
        // A chunk is at most 1 MiB and a little, so its length fits.
        frame.extend((chunk.len() as u32).to_le_bytes());
    }
    for chunk in chunks {
        frame.extend_from_slice(chunk);
    }
    seal(&mut frame);
    frame
}

fn total_payload(codec: Codec, count: usize) -> u64 {
    chunk_counts(count).map(|count| payload_bytes(codec, count) as u64).sum()
}

/// The values in a frame, if there are `count` of them.
///
/// # Errors
/// If the bytes are not exactly such a frame; nothing in them can make this panic or allocate more than the values
/// need.
pub fn decode(frame: &[u8], count: usize) -> Result<Vec<f32>, FrameError> {
    let codec = check_header(frame, count)?;
    decode_checked(codec, frame, count)
}

/// The same of a frame that is written in this codec and no other: a contribution, or an average, of a run that has it.
///
/// # Errors
/// As [`decode`]; if the frame is of another codec, or more of a block are kept than the codec keeps.
pub fn decode_as(codec: Codec, frame: &[u8], count: usize) -> Result<Vec<f32>, FrameError> {
    let (found, expected) = (number_of(check_header(frame, count)?), number_of(codec));
    if found != expected {
        return Err(FrameError::OtherCodec { found, expected });
    }
    decode_checked(codec, frame, count)
}

fn decode_checked(codec: Codec, frame: &[u8], count: usize) -> Result<Vec<f32>, FrameError> {
    let chunks = cut_chunks(codec, &frame[HEADER_BYTES..], count)?;
    if !is_sealed(frame) {
        return Err(FrameError::Checksum);
    }
    let mut values = vec![0.0; count];
    let places = values.par_chunks_mut(CHUNK_VALUES).zip(chunks).enumerate();
    places.try_for_each(|(chunk, (values, bytes))| {
        let wrong = |error| match error {
            PayloadError::Unfit => FrameError::Values(chunk),
            PayloadError::Padding => FrameError::Padding(chunk),
        };
        if is_sparse(codec) {
            return sparse::decode(codec, bytes, values).map_err(wrong);
        }
        DECOMPRESSOR.with_borrow_mut(|(decompressor, payload)| {
            let decompressor = decompressor.as_mut().map_err(|_| FrameError::Chunk(chunk))?;
            let payload_bytes = payload_bytes(codec, values.len());
            decompress(decompressor, bytes, payload_bytes, payload).ok_or(FrameError::Chunk(chunk))?;
            dequantize(codec, payload, values).map_err(wrong)
        })
    })?;
    Ok(values)
}

fn check_header(frame: &[u8], count: usize) -> Result<Codec, FrameError> {
    let header = Header::read(frame)?;
    if header.count != count as u64 {
        return Err(FrameError::Count { found: header.count, expected: count });
    }
    if header.payload != total_payload(header.codec, count) {
        return Err(FrameError::Size("the decompressed size is not what the count and codec give"));
    }
    Ok(header.codec)
}

/// Cuts the body along its table of lengths, which must account for every byte.
fn cut_chunks(codec: Codec, body: &[u8], count: usize) -> Result<Vec<&[u8]>, FrameError> {
    let table_bytes = count.div_ceil(CHUNK_VALUES) * LENGTH_BYTES;
    let (table, mut rest) = body.split_at_checked(table_bytes).ok_or(FrameError::Size("the table is cut off"))?;
    let mut chunks = Vec::with_capacity(table_bytes / LENGTH_BYTES);
    for (length, count) in table.as_chunks::<LENGTH_BYTES>().0.iter().zip(chunk_counts(count)) {
        let length = u32::from_le_bytes(*length) as usize;
        if length > max_chunk_bytes(codec, count) {
            return Err(FrameError::Size("a chunk is longer than its values can be"));
        }
        let (chunk, after) = rest.split_at_checked(length).ok_or(FrameError::Size("a chunk is cut off"))?;
        chunks.push(chunk);
        rest = after;
    }
    if rest.is_empty() { Ok(chunks) } else { Err(FrameError::Size("bytes follow the last chunk")) }
}

/// Decompresses exactly one zstd frame, which spans `bytes` and states `expected` bytes, into `payload`.
fn decompress(decompressor: &mut Decompressor<'_>, bytes: &[u8], expected: usize, payload: &mut Vec<u8>) -> Option<()> {
    let whole = zstd_safe::find_frame_compressed_size(bytes).ok()? == bytes.len();
    let stated = zstd_safe::get_frame_content_size(bytes).ok()?? == expected as u64;
    if !whole || !stated {
        return None;
    }
    payload.resize(expected, 0);
    let written = decompressor.decompress_to_buffer(bytes, payload.as_mut_slice()).ok()?;
    (written == expected).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::RngExt;

    use super::*;
    use crate::seed::Seed;

    const CODECS: [Codec; 7] =
        [Codec::Fp32, Codec::Fp16, Codec::Int8, Codec::Int4, Codec::Int2, Codec::Sparse, Codec::TopK(64)];

    /// Gaussian noise by Box and Muller: the hardest values to compress.
    fn noise(count: usize) -> Vec<f32> {
        let mut dice = Seed::root(5).generator();
        let mut normal = || {
            let radius = (-2.0 * (1.0 - dice.random::<f64>()).ln()).sqrt();
            (1.0e-3 * radius * (std::f64::consts::TAU * dice.random::<f64>()).cos()) as f32
        };
        (0..count).map(|_| normal()).collect()
    }

    /// Makes the checksum right again, as an attacker would.
    fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
        if frame.len() >= HEADER_BYTES {
            seal(&mut frame);
        }
        frame
    }

    #[test]
    fn values_come_back_within_half_a_level() {
        let noise = noise(CHUNK_VALUES + 1000);
        for count in [0, 1, 127, 128, 129, CHUNK_VALUES, CHUNK_VALUES + 1, noise.len()] {
            for (codec, level) in [(Codec::Fp32, f32::INFINITY), (Codec::Int8, 127.0), (Codec::Int4, 7.0)] {
                let values = &noise[..count];
                let frame = encode(codec, values).unwrap();
                assert!(frame.len() as u64 <= max_bytes(codec, count));
                let decoded = decode(&frame, count).unwrap();
                for (group, decoded) in values.chunks(128).zip(decoded.chunks(128)) {
                    let largest = group.iter().fold(0.0f32, |most, value| most.max(value.abs()));
                    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 0.504 * largest / level;
                    assert!(group.iter().zip(decoded).all(near));
                }
            }
        }
    }

    #[test]
    fn noise_takes_no_more_bits_than_it_must() {
        let values = noise(1 << 20);
        let bits = |codec| encode(codec, &values).unwrap().len() as f64 * 8.0 / values.len() as f64;
        assert!(bits(Codec::Int4) <= 3.7, "{}", bits(Codec::Int4));
        assert!(bits(Codec::Int8) <= 7.8, "{}", bits(Codec::Int8));
        assert!(bits(Codec::Fp32) <= 32.0, "{}", bits(Codec::Fp32));
        assert!(bits(Codec::Int2) <= 2.05, "{}", bits(Codec::Int2));
        assert!(bits(Codec::TopK(64)) <= 0.15, "{}", bits(Codec::TopK(64)));
    }

    #[test]
    fn frames_have_these_bytes() {
        let hash = |codec| {
            let values: Vec<f32> = (0..5000).map(|at| ((at * at % 701) as f32 - 350.0) / 4096.0).collect();
            let frame = encode(codec, &values).unwrap();
            let chunk = &frame[HEADER_BYTES + LENGTH_BYTES..];
            // What zstd makes of a chunk may change, what is in it may not.
            let inside = zstd::bulk::decompress(chunk, 1 << 20).unwrap_or_else(|_| chunk.to_vec());
            blake3::hash(&inside).to_hex()[..16].to_owned()
        };
        let codecs = [Codec::Fp16, Codec::Int2, Codec::Sparse, Codec::TopK(64)];
        assert_eq!(codecs.map(hash), ["04cf1396759d9ab9", "b99e47b3c0ba9afb", "fadd4aeaeb04d9cd", "810dadc0d9a979e7"]);
    }

    #[test]
    fn only_the_runs_codec_is_taken() {
        let values = noise(5000);
        for codec in CODECS {
            let frame = encode(codec, &values).unwrap();
            for other in CODECS {
                let alike = number_of(codec) == number_of(other) && (codec == other || codec == Codec::TopK(64));
                assert_eq!(decode_as(other, &frame, 5000).is_ok(), alike, "{codec:?} {other:?}");
            }
        }
    }

    #[test]
    fn the_bytes_do_not_depend_on_the_number_of_threads() {
        let values = noise(3 * CHUNK_VALUES + 77);
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let many = rayon::ThreadPoolBuilder::new().num_threads(7).build().unwrap();
        for codec in CODECS {
            let frame = alone.install(|| encode(codec, &values)).unwrap();
            assert_eq!(many.install(|| encode(codec, &values)).unwrap(), frame);
            let decoded = alone.install(|| decode(&frame, values.len())).unwrap();
            assert_eq!(many.install(|| decode(&frame, values.len())).unwrap(), decoded);
        }
    }

    #[derive(serde::Deserialize)]
    struct Reference {
        values: Vec<i32>,
        int8: Vec<i32>,
        int4: Vec<i32>,
    }

    #[test]
    fn pytorch_decodes_the_same_bits() {
        let reference = include_str!("../../tests/reference/quantize.json");
        let reference: Reference = serde_json::from_str(reference).unwrap();
        let floats = |bits: &[i32]| bits.iter().map(|bits| f32::from_bits(*bits as u32)).collect::<Vec<f32>>();
        let values = floats(&reference.values);
        let bits = |codec| {
            let decoded = decode(&encode(codec, &values).unwrap(), values.len()).unwrap();
            decoded.iter().map(|value| value.to_bits() as i32).collect::<Vec<i32>>()
        };
        assert_eq!(bits(Codec::Int8), reference.int8);
        assert_eq!(bits(Codec::Int4), reference.int4);
        assert_eq!(bits(Codec::Fp32), reference.values);
    }

    #[test]
    fn values_that_went_wrong_are_not_sent() {
        let mut values = vec![0.5; CHUNK_VALUES + 9];
        values[CHUNK_VALUES + 4] = 1.0e9;
        for codec in CODECS {
            let error = EncodeError::Unfit { index: CHUNK_VALUES + 4, value: 1.0e9 };
            assert_eq!(encode(codec, &values), Err(error));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let frame = encode(Codec::Int4, &noise(300)).unwrap();
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped, 300).is_err(), "bit {bit}");
        }
        for length in 0..frame.len() {
            assert!(decode(&frame[..length], 300).is_err());
            assert!(decode(&sealed(frame[..length].to_vec()), 300).is_err());
        }
    }

    #[test]
    fn a_chunk_that_swells_or_carries_more_is_refused() {
        let count = 1000;
        let frame_of = |chunk: &[u8]| assemble(Codec::Int8, count, &[chunk.to_vec()]);
        let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
        let right = payload_bytes(Codec::Int8, count);
        assert!(decode(&frame_of(&zstd(&vec![0; right])), count).is_ok());
        for wrong in [0, 1, right - 1, right + 1, 5_000_000] {
            assert_eq!(decode(&frame_of(&zstd(&vec![0; wrong])), count), Err(FrameError::Chunk(0)));
        }
        let half = zstd(&vec![0; right / 2]);
        let two = [&half[..], &half[..]].concat();
        assert_eq!(decode(&frame_of(&two), count), Err(FrameError::Chunk(0)));
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2][..], &zstd(&vec![0; right])[..]].concat();
        assert_eq!(decode(&frame_of(&skippable), count), Err(FrameError::Chunk(0)));
        // Scales of all ones are NaN.
        assert_eq!(decode(&frame_of(&zstd(&vec![255; right])), count), Err(FrameError::Values(0)));
    }

    proptest! {
        #[test]
        fn whatever_is_encoded_decodes_and_is_no_larger(
            codec in prop::sample::select(CODECS.to_vec()),
            exponents in prop::collection::vec((-60i32..17, 0usize..300), 1..40),
            kept in 1u16..400,
        ) {
            let codec = if codec == Codec::TopK(64) { Codec::TopK(kept) } else { codec };
            // Blocks that are as unlike as can be.
            let stretch = |(exponent, count): &(i32, usize)| {
                let sign = if count % 3 == 0 { -1.0 } else { 1.0 };
                std::iter::repeat_n(sign * 2.0f32.powi(*exponent), count * count / 3)
            };
            let values: Vec<f32> = exponents.iter().flat_map(stretch).collect();
            let frame = encode(codec, &values).unwrap();
            prop_assert!(frame.len() as u64 <= max_bytes(codec, values.len()));
            let decoded = decode_as(codec, &frame, values.len()).unwrap();
            let largest = |values: &[f32]| values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            prop_assert!(largest(&decoded) <= 1.511 * largest(&values), "{} {}", largest(&decoded), largest(&values));
            let (_, left) = crate::compress::compress_with_feedback(codec, &values).unwrap();
            prop_assert_eq!(left.len(), values.len());
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(
            noise in prop::collection::vec(any::<u8>(), 0..200),
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            codec in prop::sample::select(CODECS.to_vec()),
        ) {
            let _ = decode(&noise, 50);
            let header = encode(codec, &[0.5; 50]).unwrap()[..HEADER_BYTES].to_vec();
            let _ = decode(&sealed([header, noise].concat()), 50);
            let mut frame = encode(codec, &[0.5, -0.25, 0.1, 3.0].repeat(64)).unwrap();
            for (at, byte) in edits {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            if let Ok(values) = decode(&sealed(frame), 256) {
                prop_assert!(values.iter().all(|value| value.is_finite()));
            }
        }
    }
}
