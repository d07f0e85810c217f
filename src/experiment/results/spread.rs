//! Mean and range over several seeds.

use crate::experiment::results::outcome::Outcome;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    pub least: f64,
    pub most: f64,
    /// Number of seeds.
    pub count: usize,
}

impl Spread {
    /// `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let (least, most) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some(Self { mean, least, most, count: values.len() })
    }

    /// The mean, with the range.
    pub(in crate::experiment) fn show(&self, decimals: usize) -> String {
        let Self { mean, least, most, count } = self;
        if *count == 1 {
            return format!("{mean:.decimals$}");
        }
        format!("{mean:.decimals$} ({least:.decimals$} to {most:.decimals$})")
    }
}

/// The outcomes of one arm.
pub(in crate::experiment) fn of_arm<'a>(outcomes: &'a [Outcome], name: &'a str) -> impl Iterator<Item = &'a Outcome> {
    outcomes.iter().filter(move |outcome| outcome.arm == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_has_no_range() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[2.0]).unwrap().show(2), "2.00");
        assert_eq!(spread(&[2.0, 3.0]).unwrap().show(1), "2.5 (2.0 to 3.0)");
        assert_eq!(spread(&[]), None);
    }
}
