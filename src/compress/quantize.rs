//! Quantisation of values to small integers, in groups of 128 that share a scale.
//!
//! A group's scale is its largest magnitude divided by the largest level (6 or 127), rounded to bfloat16. A value
//! becomes the level nearest to `value · (1 / scale)`, ties to even. With two bits, the scale is the root mean square,
//! and a value becomes one of the four optimal levels for a Gaussian (Max, 1960). Only plain f32 operations with one
//! correctly rounded result are used, so the bytes are the same on every machine.

use half::{bf16, f16};

use crate::config::Codec;

/// Values that share a scale.
pub(super) const GROUP: usize = 128;
const HALF: usize = GROUP / 2;
const QUARTER: usize = GROUP / 4;
const SCALE_BYTES: usize = 2;

/// The largest magnitude that can be sent. A larger outer gradient comes from a diverged path.
pub const MAX_MAGNITUDE: f32 = 65536.0;

/// A group with a smaller largest magnitude is sent as zeros: its levels would leave the normal range of f32.
pub(super) const MIN_MAGNITUDE: f32 = 1.0e-30;

/// The two-bit threshold between small and large values, and the levels of both, in standard deviations.
const LARGE_FROM: f32 = 0.9816;
const TWO_BITS: [f32; 4] = [0.4528, 1.510, -0.4528, -1.510];

/// 1.5·2²³. Adding it to a small value rounds to an integer, half to even, in the low bits.
const ROUNDER: f32 = 12_582_912.0;

const MAGNITUDE_BITS: u32 = 0x7fff_ffff;

/// Bytes of `count` values before zstd; 0 for [sparse](super::sparse) codecs, which do not use zstd.
pub(super) fn payload_bytes(codec: Codec, count: usize) -> usize {
    let groups = count.div_ceil(GROUP);
    match codec {
        Codec::Fp32 => count * size_of::<f32>(),
        Codec::Fp16 => count * size_of::<u16>(),
        Codec::Int8 => groups * (GROUP + SCALE_BYTES),
        Codec::Int4 => groups * (HALF + SCALE_BYTES),
        Codec::Int2 => groups * (QUARTER + SCALE_BYTES),
        Codec::Sparse | Codec::TopK(_) => 0,
    }
}

/// Replaces `payload` by the quantised values: all levels, then all scales.
pub(super) fn quantize(codec: Codec, values: &[f32], payload: &mut Vec<u8>) -> Result<(), usize> {
    payload.clear();
    payload.resize(payload_bytes(codec, values.len()), 0);
    match codec {
        Codec::Fp32 => {
            if largest(values) > MAX_MAGNITUDE.to_bits() {
                return Err(unfit(values));
            }
            for (bytes, value) in payload.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *bytes = value.to_le_bytes();
            }
            Ok(())
        }
        Codec::Fp16 => {
            if largest(values) > MAX_MAGNITUDE.to_bits() {
                return Err(unfit(values));
            }
            for (bytes, value) in payload.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                *bytes = f16::from_f32(value.clamp(-f16::MAX.to_f32(), f16::MAX.to_f32())).to_le_bytes();
            }
            Ok(())
        }
        Codec::Int8 => quantize_groups::<GROUP>(values, payload, scale_to::<127>, |group, inverse, levels| {
            for (level, value) in levels.iter_mut().zip(group) {
                *level = level_of(*value, inverse);
            }
        }),
        Codec::Int4 => quantize_groups::<HALF>(values, payload, scale_to::<6>, |group, inverse, levels| {
            let (low, high) = group.split_at(HALF);
            for (level, (low, high)) in levels.iter_mut().zip(low.iter().zip(high)) {
                *level = (level_of(*low, inverse) & 15) | (level_of(*high, inverse) << 4);
            }
        }),
        Codec::Int2 => quantize_groups::<QUARTER>(values, payload, root_mean_square, |group, inverse, levels| {
            for (at, level) in levels.iter_mut().enumerate() {
                let code = |quarter: usize| two_bits_of(group[quarter * QUARTER + at], inverse) << (2 * quarter);
                *level = code(0) | code(1) | code(2) | code(3);
            }
        }),
        Codec::Sparse | Codec::TopK(_) => Ok(()),
    }
}

