//! Tests of frames: values survive a round trip, and invalid bytes are refused.

use proptest::prelude::*;

use super::*;

const CODECS: [Codec; 7] =
    [Codec::Fp32, Codec::Fp16, Codec::Int8, Codec::Int4, Codec::Int2, Codec::Sparse, Codec::TopK(64)];

/// Approximately Gaussian noise, as sums of twelve uniform numbers: the hardest values to compress.
fn noise(count: usize) -> Vec<f32> {
    let mut state = 5u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0
    };
    (0..count).map(|_| 1.0e-3 * ((0..12).map(|_| uniform()).sum::<f32>() - 6.0)).collect()
}

/// Corrects the checksum, as an attacker would.
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
        for (codec, level) in [(Codec::Fp32, f32::INFINITY), (Codec::Int8, 127.0), (Codec::Int4, 6.0)] {
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
    assert!(bits(Codec::Int4) <= 3.3, "{}", bits(Codec::Int4));
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
        // zstd's bytes may change between versions, but not the contents of a chunk.
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
    // Scales with all bits set are NaN.
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
        // Blocks with very different magnitudes.
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
