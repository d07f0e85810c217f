//! Scaling of the average of outer gradients before it is applied.

use crate::config::Rescale;

/// √P for the P distinct paths in an update (DiPaCo, section 2.7), or 1.
///
/// Averaging P gradients in different directions shrinks them by about √P. This factor undoes it, so that modules with
/// many paths learn as fast as those with few. 1 for no paths.
pub fn rescale_factor(rescale: Rescale, distinct_paths: usize) -> f32 {
    match rescale {
        // A grid has at most 2^20 paths, which f32 holds exactly; its square root is correctly rounded everywhere.
        Rescale::SqrtPaths => (distinct_paths.max(1) as f32).sqrt(),
        Rescale::None => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_distinct_paths_count_and_only_if_configured() {
        assert_eq!(rescale_factor(Rescale::SqrtPaths, 16), 4.0);
        assert_eq!(rescale_factor(Rescale::SqrtPaths, 2), std::f32::consts::SQRT_2);
        assert_eq!(rescale_factor(Rescale::SqrtPaths, 0), 1.0);
        assert_eq!(rescale_factor(Rescale::None, 16), 1.0);
    }
}