/// The scale that maps the largest magnitude to the largest level.
fn scale_to<const LEVEL: u8>(_: &[f32; GROUP], largest: f32) -> f32 {
    largest / f32::from(LEVEL)
}

/// The largest magnitude is given, so that no square leaves the range of f32. Eight sums fix the order of additions and
/// allow SIMD.
fn root_mean_square(group: &[f32; GROUP], largest: f32) -> f32 {
    let mut sums = [0.0f32; 8];
    for values in group.as_chunks::<8>().0 {
        for (sum, value) in sums.iter_mut().zip(values) {
            let part = value / largest;
            *sum += part * part;
        }
    }
    largest * (sums.iter().sum::<f32>() / GROUP as f32).sqrt()
}

/// Bit 0: large; bit 1: negative.
#[inline]
fn two_bits_of(value: f32, inverse: f32) -> u8 {
    let negative = (value.to_bits() >> 31) as u8;
    u8::from(value.abs() * inverse >= LARGE_FROM) | (negative << 1)
}

/// `WIDTH`: bytes of a group's levels.
fn quantize_groups<const WIDTH: usize>(
    values: &[f32],
    payload: &mut [u8],
    scale: impl Fn(&[f32; GROUP], f32) -> f32,
    pack: impl Fn(&[f32; GROUP], f32, &mut [u8; WIDTH]),
) -> Result<(), usize> {
    let (levels, scales) = payload.split_at_mut(values.len().div_ceil(GROUP) * WIDTH);
    let (groups, rest) = values.as_chunks::<GROUP>();
    let mut last = [0.0; GROUP];
    last[..rest.len()].copy_from_slice(rest);
    let groups = groups.iter().chain((!rest.is_empty()).then_some(&last));
    let places = levels.as_chunks_mut::<WIDTH>().0.iter_mut().zip(scales.as_chunks_mut::<SCALE_BYTES>().0);
    for (group, (levels, place)) in groups.zip(places) {
        let largest = largest(group);
        if largest > MAX_MAGNITUDE.to_bits() {
            return Err(unfit(values));
        }
        let largest = f32::from_bits(largest);
        if largest >= MIN_MAGNITUDE {
            let scale = bf16::from_f32(scale(group, largest));
            *place = scale.to_le_bytes();
            pack(group, 1.0 / scale.to_f32(), levels);
        }
    }
    Ok(())
}

/// The bits of the largest magnitude. They exceed those of every finite value if some value is not finite.
pub(super) fn largest(values: &[f32]) -> u32 {
    values.iter().fold(0, |largest, value| largest.max(value.to_bits() & MAGNITUDE_BITS))
}

pub(super) fn unfit(values: &[f32]) -> usize {
    values.iter().position(|value| value.to_bits() & MAGNITUDE_BITS > MAX_MAGNITUDE.to_bits()).unwrap_or(0)
}

/// The nearest level, in two's complement. It cannot exceed the largest level: rounding the scale changes it by at most
/// one part in 256, which moves 127 by less than a half.
#[inline]
fn level_of(value: f32, inverse: f32) -> u8 {
    (value * inverse + ROUNDER).to_bits() as u8
}

/// Why a payload does not come from [`quantize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadError {
    /// A scale that is negative, not finite or too large; a value that is not finite or too large.
    Unfit,
    /// The padding of the last group is not zero.
    Padding,
}

