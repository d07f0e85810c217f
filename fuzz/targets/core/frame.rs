//! Outer gradients and averages, in each codec. Behind the frame: which codec is expected, a byte, and how many values, three.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathswarm::compress::{decode, decode_as, max_bytes};
use pathswarm::config::Codec;

const CODECS: [Codec; 8] =
    [Codec::Fp32, Codec::Fp16, Codec::Int8, Codec::Int4, Codec::Int2, Codec::Sparse, Codec::TopK(64), Codec::TopK(1)];
/// Two chunks and a little.
const MOST_VALUES: usize = (2 << 18) + 100;

/// Anybody can make a checksum that is right: it is put in, so that what lies behind it is reached.
fn sealed(frame: &[u8]) -> Vec<u8> {
    let mut sealed = frame.to_vec();
    if sealed.len() >= 32 {
        let checked = [&frame[..24], &frame[32..]].concat();
        sealed[24..32].copy_from_slice(&blake3::hash(&checked).as_bytes()[..8]);
    }
    sealed
}

fuzz_target!(|input: &[u8]| {
    let Some((frame, [codec, count @ ..])) = input.split_last_chunk::<4>() else { return };
    let codec = CODECS[usize::from(*codec) % CODECS.len()];
    let count = count.iter().rev().fold(0, |count, byte| count << 8 | usize::from(*byte)) % MOST_VALUES;
    let frame = sealed(frame);
    for decoded in [decode(&frame, count), decode_as(codec, &frame, count)].into_iter().flatten() {
        assert!(decoded.len() == count && decoded.iter().all(|value| value.is_finite()));
    }
    assert!(decode_as(codec, &frame, count).is_err() || frame.len() as u64 <= max_bytes(codec, count));
});
