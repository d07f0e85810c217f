//! Random numbers, all from a drill's seed.

use std::ops::RangeInclusive;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use serde::Deserialize;

use crate::seed::Seed;

/// A range to draw whole numbers from: `[least, most]` in a scenario's file, both inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "[u64; 2]")]
pub struct Between {
    pub least: u64,
    pub most: u64,
}

impl From<[u64; 2]> for Between {
    fn from([least, most]: [u64; 2]) -> Self {
        Self { least, most }
    }
}

impl From<RangeInclusive<u64>> for Between {
    fn from(range: RangeInclusive<u64>) -> Self {
        Self { least: *range.start(), most: *range.end() }
    }
}

/// One random stream.
#[derive(Debug)]
pub struct SeededRng(ChaCha8Rng);

impl SeededRng {
    /// The stream of this name.
    pub fn new(seed: u64, purpose: &str) -> Self {
        Self(Seed::root(seed).child(purpose).generator())
    }

    pub fn draw(&mut self, between: Between) -> u64 {
        let width = between.most.saturating_sub(between.least).saturating_add(1);
        between.least + self.0.next_u64() % width
    }

    /// An index below `of`; 0 if there are none.
    pub fn pick(&mut self, of: usize) -> usize {
        (self.0.next_u64() % of.max(1) as u64) as usize
    }

    /// Between zero (inclusive) and one (exclusive).
    pub fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.share() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_the_range_and_reach_both_ends() {
        let mut rng = SeededRng::new(1, "test");
        let drawn: std::collections::BTreeSet<u64> = (0..200).map(|_| rng.draw([3, 6].into())).collect();
        assert_eq!(drawn, [3, 4, 5, 6].into());
        assert_eq!(rng.draw([9, 9].into()), 9);
        assert!(!(0..100).any(|_| rng.chance(0.0)));
        assert!((0..100).all(|_| rng.chance(1.0)));
    }
}
