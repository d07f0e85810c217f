//! Sparse encoding: values that are not zero, or the largest of each block, as a position, a sign and a magnitude.
//!
//! A block is 4096 values. If all values that are not zero are sent, magnitudes are the seven multiples of a seventh of
//! the block's largest. With top-k there are two magnitudes, small and large: the means of those below and above a
//! multiple of the block's mean. The largest of a block are selected by magnitude, then by position, so the bytes are
//! the same on every machine. Source: SparseLoCo, which has four bins, divided by the deviation from the mean.

use std::cell::RefCell;

use half::bf16;

use super::quantize::{MAX_MAGNITUDE, MIN_MAGNITUDE, PayloadError, largest, unfit};
use super::range_coded::{self, Kept};
use crate::config::Codec;

/// Values from which the k largest are selected, and which share scales.
pub(super) const BLOCK: usize = 4096;

const MAGNITUDE_BITS: u32 = 0x7fff_ffff;

/// Magnitudes when all values that are not zero are sent: 4 bits with the sign.
const SEVENTHS: u8 = 7;

/// Magnitudes with top-k.
const SMALL_AND_LARGE: u8 = 2;

/// Magnitudes above this multiple of a block's mean are large.
const LARGE_FROM: f64 = 1.15;

/// Powers of 2 in twelfths: one byte encodes the ratio of large to small, up to 2^21.
const TWELFTHS: [f32; 12] = [
    1.0,
    1.059_463,
    1.122_462,
    1.189_207_1,
    1.259_921,
    1.334_839_8,
    std::f32::consts::SQRT_2,
    1.498_307,
    1.587_401,
    1.681_792_9,
    1.781_797_4,
    1.887_748_6,
];

/// The ratio that a byte encodes, in twelfths of a doubling.
fn ratio_of(byte: u8) -> f32 {
    TWELFTHS[usize::from(byte % 12)] * f32::from_bits((127 + u32::from(byte / 12)) << 23)
}

/// The byte of the nearest ratio that does not lead to a value too large to send.
fn ratio_to(small: f32, large: f32) -> u8 {
    let away = |byte: u8| (small * ratio_of(byte) - large).abs();
    let next = (0..=u8::MAX).find(|byte| small * ratio_of(*byte) >= large).unwrap_or(u8::MAX);
    let before = next.saturating_sub(1);
    if away(before) <= away(next) || small * ratio_of(next) > MAX_MAGNITUDE { before } else { next }
}

/// The magnitudes of a block.
#[derive(Clone, Copy, Default)]
struct Scale {
    base: bf16,
    /// Ratio of large to small, as a byte for [`ratio_of`].
    ratio: u8,
}

impl Scale {
    /// The value of each magnitude class.
    fn sizes(self, count: u8) -> [f32; SEVENTHS as usize] {
        let (base, mut sizes) = (self.base.to_f32(), [0.0; SEVENTHS as usize]);
        if count == SMALL_AND_LARGE {
            sizes[..2].copy_from_slice(&[base, base * ratio_of(self.ratio)]);
        } else {
            for (at, size) in (1u8..).zip(&mut sizes) {
                *size = base * (f32::from(at) / f32::from(SEVENTHS));
            }
        }
        sizes
    }
}

/// Number of magnitude classes of a codec.
fn sizes_of(codec: Codec) -> u8 {
    if matches!(codec, Codec::TopK(_)) { SMALL_AND_LARGE } else { SEVENTHS }
}

thread_local! {
    /// Buffers of each thread, for the selected values and magnitudes.
    static CHOSEN: RefCell<(Kept, Vec<u32>)> = RefCell::default();
}

/// Upper bound of a chunk of `count` values: 42 bits for each selected value (at worst two symbols of 12 bits, 17 bits
/// of a distance, a sign), 3 bytes for a block, and the tables.
pub(super) fn max_bytes(codec: Codec, count: usize) -> usize {
    let blocks = count.div_ceil(BLOCK);
    let kept = match codec {
        Codec::TopK(most) => count.min(blocks * usize::from(most)),
        _ => count,
    };
    6 * kept + 3 * blocks + 512
}