/// Fills `values` from a payload of exactly [`payload_bytes`] bytes.
pub(super) fn dequantize(codec: Codec, payload: &[u8], values: &mut [f32]) -> Result<(), PayloadError> {
    match codec {
        Codec::Fp32 => {
            for (value, bytes) in values.iter_mut().zip(payload.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*bytes);
            }
            if largest(values) > MAX_MAGNITUDE.to_bits() { Err(PayloadError::Unfit) } else { Ok(()) }
        }
        Codec::Fp16 => {
            for (value, bytes) in values.iter_mut().zip(payload.as_chunks::<2>().0) {
                *value = f16::from_le_bytes(*bytes).to_f32();
            }
            if largest(values) > MAX_MAGNITUDE.to_bits() { Err(PayloadError::Unfit) } else { Ok(()) }
        }
        Codec::Int8 => dequantize_groups::<GROUP>(payload, values, |levels, scale, group| {
            for (value, level) in group.iter_mut().zip(levels) {
                *value = f32::from(*level as i8) * scale;
            }
        }),
        Codec::Int4 => dequantize_groups::<HALF>(payload, values, |levels, scale, group| {
            let (low, high) = group.split_at_mut(HALF);
            for (level, (low, high)) in levels.iter().zip(low.iter_mut().zip(high)) {
                *low = f32::from((*level << 4) as i8 >> 4) * scale;
                *high = f32::from(*level as i8 >> 4) * scale;
            }
        }),
        Codec::Int2 => dequantize_groups::<QUARTER>(payload, values, |levels, scale, group| {
            let table = TWO_BITS.map(|level| level * scale);
            for (at, level) in levels.iter().enumerate() {
                for quarter in 0..4 {
                    group[quarter * QUARTER + at] = table[usize::from(level >> (2 * quarter) & 3)];
                }
            }
        }),
        Codec::Sparse | Codec::TopK(_) => Ok(()),
    }
}

fn dequantize_groups<const WIDTH: usize>(
    payload: &[u8],
    values: &mut [f32],
    unpack: impl Fn(&[u8; WIDTH], f32, &mut [f32; GROUP]),
) -> Result<(), PayloadError> {
    let (levels, scales) = payload.split_at(values.len().div_ceil(GROUP) * WIDTH);
    let mut places = levels.as_chunks::<WIDTH>().0.iter().zip(scales.as_chunks::<SCALE_BYTES>().0);
    let (groups, rest) = values.as_chunks_mut::<GROUP>();
    for (group, (levels, scale)) in groups.iter_mut().zip(&mut places) {
        unpack(levels, scale_of(*scale)?, group);
    }
    if let Some((levels, scale)) = places.next() {
        let (mut last, mut blank) = ([0.0; GROUP], [0.0; GROUP]);
        let scale = scale_of(*scale)?;
        unpack(levels, scale, &mut last);
        unpack(&[0; WIDTH], scale, &mut blank);
        let (kept, padding) = last.split_at(rest.len());
        rest.copy_from_slice(kept);
        if padding != &blank[rest.len()..] {
            return Err(PayloadError::Padding);
        }
    }
    Ok(())
}

