//! How far the outer gradients of one update point in the same direction.
//!
//! From lengths alone, without keeping the gradients. With normalised weights `w_i`, gradients `g_i` and `n_i = |g_i|`:
//!
//! ```text
//!              |Σ w_i g_i|² − Σ w_i² n_i²      Σ_{i≠j} w_i w_j n_i n_j cos(g_i, g_j)
//! agreement = ---------------------------- = ---------------------------------------
//!              (Σ w_i n_i)² − Σ w_i² n_i²      Σ_{i≠j} w_i w_j n_i n_j
//! ```
//!
//! Everything here is measured on the gradients *as they are added to the sum*: decompressed, after centred clipping,
//! with values beyond the sum's clamp cut off, and with the weights that norm caps leave. The average is the one of the
//! sum, before it is rescaled by √P, reduced for caps or compressed. So numerator and denominator are of the same
//! vectors. The numbers are shown to people; no update depends on them.

use super::exact_sum::ExactSum;

/// Below this share of its greatest possible value, the denominator is rounding: one contribution has all the weight.
const LEAST_SHARE: f64 = 1e-9;

/// The lengths of the gradients that are in a sum, with their weights. They add up in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lengths {
    contributions: usize,
    /// `Σ W_i`, where `W_i` are the weights as they are in the sum.
    weight: f64,
    /// `Σ W_i n_i`
    sum: f64,
    /// `Σ W_i² n_i²`
    squares: f64,
}

/// Size and agreement of the outer gradients that one update counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct GradientNorms {
    pub contributions: usize,
    /// The weighted mean of their norms.
    pub mean_norm: f64,
    /// The norm of their weighted mean, at most `mean_norm`.
    pub average_norm: f64,
    /// The mean cosine between two contributions, weighted with their weights and norms, from -1 to 1. Nothing with fewer
    /// than two contributions that are not zero.
    pub agreement: Option<f64>,
}

impl Lengths {
    /// A gradient of this length was added with this weight.
    pub fn add(&mut self, length: f64, weight: u32) {
        let weight = f64::from(weight);
        self.contributions += 1;
        self.weight += weight;
        self.sum += weight * length;
        self.squares += (weight * length).powi(2);
    }

