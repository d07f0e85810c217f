//! A sum of weighted contributions that does not depend on their order or grouping.
//!
//! Adding floats in another order gives other bits; adding integers does not. So each value is rounded once, half to
//! even, to a multiple of 2⁻³² and clamped to ±(8 − 2⁻³²), which makes it an integer below 2³⁵ in magnitude. It is
//! multiplied by its weight and added to an `i64`:
//!
//! ```text
//! one value            |q|     <= 2^35 - 1
//! times its weight     |q·w|   <= 2^35 - 1 times 2^16   < 2^51   exact in f64, which holds integers to 2^53
//! all of them          |Σ q·w| <= 2^35 - 1 times 2^28   < 2^63   because the weights may add up to at most 2^28
//! ```
//!
//! 2²⁸ allows 4096 contributions of the greatest weight. Values of outer gradients are far below 1. A value beyond 8
//! comes from a diverging path, for which a bound is useful. The step of the grid is 2⁻³² = 2.3e-10.

use rayon::prelude::*;

use super::CHUNK_VALUES;

/// The greatest weight of one contribution.
pub const MAX_WEIGHT: u32 = 1 << 16;

/// The greatest sum of weights: 4096 contributions of [`MAX_WEIGHT`].
pub const MAX_TOTAL_WEIGHT: u64 = (MAX_WEIGHT as u64) << 12;

/// Steps of the grid in 1: 2³².
const STEPS: f64 = 4_294_967_296.0;

/// The clamp, in steps of the grid.
const MAX_STEPS: f64 = 8.0 * STEPS - 1.0;

/// 1.5·2⁵². Adding it to a number below 2⁵¹ rounds to an integer, half to even, in the low bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Why a contribution cannot be added. The sum is unchanged.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SumError {
    #[error("{found} values cannot be added to a sum of {expected}")]
    Count { found: usize, expected: usize },
    #[error("weight {0} is outside 1 to {MAX_WEIGHT}")]
    Weight(u32),
    #[error("the weights would add up to {0}, more than {MAX_TOTAL_WEIGHT}: publish the update and begin a new sum")]
    Full(u64),
    #[error("value {0} of the contribution is not finite")]
    NotFinite(usize),
}

/// A sum of weighted contributions to one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactSum {
    steps: Vec<i64>,
    weight: u64,
    /// The weight without norm caps.
    uncapped: u64,
}

impl ExactSum {
    /// An empty sum of `count` values.
    pub fn new(count: usize) -> Self {
        Self { steps: vec![0; count], weight: 0, uncapped: 0 }
    }

    pub fn count(&self) -> usize {
        self.steps.len()
    }

    /// The sum of the weights.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// The same sum with the weight that its contributions would have without norm caps. The average is divided by that
    /// weight, so that a capped contribution that is alone does not count in full.
    #[must_use]
    pub fn capped_from(self, uncapped: u64) -> Self {
        Self { uncapped, ..self }
    }

    /// The factor by which caps reduce an average.
    fn left(&self) -> f64 {
        if self.uncapped > self.weight { self.weight as f64 / self.uncapped as f64 } else { 1.0 }
    }

    /// Adds `weight` times `values`.
    pub fn add(&mut self, values: &[f32], weight: u32) -> Result<(), SumError> {
        if weight == 0 || weight > MAX_WEIGHT {
            return Err(SumError::Weight(weight));
        }
        let total = self.fits(values.len(), u64::from(weight))?;
        if let Some(index) = first_not_finite(values) {
            return Err(SumError::NotFinite(index));
        }
        let weight = f64::from(weight);
        self.steps.par_chunks_mut(CHUNK_VALUES).zip(values.par_chunks(CHUNK_VALUES)).for_each(|(sum, values)| {
            for (sum, value) in sum.iter_mut().zip(values) {
                // Cannot wrap, by the arithmetic above.
                *sum = sum.wrapping_add(weighted_steps(*value, weight));
            }
        });
        self.weight = total;
        Ok(())
    }

