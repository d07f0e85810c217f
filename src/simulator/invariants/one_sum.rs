//! Invariant: the same contributions make the same sum in any order. An owner that starts again, or another in its
//! place, makes the same update of them.

use crate::outer::exact_sum::ExactSum;

/// The decoded values of a contribution, and its weight.
pub type Summand = (Vec<f32>, u32);

/// # Errors
/// If the reverse order gives another sum.
pub fn look(sum: &ExactSum, summands: &[Summand]) -> Result<(), String> {
    let mut backwards = ExactSum::new(sum.count());
    for (values, weight) in summands.iter().rev() {
        backwards.add(values, *weight).map_err(|error| error.to_string())?;
    }
    if backwards == *sum { Ok(()) } else { Err(format!("{} contributions, backwards, make another", summands.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_differs_from_its_contributions_is_found() {
        let summands = vec![(vec![0.5, 1e-7], 3), (vec![-0.25, 1.0], 7), (vec![1.0, 1e-3], 1)];
        let mut sum = ExactSum::new(2);
        summands.iter().for_each(|(values, weight)| sum.add(values, *weight).unwrap());
        assert_eq!(look(&sum, &summands), Ok(()));
        sum.add(&[0.0, 2.0f32.powi(-32)], 1).unwrap();
        assert!(look(&sum, &summands).is_err());
    }
}