/// Appends the encoding of these values.
pub(super) fn encode(codec: Codec, values: &[f32], bytes: &mut Vec<u8>) -> Result<(), usize> {
    if largest(values) > MAX_MAGNITUDE.to_bits() {
        return Err(unfit(values));
    }
    let sizes = sizes_of(codec);
    bytes.push(sizes);
    CHOSEN.with_borrow_mut(|(kept, magnitudes)| {
        kept.clear();
        for (block, values) in values.chunks(BLOCK).enumerate() {
            let scale = match codec {
                Codec::TopK(most) => choose_largest(block * BLOCK, values, usize::from(most), magnitudes, kept),
                _ => choose_all(block * BLOCK, values, kept),
            };
            bytes.extend(scale.base.to_le_bytes());
            bytes.extend((sizes == SMALL_AND_LARGE).then_some(scale.ratio));
        }
        range_coded::write(kept, usize::from(sizes), bytes);
    });
    Ok(())
}

/// Magnitude class times 2, plus 1 if negative.
fn mark(class: u8, value: f32) -> u8 {
    class << 1 | u8::from(value < 0.0)
}

fn choose_largest(first: usize, values: &[f32], most: usize, magnitudes: &mut Vec<u32>, kept: &mut Kept) -> Scale {
    magnitudes.clear();
    magnitudes.extend(values.iter().map(|value| value.to_bits() & MAGNITUDE_BITS));
    let most = most.min(values.len());
    let (_, threshold, _) = magnitudes.select_nth_unstable_by(most - 1, |a, b| b.cmp(a));
    let threshold = (*threshold).max(1);
    let above = magnitudes.iter().filter(|bits| **bits > threshold).count();
    // Of the values exactly at the threshold, the first ones are selected.
    let mut at_threshold = most - above;
    let mut places = Vec::with_capacity(most);
    for (place, value) in values.iter().enumerate() {
        let bits = value.to_bits() & MAGNITUDE_BITS;
        let spare = bits == threshold && at_threshold > 0;
        at_threshold -= usize::from(spare);
        if bits > threshold || spare {
            places.push(place);
        }
    }
    // From 0, because the sum of nothing is −0.
    let sum = |places: &[usize]| places.iter().fold(0.0, |sum, place| sum + f64::from(values[*place].abs()));
    let mean = |places: &[usize]| sum(places) / places.len().max(1) as f64;
    let border = LARGE_FROM * mean(&places);
    let (large, small): (Vec<usize>, Vec<usize>) =
        places.iter().partition(|place| f64::from(values[**place].abs()) >= border);
    let base = bf16::from_f32(mean(&small) as f32);
    if base.to_f32() < MIN_MAGNITUDE {
        // Small values that are zero next to the large ones are dropped.
        if (mean(&large) as f32) < MIN_MAGNITUDE {
            return Scale::default();
        }
        let base = bf16::from_f32(mean(&large) as f32);
        large.iter().for_each(|place| kept.push((first + place) as u32, mark(0, values[*place])));
        return Scale { base, ratio: 0 };
    }
    for place in places {
        let is_large = f64::from(values[place].abs()) >= border;
        kept.push((first + place) as u32, mark(u8::from(is_large), values[place]));
    }
    let ratio = if large.is_empty() { 0 } else { ratio_to(base.to_f32(), mean(&large) as f32) };
    Scale { base, ratio }
}

fn choose_all(first: usize, values: &[f32], kept: &mut Kept) -> Scale {
    let base = bf16::from_f32(f32::from_bits(largest(values)));
    let scale = base.to_f32();
    if scale < MIN_MAGNITUDE {
        return Scale::default();
    }
    for (place, value) in values.iter().enumerate().filter(|(_, value)| **value != 0.0) {
        // Half to even: values of at most half a seventh become zero.
        let size = (value.abs() / scale * f32::from(SEVENTHS)).round_ties_even().min(f32::from(SEVENTHS)) as u8;
        if let Some(class) = size.checked_sub(1) {
            kept.push((first + place) as u32, mark(class, *value));
        }
    }
    Scale { base, ratio: 0 }
}

