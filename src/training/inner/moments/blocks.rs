//! Moments in 8 bits, by blocks of 256 values: a floating-point number of few bits, whose range of exponents each block
//! chooses for itself.
//!
//! The bits of a positive f32, taken as an integer, are a logarithmic scale: 2^23 for each factor of two, linear within
//! it. Without its last `shift` bits this integer is a *position*. A code is a position less the block's `offset`, so that
//! codes 1 to 255 reach from the block's least value to its greatest; code 0 is zero. Everything is integer arithmetic on
//! bits: values that are decoded are encoded again to the same values, whatever their size, and every machine has the same.
//!
//! - The second moment is never negative. Its block takes the finest of the scales from 128 to 8 positions for a factor of
//!   two on which all its values fit. On the coarsest they may lie 2^31.9 apart; what is less is raised to the least, and
//!   never becomes zero: its root is divided by, and no step may explode.
//! - The first moment has a bit for the sign, and 8 positions for a factor of two. What is less than 2^-15.9 of the
//!   greatest becomes zero. That is where the root of the second moment ends too.
//!
//! The idea of blocks with a non-linear code is that of 8-bit optimisers (Dettmers et al., 2110.02861); the code is another.

use crate::training::inner::moments::rounding::LAST_FINITE;

/// Values of a block.
pub const BLOCK: usize = 256;

/// Which of the two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The average of gradients.
    First,
    /// The average of their squares.
    Second,
}

/// Bits that are cut off on the finest scale and on the coarsest: 7 and 3 bits of a fraction are left.
pub const SHIFTS: [i32; 2] = [16, 20];

/// The greatest codes of a second and of a first moment.
pub const MOST_CODES: [i32; 2] = [255, 127];

const SIGN: u32 = 1 << 31;

/// The range of a block: code 1 is position `offset + 1`, and a position has lost `shift` bits. As one integer, eight times
/// the offset and how much the shift is more than the finest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    offset: i32,
    shift: i32,
}

impl Range {
    fn of(packed: i32) -> Self {
        Self { offset: packed >> 3, shift: SHIFTS[0] + (packed & 7) }
    }

    fn packed(self) -> i32 {
        self.offset << 3 | (self.shift - SHIFTS[0])
    }

    /// The range of a block whose magnitudes, without zeros, have bits from `least` to `greatest`. All of them are zero if
    /// `greatest` is.
    #[inline(always)]
    fn around(which: Which, least: i32, greatest: i32) -> Self {
        let [finest, coarsest] = SHIFTS;
        let above = |shift: i32| (greatest >> shift) + i32::from(greatest & ((1 << shift) - 1) != 0);
        if which == Which::First {
            return Self { offset: (above(coarsest) - MOST_CODES[1]).max(0), shift: coarsest };
        }
        let fits = |shift: &i32| above(*shift) - (least >> *shift) < MOST_CODES[0];
        match (finest..=coarsest).find(fits) {
            Some(shift) => Self { offset: ((least >> shift) - 1).max(0), shift },
            None => Self { offset: (above(coarsest) - MOST_CODES[0]).max(0), shift: coarsest },
        }
    }
}

/// Encodes the values of a block, at most [`BLOCK`], with what is [added](super::rounding::Rounding::fill) to each. Returns
/// the block's range.
#[inline(always)]
pub fn encode(which: Which, values: &[f32], codes: &mut [u8], noise: &[u32]) -> i32 {
    let (mut least, mut greatest) = (i32::MAX, 0);
    for value in values {
        let magnitude = (value.to_bits() & !SIGN) as i32;
        greatest = greatest.max(magnitude);
        least = least.min(if magnitude == 0 { i32::MAX } else { magnitude });
    }
    let range = Range::around(which, least.min(greatest), greatest);
    let Range { offset, shift } = range;
    let (last, drop) = ((LAST_FINITE >> shift) as i32, 32 - shift);
    let all = codes.iter_mut().zip(values).zip(noise);
    let within = |magnitude: u32, noise: u32| (((magnitude + (noise >> drop)) >> shift) as i32).min(last) - offset;
    match which {
        Which::First => {
            for ((code, value), noise) in all {
                let (magnitude, sign) = (value.to_bits() & !SIGN, (value.to_bits() & SIGN) >> 24);
                let is_zero = (magnitude >> shift) as i32 <= offset;
                *code = if is_zero { 0 } else { (within(magnitude, *noise) as u32 | sign) as u8 };
            }
        }
        Which::Second => {
            for ((code, value), noise) in all {
                let magnitude = value.to_bits() & !SIGN;
                *code = if magnitude == 0 { 0 } else { within(magnitude, *noise).max(1) as u8 };
            }
        }
    }
    range.packed()
}

/// The values of a block.
#[inline(always)]
pub fn decode(which: Which, (codes, range): (&[u8], i32), values: &mut [f32]) {
    let Range { offset, shift } = Range::of(range);
    let (of_code, of_sign) = match which {
        Which::First => (127, SIGN >> 24),
        Which::Second => (255, 0),
    };
    for (value, code) in values.iter_mut().zip(codes) {
        let (code, sign) = (u32::from(*code) & of_code, (u32::from(*code) & of_sign) << 24);
        let bits = ((code as i32 + offset) << shift) as u32 | sign;
        *value = f32::from_bits(if code == 0 { 0 } else { bits });
    }
}
