//! Scaling of the average of outer gradients before it is applied.

use super::exact_sum::{ExactSum, length};
use crate::config::Rescale;

/// √P for the P distinct paths in an update (DiPaCo, section 2.3), or 1.
///
/// Averaging P gradients in different directions shrinks them by about √P. This factor undoes it, so that modules with
/// many paths learn as fast as those with few. 1 for no paths, and for radial scaling.
pub fn rescale_factor(rescale: Rescale, distinct_paths: usize) -> f32 {
    match rescale {
        // A grid has at most 2^20 paths, which f32 holds exactly; its square root is correctly rounded everywhere.
        Rescale::SqrtPaths => (distinct_paths.max(1) as f32).sqrt(),
        Rescale::None | Rescale::Radial => 1.0,
    }
}

/// The largest magnitude of a rescaled average: 8, the clamp of the exact sum, times √P of the largest grid. If
/// contributions nearly cancel, a radial average would exceed it.
const MOST: f32 = 8.0 * 1024.0;

/// The average of a sum, scaled for a run. Radial: the direction of the mean with the mean norm of the contributions;
/// zeros stay zeros.
pub fn rescaled(sum: &ExactSum, rescale: Rescale, distinct_paths: usize) -> Vec<f32> {
    let mut average = sum.average(rescale_factor(rescale, distinct_paths));
    if rescale == Rescale::Radial {
        let shrunk = length(&average);
        let factor = if shrunk > 0.0 { (sum.mean_length() / shrunk) as f32 } else { 1.0 };
        average.iter_mut().for_each(|value| *value *= factor);
    }
    average.iter_mut().for_each(|value| *value = value.clamp(-MOST, MOST));
    average
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OuterConfig;

    #[test]
    fn a_radial_average_has_the_mean_norm_of_its_contributions() {
        let outer = OuterConfig { rescale: Rescale::Radial, ..OuterConfig::default() };
        let mut sum = ExactSum::of_run(2, &outer);
        assert_eq!(rescaled(&sum, Rescale::Radial, 2), [0.0, 0.0]);
        sum.add(&[1.0, 0.0], 1).unwrap();
        sum.add(&[0.0, 3.0], 1).unwrap();
        // The mean is (0.5, 1.5), the mean norm 2.
        let [x, y] = rescaled(&sum, Rescale::Radial, 2)[..] else { panic!("two values") };
        assert!((x.hypot(y) - 2.0).abs() < 1.0e-6 && (y / x - 3.0).abs() < 1.0e-6);
    }

    #[test]
    fn only_distinct_paths_count_and_only_if_configured() {
        assert_eq!(rescale_factor(Rescale::SqrtPaths, 16), 4.0);
        assert_eq!(rescale_factor(Rescale::SqrtPaths, 2), std::f32::consts::SQRT_2);
        assert_eq!(rescale_factor(Rescale::SqrtPaths, 0), 1.0);
        assert_eq!(rescale_factor(Rescale::None, 16), 1.0);
    }
}