/// Fills `values` from a chunk.
pub(super) fn decode(codec: Codec, bytes: &[u8], values: &mut [f32]) -> Result<(), PayloadError> {
    let (sizes, rest) = bytes.split_first().ok_or(PayloadError::Unfit)?;
    let (limit, fits) = match codec {
        Codec::TopK(most) => (usize::from(most), *sizes == SMALL_AND_LARGE),
        _ => (BLOCK, [SMALL_AND_LARGE, SEVENTHS].contains(sizes)),
    };
    let width = if *sizes == SMALL_AND_LARGE { 3 } else { 2 };
    let blocks = values.len().div_ceil(BLOCK);
    let (scales, rest) = rest.split_at_checked(width * blocks).filter(|_| fits).ok_or(PayloadError::Unfit)?;
    let mut stand_for = Vec::with_capacity(blocks);
    for scale in scales.chunks_exact(width) {
        let scale =
            Scale { base: bf16::from_le_bytes([scale[0], scale[1]]), ratio: scale.get(2).copied().unwrap_or(0) };
        let all = scale.sizes(*sizes);
        if !scale.base.is_sign_positive() || !all.iter().all(|size| *size <= MAX_MAGNITUDE) {
            return Err(PayloadError::Unfit);
        }
        stand_for.push(all);
    }
    values.fill(0.0);
    let mut kept = vec![0; blocks];
    range_coded::read(rest, values.len(), usize::from(*sizes), |place, mark| {
        let block = place / BLOCK;
        kept[block] += 1;
        if kept[block] > limit {
            return Err(PayloadError::Unfit);
        }
        let magnitude = stand_for[block][usize::from(mark >> 1)];
        values[place] = f32::from_bits(magnitude.to_bits() | u32::from(mark & 1) << 31);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::seed::Seed;

    fn round_trip(codec: Codec, values: &[f32]) -> Vec<f32> {
        let mut bytes = Vec::new();
        encode(codec, values, &mut bytes).unwrap();
        assert!(bytes.len() <= max_bytes(codec, values.len()));
        let mut decoded = vec![f32::NAN; values.len()];
        decode(codec, &bytes, &mut decoded).unwrap();
        decoded
    }

    #[test]
    fn the_largest_of_each_block_are_kept() {
        let mut rng = Seed::root(3).generator();
        let values: Vec<f32> = (0..3 * BLOCK + 100).map(|_| rng.random::<f32>() - 0.5).collect();
        let decoded = round_trip(Codec::TopK(64), &values);
        for (values, decoded) in values.chunks(BLOCK).zip(decoded.chunks(BLOCK)) {
            // In a shorter last block, more than the largest are selected.
            let near = if values.len() == BLOCK { 0.05 } else { 1.0 };
            let mut order: Vec<usize> = (0..values.len()).collect();
            order.sort_by(|a, b| values[*b].abs().total_cmp(&values[*a].abs()));
            for (rank, place) in order.into_iter().enumerate() {
                let (value, decoded) = (values[place], decoded[place]);
                assert_eq!(decoded != 0.0, rank < 64);
                assert!(decoded == 0.0 || (decoded / value - 1.0).abs() < near);
            }
        }
    }

    #[test]
    fn of_equals_the_first_are_kept_and_nothing_that_is_zero() {
        let decoded = round_trip(Codec::TopK(3), &[0.5; 9]);
        assert_eq!(decoded, [0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let mut values = vec![0.0; BLOCK + 5];
        values[BLOCK] = -2.0;
        assert_eq!(round_trip(Codec::TopK(3), &values), values);
        assert_eq!(round_trip(Codec::TopK(4096), &[0.0; 7]), [0.0; 7]);
    }

    #[test]
    fn what_is_not_zero_comes_back_within_half_a_level() {
        let mut rng = Seed::root(4).generator();
        let mut draw = || if rng.random::<f32>() < 0.06 { rng.random::<f32>() - 0.5 } else { 0.0 };
        let values: Vec<f32> = (0..5 * BLOCK).map(|_| draw()).collect();
        for (value, decoded) in values.iter().zip(round_trip(Codec::Sparse, &values)) {
            assert!((value - decoded).abs() < 0.5 / 13.9, "{value} {decoded}");
            assert!(*value != 0.0 || decoded == 0.0);
        }
    }

    #[test]
    fn no_cut_and_no_flipped_bit_makes_it_panic() {
        let values: Vec<f32> = (0..BLOCK + 900).map(|at| (at as f32 * 0.7).sin()).collect();
        let mut bytes = Vec::new();
        encode(Codec::TopK(40), &values, &mut bytes).unwrap();
        let mut decoded = vec![0.0; values.len()];
        // The last word of the range coder may not be needed.
        for cut in 0..bytes.len() - 4 {
            assert!(decode(Codec::Sparse, &bytes[..cut], &mut decoded).is_err(), "{cut}");
        }
        for bit in 0..8 * bytes.len() {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if decode(Codec::Sparse, &bytes, &mut decoded).is_ok() {
                assert!(decoded.iter().all(|value| value.abs() <= MAX_MAGNITUDE));
            }
        }
        let longer = [&bytes[..], &[0; 12]].concat();
        assert!(decode(Codec::Sparse, &longer, &mut decoded).is_err());
    }

    #[test]
    fn blocks_that_are_unlike_do_not_spoil_each_other() {
        // One block's values are equal; the other has one large and many tiny ones.
        let mut values = vec![0.0; 2 * BLOCK];
        values[..64].fill(1.0e-3);
        values[0] = 1.3e-3;
        values[BLOCK..BLOCK + 64].fill(1.0e-6);
        values[BLOCK] = -1.0;
        for (value, decoded) in values.iter().zip(round_trip(Codec::TopK(64), &values)) {
            assert!((decoded - value).abs() <= 0.03 * value.abs(), "{value} {decoded}");
        }
    }

    #[test]
    fn a_byte_says_how_many_times_a_small_value_a_large_one_is() {
        for byte in 0..=u8::MAX {
            assert!((f64::from(ratio_of(byte)) / (f64::from(byte) / 12.0).exp2() - 1.0).abs() < 1.0e-6);
            // No value that can be sent is more than 2^17 times a half.
            assert_eq!(ratio_to(0.5, (0.5 * ratio_of(byte)).min(MAX_MAGNITUDE)), byte.min(204));
        }
        assert!(60_000.0 * ratio_of(ratio_to(60_000.0, 65_536.0)) <= MAX_MAGNITUDE);
    }

    #[test]
    fn more_than_the_codec_keeps_and_a_sign_of_a_scale_are_refused() {
        let values = vec![0.5; BLOCK];
        let mut bytes = Vec::new();
        encode(Codec::TopK(9), &values, &mut bytes).unwrap();
        let mut decoded = vec![0.0; BLOCK];
        assert_eq!(decode(Codec::TopK(9), &bytes, &mut decoded), Ok(()));
        assert_eq!(decode(Codec::Sparse, &bytes, &mut decoded), Ok(()));
        assert_eq!(decode(Codec::TopK(8), &bytes, &mut decoded), Err(PayloadError::Unfit));
        for wrong in [[0, 0x80], [0x80, 0x7f], [0x81, 0x47]] {
            // −0, infinity, and 66,048.
            bytes[1..3].copy_from_slice(&wrong);
            assert_eq!(decode(Codec::TopK(9), &bytes, &mut decoded), Err(PayloadError::Unfit), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_finite_is_found() {
        let mut values = vec![0.25; 300];
        values[271] = f32::NAN;
        assert_eq!(encode(Codec::TopK(4), &values, &mut Vec::new()), Err(271));
    }
}