    fn fits(&self, count: usize, weight: u64) -> Result<u64, SumError> {
        if count != self.steps.len() {
            return Err(SumError::Count { found: count, expected: self.steps.len() });
        }
        let total = self.weight + weight;
        if total > MAX_TOTAL_WEIGHT { Err(SumError::Full(total)) } else { Ok(total) }
    }

    /// `sum / weight · factor`, in f64 and then rounded to f32; zeros for an empty sum. The weight is that of all
    /// contributions, divided by what [caps](Self::capped_from) leave of it.
    pub fn average(&self, factor: f32) -> Vec<f32> {
        let weight = self.weight.max(1) as f64;
        let factor = f64::from(factor) * self.left();
        let part = |sum: &i64| (*sum as f64 / STEPS / weight * factor) as f32;
        self.steps.par_iter().with_min_len(CHUNK_VALUES).map(part).collect()
    }

    /// The length of `sum / weight`: that of the average without its factor and without what caps leave of it.
    pub(super) fn average_length(&self) -> f64 {
        // Below 2^63 each, so the squares of any number of values are far from infinity.
        let squares = |steps: &[i64]| steps.iter().map(|steps| (*steps as f64).powi(2)).sum::<f64>();
        let parts: Vec<f64> = self.steps.par_chunks(CHUNK_VALUES).map(squares).collect();
        parts.into_iter().sum::<f64>().sqrt() / STEPS / self.weight.max(1) as f64
    }
}

/// The length of values as a sum adds them, which clamps each; `length` is theirs.
pub(super) fn summed_length(values: &[f32], length: f64) -> f64 {
    let most = (MAX_STEPS / STEPS) as f32;
    if length <= f64::from(most) {
        return length;
    }
    let squares = |values: &[f32]| values.iter().map(|value| f64::from(value.clamp(-most, most)).powi(2)).sum::<f64>();
    let parts: Vec<f64> = values.par_chunks(CHUNK_VALUES).map(squares).collect();
    parts.into_iter().sum::<f64>().sqrt()
}

/// The norm of a vector, the same on every machine: parts of a fixed size, added in order.
pub(super) fn length(values: &[f32]) -> f64 {
    let squares = |values: &[f32]| values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>();
    let parts: Vec<f64> = values.par_chunks(CHUNK_VALUES).map(squares).collect();
    parts.into_iter().sum::<f64>().sqrt()
}

/// The value on the grid times the weight. Every operation but the first addition is exact.
#[inline]
fn weighted_steps(value: f32, weight: f64) -> i64 {
    let steps = (f64::from(value) * STEPS).clamp(-MAX_STEPS, MAX_STEPS);
    let rounded = (steps + ROUNDER) - ROUNDER;
    let weighted = rounded * weight + ROUNDER;
    weighted.to_bits().wrapping_sub(ROUNDER.to_bits()) as i64
}

