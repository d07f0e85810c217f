//! The frame of compressed values: a checked header, then chunks compressed by zstd.
//!
//! Chunks are independent, so that large modules are encoded and decoded on all cores. Their number depends only on the
//! count of values, so the bytes do not depend on the number of threads. A decoder knows the number of values and
//! trusts no byte: it checks sizes before allocation and the checksum before decompression, and decompresses each chunk
//! into a buffer of exactly the stated size.

use std::cell::RefCell;

use rayon::prelude::*;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

use super::error::{EncodeError, FrameError};
use super::header::{HEADER_BYTES, Header, is_sealed, number_of, seal};
use super::quantize::{PayloadError, dequantize, payload_bytes, quantize};
use super::sparse;
use crate::config::Codec;

/// Values in a chunk; the last chunk holds the rest.
pub const CHUNK_VALUES: usize = 1 << 18;

const LENGTH_BYTES: usize = 4;

/// Levels 1 to 6 give equal sizes on quantised noise, which has no repetitions: only the entropy coder saves bytes, and
/// the lowest level is the fastest (figures in `docs/reference/formats/compression.md`).
const ZSTD_LEVEL: i32 = 1;

/// 2²¹ bytes, twice the largest chunk. No valid chunk needs a wider window.
const WINDOW_LOG_MAX: u32 = 21;

/// Upper bound of the size of a frame of `count` values.
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

/// Whether chunks are [sparse](super::sparse) instead of compressed by zstd.
fn is_sparse(codec: Codec) -> bool {
    matches!(codec, Codec::Sparse | Codec::TopK(_))
}

fn chunk_counts(count: usize) -> impl Iterator<Item = usize> {
    (0..count.div_ceil(CHUNK_VALUES)).map(move |chunk| CHUNK_VALUES.min(count - chunk * CHUNK_VALUES))
}

/// The frame of some values.
pub fn encode(codec: Codec, values: &[f32]) -> Result<Vec<u8>, EncodeError> {
    let chunks = values.par_chunks(CHUNK_VALUES).enumerate();
    let chunks = chunks.map(|(chunk, values)| encode_chunk(codec, chunk, values, None));
    let chunks = chunks.collect::<Result<Vec<_>, _>>()?;
    Ok(assemble(codec, values.len(), &chunks))
}

/// As [`encode`]. Fills `residual`, as long as `values`, with the difference that a receiver misses.
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
    /// For each thread, a context of zstd and a buffer for a chunk: creating a context takes longer than compressing a
    /// small chunk.
    static COMPRESSOR: Ready<Compressor<'static>> = RefCell::new((Compressor::new(ZSTD_LEVEL), Vec::new()));
    static DECOMPRESSOR: Ready<Decompressor<'static>> = RefCell::new((bounded_decompressor(), Vec::new()));
}

fn bounded_decompressor() -> std::io::Result<Decompressor<'static>> {
    let mut decompressor = Decompressor::new()?;
    decompressor.window_log_max(WINDOW_LOG_MAX)?;
    Ok(decompressor)
}

/// Fills `decoded` with the values that a receiver decodes.
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
        // Fits: a chunk is at most a little larger than 1 MiB.
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

/// The values of a frame, if there are `count` of them.
pub fn decode(frame: &[u8], count: usize) -> Result<Vec<f32>, FrameError> {
    let codec = check_header(frame, count)?;
    decode_checked(codec, frame, count)
}

/// The same, but only for this codec, which the run uses for contributions or averages.
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

/// Cuts the body by its table of lengths, which must account for every byte.
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

/// Decompresses exactly one zstd frame into `payload`. It must span `bytes` and state `expected` bytes.
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
#[path = "frame_tests.rs"]
mod tests;
