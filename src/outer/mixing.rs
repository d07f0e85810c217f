//! Mixing an update into the parameters of a path that has trained on (Streaming DiLoCo, section 2.3.2).
//!
//! This changes a path's own copy, not the replicated state, so peers need not agree on it.

/// `own` becomes `α · own + (1 − α) · new`: the path's parameters after its inner steps, and the module's after the
/// update.
///
/// # Panics
/// If the lengths differ.
pub fn mix(own: &mut [f32], new: &[f32], alpha: f32) {
    assert_eq!(own.len(), new.len(), "parameters of one level");
    for (own, new) in own.iter_mut().zip(new) {
        *own = alpha * *own + (1.0 - alpha) * new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_own_parameters_is_alpha() {
        let mut own = [1.0, -3.0];
        mix(&mut own, &[3.0, 1.0], 0.25);
        assert_eq!(own, [2.5, 0.0]);
        mix(&mut own, &[7.0, 8.0], 0.0);
        assert_eq!(own, [7.0, 8.0]);
    }
}