fn scale_of(bytes: [u8; SCALE_BYTES]) -> Result<f32, PayloadError> {
    let scale = bf16::from_le_bytes(bytes).to_f32();
    if (0.0..=MAX_MAGNITUDE).contains(&scale) && scale.is_sign_positive() {
        Ok(scale)
    } else {
        Err(PayloadError::Unfit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(codec: Codec, values: &[f32]) -> Vec<f32> {
        let mut payload = Vec::new();
        quantize(codec, values, &mut payload).unwrap();
        assert_eq!(payload.len(), payload_bytes(codec, values.len()));
        let mut decoded = vec![f32::NAN; values.len()];
        dequantize(codec, &payload, &mut decoded).unwrap();
        decoded
    }

    #[test]
    fn levels_of_four_bits_are_rounded_half_to_even() {
        let mut values = vec![0.0; GROUP];
        values[..8].copy_from_slice(&[6.0, -6.0, 0.5, 1.5, -0.5, -2.5, 3.49, -3.51]);
        let decoded = round_trip(Codec::Int4, &values);
        assert_eq!(decoded[..8], [6.0, -6.0, 0.0, 2.0, 0.0, -2.0, 3.0, -4.0]);
    }

    #[test]
    fn a_group_of_four_bits_is_laid_out_as_the_document_says() {
        let mut values = vec![0.0; GROUP + 1];
        values[0] = 6.0;
        values[1] = -1.0;
        values[64] = -6.0;
        values[128] = 12.0;
        let mut payload = Vec::new();
        quantize(Codec::Int4, &values, &mut payload).unwrap();
        assert_eq!(payload[..3], [0xa6, 0x0f, 0x00]);
        assert_eq!(payload[64], 0x06);
        assert_eq!(payload[128..], [0x80, 0x3f, 0x00, 0x40]);
    }

    #[test]
    fn two_bits_are_where_a_gaussian_wants_them() {
        let signs = |at: usize| if at.is_multiple_of(2) { 1.0 } else { -1.0 };
        let values: Vec<f32> = (0..GROUP).map(|at| signs(at) * if at < 64 { 0.5 } else { 1.5 }).collect();
        let scale = bf16::from_f32((1.25f32).sqrt()).to_f32();
        for (at, decoded) in round_trip(Codec::Int2, &values).into_iter().enumerate() {
            assert_eq!(decoded, signs(at) * scale * if at < 64 { 0.4528 } else { 1.510 });
        }
        let tiny: Vec<f32> = (0..GROUP).map(|at| signs(at) * 1.0e-29).collect();
        assert!(round_trip(Codec::Int2, &tiny).iter().all(|value| (value.abs() / 1.51e-29 - 1.0).abs() < 0.01));
    }

    #[test]
    fn half_precision_is_rounded_once_and_never_to_infinity() {
        assert_eq!(round_trip(Codec::Fp16, &[1.0, 1.0 + 2.0f32.powi(-11), -65_535.0]), [1.0, 1.0, -65_504.0]);
    }

    #[test]
    fn every_level_survives_whatever_the_scale_is_rounded_to() {
        for (codec, top) in [(Codec::Int4, 6), (Codec::Int8, 127)] {
            for step in 0..4000 {
                let scale = 1.0e-6 * (1.0 + step as f32 / 1000.0);
                let mut values = vec![0.0; GROUP];
                for (value, level) in values.iter_mut().zip(-top..=top) {
                    *value = level as f32 * scale;
                }
                // Each value is a multiple of the scale, so only the rounding of the scale (8 bits) causes an error.
                for (value, decoded) in values.iter().zip(round_trip(codec, &values)) {
                    assert!((value - decoded).abs() <= value.abs() / 255.0, "{value} became {decoded}");
                }
            }
        }
    }

    #[test]
    fn tiny_groups_become_zeros_and_small_ones_do_not() {
        assert!(round_trip(Codec::Int4, &[1.0e-31; 9]).iter().all(|value| *value == 0.0));
        let decoded = round_trip(Codec::Int4, &[3.0e-9; 9]);
        assert!(decoded.iter().all(|value| (value / 3.0e-9 - 1.0).abs() < 0.01));
    }

    #[test]
    fn what_is_not_finite_is_found() {
        for codec in [Codec::Fp32, Codec::Fp16, Codec::Int8, Codec::Int4, Codec::Int2] {
            for bad in [f32::NAN, f32::INFINITY, -f32::INFINITY, 65537.0, -f32::NAN] {
                let mut values = vec![0.25; 300];
                values[271] = bad;
                assert_eq!(quantize(codec, &values, &mut Vec::new()), Err(271));
            }
        }
    }

    #[test]
    fn scales_and_padding_that_no_encoder_writes_are_refused() {
        let mut payload = Vec::new();
        quantize(Codec::Int4, &[1.0; 3], &mut payload).unwrap();
        let mut decoded = [0.0; 3];
        for scale in [f32::NAN, f32::INFINITY, -1.0, -0.0, 1.0e6] {
            payload[64..].copy_from_slice(&bf16::from_f32(scale).to_le_bytes());
            assert_eq!(dequantize(Codec::Int4, &payload, &mut decoded), Err(PayloadError::Unfit));
        }
        payload[64..].copy_from_slice(&bf16::from_f32(1.0).to_le_bytes());
        payload[3] = 1;
        assert_eq!(dequantize(Codec::Int4, &payload, &mut decoded), Err(PayloadError::Padding));
    }
}
