//! How a value is rounded to fewer bits: to the nearest, or at random without bias.
//!
//! A moment moves by a small share of itself in a step. Rounded to the nearest, a share below half a unit of the last place
//! is lost every time, and the moment stands still. Rounded up with a probability that is the remainder, it moves by as much
//! in the mean. The random numbers are a hash of the step and of the value's place, so that the same step gives the same
//! bits on any number of threads, and after resumption.

/// The bits of the greatest finite f32.
pub const LAST_FINITE: u32 = 0x7f7f_ffff;

/// Multiplier of the hash. It is less than 2^27: the product with 32 bits is exact in a signed 64-bit integer, of which
/// tensors are made.
pub const MULTIPLIER: u32 = 0x045d_9f3b;

/// What is added to a value's bits before the last ones are cut off, as a fraction of 2^32 of what is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// One half. A value that has no bits to lose stays as it is.
    Nearest,
    /// A random number for each place. A value that has no bits to lose stays as it is here too.
    Random {
        /// Of the step and the tensor.
        key: u32,
    },
}

impl Rounding {
    /// The random numbers of a tensor in a step.
    pub fn of(step: u64, level: usize, tensor: usize) -> Self {
        let place = scrambled(level as u32) ^ tensor as u32;
        Self::Random { key: scrambled(step as u32 ^ scrambled(place)) }
    }

    /// The fractions of consecutive places of a tensor, from this one on.
    #[inline(always)]
    pub fn fill(self, place: usize, noise: &mut [u32]) {
        match self {
            Self::Nearest => noise.fill(1 << 31),
            Self::Random { key } => {
                for (noise, place) in noise.iter_mut().zip(place as u32..) {
                    *noise = scrambled(place ^ key);
                }
            }
        }
    }
}

/// A hash of 32 bits.
#[inline(always)]
fn scrambled(value: u32) -> u32 {
    let mixed = (value ^ value >> 16).wrapping_mul(MULTIPLIER);
    let mixed = (mixed ^ mixed >> 16).wrapping_mul(MULTIPLIER);
    mixed ^ mixed >> 16
}

/// The bits of bfloat16 numbers, with what is [added](Rounding::fill) to each value.
#[inline(always)]
pub fn to_bf16(values: &[f32], bits: &mut [u16], noise: &[u32]) {
    for ((bits, value), noise) in bits.iter_mut().zip(values).zip(noise) {
        let (sign, magnitude) = (value.to_bits() & 1 << 31, value.to_bits() & !(1 << 31));
        *bits = ((magnitude + (noise >> 16)).min(LAST_FINITE) >> 16 | sign >> 16) as u16;
    }
}

/// The values of bfloat16 numbers.
#[inline(always)]
pub fn from_bf16(bits: &[u16], values: &mut [f32]) {
    for (value, bits) in values.iter_mut().zip(bits) {
        *value = f32::from_bits(u32::from(*bits) << 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_even_and_differ_from_step_to_step() {
        let mut noise = vec![0; 1 << 16];
        let mut sums = Vec::new();
        for step in 0..4 {
            Rounding::of(step, 1, 2).fill(5, &mut noise);
            let mean = noise.iter().map(|x| f64::from(*x)).sum::<f64>() / noise.len() as f64 / 2f64.powi(32);
            assert!((mean - 0.5).abs() < 0.005, "{mean}");
            for bit in 0..32 {
                let set = noise.iter().filter(|x| **x >> bit & 1 == 1).count() as f64 / noise.len() as f64;
                assert!((set - 0.5).abs() < 0.01, "bit {bit}: {set}");
            }
            sums.push(noise[77]);
        }
        sums.dedup();
        assert_eq!(sums.len(), 4);
    }

    #[test]
    fn a_moment_that_moves_by_less_than_a_unit_of_bfloat16_moves_as_much_in_the_mean() {
        // β₂ = 0.999 of gradients that have ended: rounded to the nearest it would stay at one.
        let mut bits = vec![0x3f80; 4096];
        let (mut values, mut noise) = (vec![0f32; bits.len()], vec![0; bits.len()]);
        for step in 0..500 {
            from_bf16(&bits, &mut values);
            values.iter_mut().for_each(|value| *value *= 0.999);
            Rounding::of(step, 0, 0).fill(0, &mut noise);
            to_bf16(&values, &mut bits, &noise);
        }
        from_bf16(&bits, &mut values);
        let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64;
        assert!((mean / 0.999f64.powi(500) - 1.0).abs() < 0.01, "{mean}");
        let mut still = [0u16];
        to_bf16(&[0.999], &mut still, &[1 << 31]);
        assert_eq!(still, [0x3f80], "the nearest is where it was");
    }

    #[test]
    fn the_greatest_value_stays_finite() {
        let mut bits = [0; 2];
        to_bf16(&[f32::MAX, f32::MIN], &mut bits, &[1 << 31; 2]);
        assert_eq!(bits, [0x7f7f, 0xff7f]);
    }
}
