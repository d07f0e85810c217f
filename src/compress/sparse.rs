//! Few values of many: those that are not zero, or the largest of each block, as a place, a sign and a size.
//!
//! A block is 4096 values. Its scale is the mean magnitude of what is kept of it (where the largest are chosen) or the
//! largest magnitude (else), in bfloat16. What is kept falls into a few classes of size; a class stands for the mean of
//! its members in the chunk, as a part of their blocks' scales. The largest of a block are chosen by magnitude, then by
//! place, so the bytes are the same on every machine. Source: SparseLoCo, with classes of size in place of its bins.

use std::cell::RefCell;

use half::bf16;

use super::quantize::{MAX_MAGNITUDE, MIN_MAGNITUDE, PayloadError, largest, unfit};
use super::range_coded::{self, Kept};
use crate::config::Codec;

/// Values of which the largest so many are kept, and which share a scale.
pub(super) const BLOCK: usize = 4096;

const MAGNITUDE_BITS: u32 = 0x7fff_ffff;

/// Of the largest values of a Gaussian, what is above this part of their mean belongs to the larger class.
const LARGE_FROM: f32 = 1.08;

/// Classes of size where all that is not zero is sent: with its sign, 4 bits.
const SIZES: usize = 7;

/// Values that were chosen: class of size times 2, and 1 if negative, in the order of their places.
#[derive(Default)]
struct Chosen {
    kept: Kept,
    /// One for each block.
    scales: Vec<bf16>,
    /// What a class stands for, in scales.
    sizes: Vec<bf16>,
}

thread_local! {
    /// What is made anew for each chunk, for each thread.
    static CHOSEN: RefCell<(Chosen, Vec<u32>)> = RefCell::default();
}

/// No chunk of `count` values is longer than this: 42 bits for each that is kept (two symbols of 12 bits at worst, 17 bits
/// of a distance, a sign), and what stands once.
pub(super) fn max_bytes(codec: Codec, count: usize) -> usize {
    let blocks = count.div_ceil(BLOCK);
    let kept = match codec {
        Codec::TopK(most) => count.min(blocks * usize::from(most)),
        _ => count,
    };
    6 * kept + size_of::<bf16>() * blocks + 512
}

/// Appends what stands for these values.
///
/// # Errors
/// The position of a value that is not finite or too large.
pub(super) fn encode(codec: Codec, values: &[f32], bytes: &mut Vec<u8>) -> Result<(), usize> {
    if largest(values) > MAX_MAGNITUDE.to_bits() {
        return Err(unfit(values));
    }
    CHOSEN.with_borrow_mut(|(chosen, magnitudes)| {
        chosen.clear();
        let mut sums = Vec::new();
        for (block, values) in values.chunks(BLOCK).enumerate() {
            match codec {
                Codec::TopK(most) => chosen.choose_largest(block, values, usize::from(most), magnitudes, &mut sums),
                _ => chosen.choose_all(block, values, &mut sums),
            }
        }
        chosen.sizes.extend(sums.iter().map(|(sum, count)| bf16::from_f64(sum / f64::from((*count).max(1)))));
        chosen.write(bytes);
    });
    Ok(())
}

/// Of each class of size the sum of its members, in scales, and how many there are.
type Sums = Vec<(f64, u32)>;

impl Chosen {
    fn clear(&mut self) {
        self.kept.clear();
        self.scales.clear();
        self.sizes.clear();
    }

    fn choose_largest(
        &mut self,
        block: usize,
        values: &[f32],
        most: usize,
        magnitudes: &mut Vec<u32>,
        sums: &mut Sums,
    ) {
        sums.resize(2, (0.0, 0));
        magnitudes.clear();
        magnitudes.extend(values.iter().map(|value| value.to_bits() & MAGNITUDE_BITS));
        let most = most.min(values.len());
        let (_, threshold, _) = magnitudes.select_nth_unstable_by(most - 1, |a, b| b.cmp(a));
        let threshold = (*threshold).max(1);
        let above = magnitudes.iter().filter(|bits| **bits > threshold).count();
        // Of those that are exactly at the threshold the first ones are kept.
        let mut at_threshold = most - above;
        let mut places = Vec::with_capacity(most);
        for (place, value) in values.iter().enumerate() {
            let bits = value.to_bits() & MAGNITUDE_BITS;
            if bits < threshold {
                continue;
            }
            if bits == threshold {
                if at_threshold == 0 {
                    continue;
                }
                at_threshold -= 1;
            }
            places.push(place);
        }
        let sum: f64 = places.iter().map(|place| f64::from(values[*place].abs())).sum();
        let scale = bf16::from_f64(sum / places.len().max(1) as f64);
        self.keep(block, values, places.into_iter(), scale, |size| Some(usize::from(size >= LARGE_FROM)), sums);
    }

