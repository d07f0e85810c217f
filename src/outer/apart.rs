//! How far apart two contributions lie that should be the same: from two machines that have made the same steps.

use super::exact_sum::length;
use crate::compress::frame::{self, FrameError};
use crate::config::OuterConfig;

/// The length of the difference, in millionths of the length of the longer one; 0 where both are nothing. What is no
/// contribution at all is as far from one as can be.
///
/// # Errors
/// If what was made here is no contribution.
pub fn apart_ppm(theirs: &[u8], ours: &[u8], count: usize, outer: &OuterConfig) -> Result<u32, FrameError> {
    let ours = frame::decode_as(outer.codec, ours, count)?;
    let Ok(theirs) = frame::decode_as(outer.codec, theirs, count) else { return Ok(u32::MAX) };
    Ok((1e6 * apart(&theirs, &ours)).min(f64::from(u32::MAX)) as u32)
}

/// The same of their values, as a share.
pub fn apart(theirs: &[f32], ours: &[f32]) -> f64 {
    let longer = length(theirs).abs().max(length(ours).abs());
    let difference: Vec<f32> = theirs.iter().zip(ours).map(|(theirs, ours)| theirs - ours).collect();
    if longer > 0.0 { length(&difference).abs() / longer } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::encode;

    #[test]
    fn two_that_pull_the_same_way_are_near_and_two_that_pull_against_each_other_are_far() {
        let outer = OuterConfig::default();
        let frame = |values: &[f32]| encode(outer.codec, values).unwrap();
        let values: Vec<f32> = (0..300).map(|index| ((index * 37 % 101) as f32 - 50.0) / 50.0).collect();
        let other = |of: fn(f32) -> f32| frame(&values.iter().map(|value| of(*value)).collect::<Vec<f32>>());
        let ours = frame(&values);
        let from = |theirs: &[u8]| apart_ppm(theirs, &ours, 300, &outer).unwrap();
        assert_eq!(from(&ours), 0);
        assert!((1..200_000).contains(&from(&other(|value| value * 1.05))), "{}", from(&other(|value| value * 1.05)));
        assert_eq!(from(&other(|value| -value)), 2_000_000);
        assert_eq!(from(&other(|_| 0.0)), 1_000_000);
        assert_eq!(from(b"no frame"), u32::MAX);
        assert!(apart_ppm(&ours, b"no frame", 300, &outer).is_err());
        assert_eq!(apart(&[0.0], &[0.0]), 0.0);
    }
}