    /// Compares the lengths with that of the sum to which the gradients were added.
    pub fn of(&self, sum: &ExactSum) -> GradientNorms {
        let Self { contributions, weight, sum: weighted, squares } = *self;
        let average_norm = sum.average_length();
        let mean_norm = if weight > 0.0 { weighted / weight } else { 0.0 };
        // Everything times the square of the whole weight.
        let (most, together) = (weighted.powi(2) - squares, (average_norm * weight).powi(2));
        let measurable = contributions > 1 && most > LEAST_SHARE * weighted.powi(2);
        let agreement = measurable.then(|| ((together - squares) / most).clamp(-1.0, 1.0));
        GradientNorms { contributions, mean_norm, average_norm, agreement }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::exact_sum::{length, summed_length};
    use super::*;

    fn of(contributions: &[(Vec<f32>, u32)]) -> GradientNorms {
        let (mut sum, mut lengths) = (ExactSum::new(contributions[0].0.len()), Lengths::default());
        for (values, weight) in contributions {
            sum.add(values, *weight).unwrap();
            lengths.add(summed_length(values, length(values)), *weight);
        }
        lengths.of(&sum)
    }

    fn agreement(contributions: &[(Vec<f32>, u32)]) -> f64 {
        of(contributions).agreement.unwrap()
    }

    /// The definition: the mean of the cosines of all pairs.
    fn directly(contributions: &[(Vec<f32>, u32)]) -> f64 {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let (mut above, mut below) = (0.0, 0.0);
        for (i, (one, weight)) in contributions.iter().enumerate() {
            for (other, other_weight) in contributions.iter().take(i) {
                let lengths = dot(one, one).sqrt() * dot(other, other).sqrt();
                let pair = f64::from(*weight) * f64::from(*other_weight) * lengths;
                above += pair * (dot(one, other) / lengths);
                below += pair;
            }
        }
        above / below
    }

    #[test]
    fn equal_gradients_agree_opposite_ones_do_not_and_orthogonal_ones_are_between() {
        let one = vec![0.3f32, -0.4, 0.0];
        let scaled = |by: f32| one.iter().map(|value| value * by).collect::<Vec<f32>>();
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        close(agreement(&[(one.clone(), 7), (one.clone(), 100), (one.clone(), 1)]), 1.0);
        close(agreement(&[(one.clone(), 7), (scaled(2.5), 3)]), 1.0);
        close(agreement(&[(one.clone(), 7), (scaled(-1.0), 7)]), -1.0);
        close(agreement(&[(one.clone(), 7), (scaled(-0.1), 900)]), -1.0);
        close(agreement(&[(one.clone(), 7), (vec![0.0, 0.0, 2.0], 5)]), 0.0);
    }

    #[test]
    fn fewer_than_two_gradients_have_no_agreement() {
        let alone = of(&[(vec![3.0, 4.0], 9)]);
        assert_eq!(alone, GradientNorms { contributions: 1, mean_norm: 5.0, average_norm: 5.0, agreement: None });
        assert_eq!(of(&[(vec![3.0, 4.0], 9), (vec![0.0, 0.0], 9)]).agreement, None);
        assert_eq!(of(&[(vec![0.0, 0.0], 9), (vec![0.0, 0.0], 9)]).agreement, None);
        assert_eq!(Lengths::default().of(&ExactSum::new(2)), GradientNorms::default());
    }

    #[test]
    fn caps_and_rescaling_change_neither_norms_nor_agreement() {
        let contributions = [(vec![1.0f32, 0.0], 400), (vec![0.0, 1.0], 10_000), (vec![1.0, 1.0], 10_000)];
        let (mut sum, mut lengths) = (ExactSum::new(2), Lengths::default());
        for (values, weight) in &contributions {
            sum.add(values, *weight).unwrap();
            lengths.add(length(values), *weight);
        }
        let capped = lengths.of(&sum.clone().capped_from(30_000));
        assert_eq!(capped, lengths.of(&sum), "what is left after caps is of no concern");
        assert!((capped.agreement.unwrap() - directly(&contributions)).abs() < 1e-6);
    }

    #[test]
    fn a_value_beyond_the_clamp_of_the_sum_is_measured_as_it_is_added() {
        let contributions = [(vec![100.0f32, 0.0], 5), (vec![0.0, 6.0], 5), (vec![-9.0, 6.0], 5)];
        let clamped = contributions.clone().map(|(values, weight)| {
            (values.into_iter().map(|value| value.clamp(-8.0, 8.0)).collect::<Vec<f32>>(), weight)
        });
        let found = of(&contributions);
        assert!((found.agreement.unwrap() - directly(&clamped)).abs() < 1e-6, "{found:?}");
        assert!((found.mean_norm - 8.0).abs() < 1e-6, "8, 6 and 10: {found:?}");
    }

    proptest! {
        #[test]
        fn it_is_the_weighted_mean_cosine_of_all_pairs(
            contributions in prop::collection::vec(
                (prop::collection::vec(prop_oneof![-1.0f32..-1.0e-3, 1.0e-3f32..1.0], 12), 1u32..65_536), 2..10),
        ) {
            let (found, expected) = (of(&contributions), directly(&contributions));
            prop_assume!(found.agreement.is_some());
            let agreement = found.agreement.unwrap();
            // The sum rounds to multiples of 2^-32; where one weight has nearly everything, that shows.
            prop_assert!((agreement - expected).abs() < 1e-3, "{} {}", agreement, expected);
            prop_assert!(found.average_norm <= found.mean_norm * (1.0 + 1e-6));
        }
    }
}