    fn choose_all(&mut self, block: usize, values: &[f32], sums: &mut Sums) {
        sums.resize(SIZES, (0.0, 0));
        let scale = bf16::from_f32(f32::from_bits(largest(values)));
        let places = (0..values.len()).filter(|place| values[*place] != 0.0);
        // Half to even: 0.5 belongs to no class, nor does what is smaller.
        let class = |size: f32| ((size * SIZES as f32).round_ties_even() as usize).min(SIZES).checked_sub(1);
        self.keep(block, values, places, scale, class, sums);
    }

    /// Keeps those of a block that fall into a class of size. A block too small to have a scale travels as zeros.
    fn keep(
        &mut self,
        block: usize,
        values: &[f32],
        places: impl Iterator<Item = usize>,
        scale: bf16,
        class: impl Fn(f32) -> Option<usize>,
        sums: &mut Sums,
    ) {
        self.scales.push(scale);
        let scale = scale.to_f32();
        if scale < MIN_MAGNITUDE {
            return;
        }
        for place in places {
            let size = values[place].abs() / scale;
            let Some(class) = class(size) else { continue };
            sums[class].0 += f64::from(size);
            sums[class].1 += 1;
            // A chunk has 2^18 values, and there are 7 classes.
            self.kept.push((block * BLOCK + place) as u32, (class as u8) << 1 | u8::from(values[place] < 0.0));
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.sizes.len() as u8);
        for number in self.sizes.iter().chain(&self.scales) {
            bytes.extend(number.to_le_bytes());
        }
        range_coded::write(&self.kept, self.sizes.len(), bytes);
    }
}

/// Fills `values` from a chunk.
///
/// # Errors
/// If the bytes are not exactly such a chunk.
pub(super) fn decode(bytes: &[u8], values: &mut [f32]) -> Result<(), PayloadError> {
    let (classes, rest) = bytes.split_first().ok_or(PayloadError::Unfit)?;
    let classes = usize::from(*classes);
    let blocks = values.len().div_ceil(BLOCK);
    let (numbers, rest) = rest.split_at_checked(size_of::<bf16>() * (classes + blocks)).ok_or(PayloadError::Unfit)?;
    let numbers = numbers.as_chunks::<2>().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32());
    let numbers: Vec<f32> = numbers.collect();
    let fits = |number: &f32| (0.0..=MAX_MAGNITUDE).contains(number);
    if !(1..=SIZES).contains(&classes) || !numbers.iter().all(fits) {
        return Err(PayloadError::Unfit);
    }
    let (sizes, scales) = numbers.split_at(classes);
    values.fill(0.0);
    range_coded::read(rest, values.len(), classes, |place, mark| {
        let magnitude = scales[place / BLOCK] * sizes[usize::from(mark >> 1)];
        values[place] = f32::from_bits(magnitude.to_bits() | u32::from(mark & 1) << 31);
    })?;
    if largest(values) > MAX_MAGNITUDE.to_bits() { Err(PayloadError::Unfit) } else { Ok(()) }
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
        decode(&bytes, &mut decoded).unwrap();
        decoded
    }

    #[test]
    fn the_largest_of_each_block_are_kept() {
        let mut dice = Seed::root(3).generator();
        let values: Vec<f32> = (0..3 * BLOCK + 100).map(|_| dice.random::<f32>() - 0.5).collect();
        let decoded = round_trip(Codec::TopK(64), &values);
        for (values, decoded) in values.chunks(BLOCK).zip(decoded.chunks(BLOCK)) {
            // Of a block that ends early, more than the largest are kept.
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
        let mut dice = Seed::root(4).generator();
        let mut draw = || if dice.random::<f32>() < 0.06 { dice.random::<f32>() - 0.5 } else { 0.0 };
        let values: Vec<f32> = (0..5 * BLOCK).map(|_| draw()).collect();
        for (value, decoded) in values.iter().zip(round_trip(Codec::Sparse, &values)) {
            assert!((value - decoded).abs() < 0.5 / 13.0, "{value} {decoded}");
            assert!(*value != 0.0 || decoded == 0.0);
        }
    }

    #[test]
    fn no_cut_and_no_flipped_bit_makes_it_panic() {
        let values: Vec<f32> = (0..BLOCK + 900).map(|at| (at as f32 * 0.7).sin()).collect();
        let mut bytes = Vec::new();
        encode(Codec::TopK(40), &values, &mut bytes).unwrap();
        let mut decoded = vec![0.0; values.len()];
        // A range coder's last word may not be needed.
        for cut in 0..bytes.len() - 4 {
            assert!(decode(&bytes[..cut], &mut decoded).is_err(), "{cut}");
        }
        for bit in 0..8 * bytes.len() {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if decode(&bytes, &mut decoded).is_ok() {
                assert!(decoded.iter().all(|value| value.abs() <= MAX_MAGNITUDE));
            }
        }
        let longer = [&bytes[..], &[0; 12]].concat();
        assert!(decode(&longer, &mut decoded).is_err());
    }

    #[test]
    fn what_is_not_finite_is_found() {
        let mut values = vec![0.25; 300];
        values[271] = f32::NAN;
        assert_eq!(encode(Codec::TopK(4), &values, &mut Vec::new()), Err(271));
    }
}