fn first_not_finite(values: &[f32]) -> Option<usize> {
    let infinity = f32::INFINITY.to_bits();
    let finite = |values: &[f32]| {
        values.iter().fold(0, |largest: u32, value| largest.max(value.to_bits() & (u32::MAX >> 1))) < infinity
    };
    let chunk = values.par_chunks(CHUNK_VALUES).position_first(|values| !finite(values))?;
    values.iter().skip(chunk * CHUNK_VALUES).position(|value| !value.is_finite()).map(|at| chunk * CHUNK_VALUES + at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_rounded_once_half_to_even() {
        let step = 2.0f32.powi(-32);
        let cases = [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (-2.5, -2), (3.25, 3), (1.0, 1)];
        for (value, expected) in cases {
            assert_eq!(weighted_steps(value * step, 1.0), expected);
            assert_eq!(weighted_steps(value * step, 65536.0), expected * 65536);
        }
        assert_eq!(weighted_steps(1.0, 3.0), 3 << 32);
        assert_eq!(weighted_steps(f32::MIN_POSITIVE, 65536.0), 0);
    }

    #[test]
    fn the_largest_sum_does_not_overflow() {
        for value in [8.0, -8.0, f32::MAX, f32::MIN] {
            let mut sum = ExactSum::new(1);
            for _ in 0..4096 {
                sum.add(&[value], MAX_WEIGHT).unwrap();
            }
            let bound = i64::MAX - ((1 << 28) - 1);
            assert_eq!(sum.steps[0], bound * value.signum() as i64);
            assert_eq!(sum.average(1.0)[0], value.clamp(-8.0, 8.0));
            assert_eq!(sum.add(&[value], 1), Err(SumError::Full(MAX_TOTAL_WEIGHT + 1)));
        }
    }

    #[test]
    fn the_average_is_weighted_and_scaled() {
        let mut sum = ExactSum::new(2);
        assert_eq!(sum.average(2.0), [0.0, 0.0]);
        sum.add(&[1.0, -0.25], 3).unwrap();
        sum.add(&[0.0, 0.75], 1).unwrap();
        assert_eq!(sum.average(1.0), [0.75, 0.0]);
        assert_eq!(sum.average(2.0), [1.5, 0.0]);
        assert_eq!(sum.weight(), 4);
    }

    #[test]
    fn a_capped_contribution_does_not_count_in_full_when_it_is_alone() {
        let mut sum = ExactSum::new(1);
        sum.add(&[5.0], 400).unwrap();
        assert_eq!(sum.clone().capped_from(400).average(1.0), [5.0]);
        assert_eq!(sum.capped_from(10_000).average(1.0), [0.2]);
    }

    #[test]
    fn a_refused_contribution_does_not_change_the_sum() {
        let mut sum = ExactSum::new(70_000);
        let mut values = vec![0.5; 70_000];
        sum.add(&values, 7).unwrap();
        let before = sum.clone();
        assert_eq!(sum.add(&values, 0), Err(SumError::Weight(0)));
        assert_eq!(sum.add(&values, MAX_WEIGHT + 1), Err(SumError::Weight(MAX_WEIGHT + 1)));
        assert_eq!(sum.add(&values[1..], 1), Err(SumError::Count { found: 69_999, expected: 70_000 }));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            values[66_000] = bad;
            assert_eq!(sum.add(&values, 1), Err(SumError::NotFinite(66_000)));
        }
        assert_eq!(sum, before);
    }

    #[test]
    fn chunks_and_threads_do_not_change_the_result() {
        let values: Vec<f32> = (0..200_000).map(|i| (i as f32).sin()).collect();
        let mut sum = ExactSum::new(values.len());
        sum.add(&values, 5).unwrap();
        let plainly: Vec<i64> = values.iter().map(|value| weighted_steps(*value, 5.0)).collect();
        assert_eq!(sum.steps, plainly);
    }

    fn contributions() -> impl Strategy<Value = Vec<(Vec<f32>, u32)>> {
        let value = prop_oneof![-1.0f32..1.0, -1.0e-6f32..1.0e-6, -20.0f32..20.0, any::<i32>().prop_map(|i| i as f32)];
        prop::collection::vec((prop::collection::vec(value, 5), 1..=MAX_WEIGHT), 1..12)
    }

    proptest! {
        #[test]
        fn any_order_gives_the_same_bits(
            (ordered, shuffled) in contributions()
                .prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle())),
        ) {
            let [one, other] = [ordered, shuffled].map(|list| {
                let mut sum = ExactSum::new(5);
                list.iter().for_each(|(values, weight)| sum.add(values, *weight).unwrap());
                sum
            });
            prop_assert_eq!(&one, &other);
            let bits = |sum: &ExactSum| sum.average(1.4).iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&one), bits(&other));
        }

        #[test]
        fn the_grid_is_as_documented(value in any::<f32>().prop_filter("finite", |v| v.is_finite()), weight in 1..=MAX_WEIGHT) {
            let steps = (f64::from(value) * 4_294_967_296.0).round_ties_even();
            let bound = (1i64 << 35) - 1;
            let expected = if steps.abs() > bound as f64 { bound * steps.signum() as i64 } else { steps as i64 };
            prop_assert_eq!(weighted_steps(value, f64::from(weight)), expected * i64::from(weight));
        }
    }
}
