//! The outer gradient, before minus after the inner steps.

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum OuterGradientError {
    #[error(
        "an outer gradient needs equal lengths, found {before} parameters before, {after} after, residual {residual}"
    )]
    Lengths { before: usize, after: usize, residual: usize },
    #[error("the outer gradient is {value} at {index}; training diverged, so it is not sent")]
    NotFinite { index: usize, value: f32 },
}

/// `before - after`, times the path's weight among the paths of the module, plus `residual`, the part of the last
/// compression's residual that is carried over (error feedback), if any.
pub fn outer_gradient(
    before: &[f32],
    after: &[f32],
    share: f32,
    residual: Option<(f32, &[f32])>,
) -> Result<Vec<f32>, OuterGradientError> {
    let extra = residual.map_or(before.len(), |(_, residual)| residual.len());
    if before.len() != after.len() || before.len() != extra {
        return Err(OuterGradientError::Lengths { before: before.len(), after: after.len(), residual: extra });
    }
    let mut gradient: Vec<f32> = before.iter().zip(after).map(|(before, after)| (before - after) * share).collect();
    if let Some((part, residual)) = residual {
        gradient.iter_mut().zip(residual).for_each(|(value, lost)| *value += part * lost);
    }
    match gradient.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        Some((index, value)) => Err(OuterGradientError::NotFinite { index, value: *value }),
        None => Ok(gradient),
    }
}

/// A path's own copy of shared parameters, which contains its unsent changes: `replicated - unsent`. The outer gradient
/// against `replicated` after further inner steps then includes them.
///
/// # Panics
/// If the lengths differ.
pub fn own_copy(replicated: &[f32], unsent: &[f32]) -> Vec<f32> {
    assert_eq!(replicated.len(), unsent.len(), "parameters of one level");
    replicated.iter().zip(unsent).map(|(replicated, unsent)| replicated - unsent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compression_lost_is_added_again() {
        assert_eq!(outer_gradient(&[3.0, 1.0], &[1.0, 2.0], 1.0, None).unwrap(), [2.0, -1.0]);
        assert_eq!(outer_gradient(&[3.0, 1.0], &[1.0, 2.0], 1.0, Some((1.0, &[0.5, 0.5]))).unwrap(), [2.5, -0.5]);
        assert_eq!(outer_gradient(&[3.0, 1.0], &[1.0, 2.0], 1.5, Some((0.5, &[0.5, 0.5]))).unwrap(), [3.25, -1.25]);
    }

    #[test]
    fn what_a_path_keeps_is_in_its_next_outer_gradient_once() {
        let (replicated, unsent) = ([3.0, 1.0], [0.5, -0.25]);
        let own = own_copy(&replicated, &unsent);
        assert_eq!(own, [2.5, 1.25]);
        // Without inner steps, the outer gradient is the unsent part.
        assert_eq!(outer_gradient(&replicated, &own, 1.0, None).unwrap(), unsent);
    }

    #[test]
    fn a_diverged_or_foreign_copy_gives_none() {
        assert!(matches!(outer_gradient(&[1.0], &[1.0, 2.0], 1.0, None), Err(OuterGradientError::Lengths { .. })));
        assert!(matches!(
            outer_gradient(&[1.0], &[1.0], 1.0, Some((1.0, &[]))),
            Err(OuterGradientError::Lengths { .. })
        ));
        let diverged = outer_gradient(&[1.0, 1.0], &[1.0, f32::NAN], 1.0, None);
        assert!(matches!(diverged, Err(OuterGradientError::NotFinite { index: 1, .. })));
    }
}
