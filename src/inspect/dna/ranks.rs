//! Which ways tokens take, and how often: rank against frequency, the exponent of the power law, and who takes them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::journeys::{Journey, Journeys};
use crate::config::DnaConfig;

/// Tokens that are shown of a way.
const SHOWN_TOKENS: usize = 8;

/// One way through the pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Way {
    /// In each step, the modules that compute.
    pub modules: Vec<Vec<u16>>,
    /// Tokens that take it.
    pub count: u64,
    /// Of these the commonest, each with how many there are.
    pub tokens: Vec<(u32, u64)>,
}

/// All ways that are taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranks {
    /// The commonest first.
    pub ways: Vec<Way>,
    /// How many tokens there are.
    pub tokens: u64,
    /// `a` in `count ~ rank^-a`, by least squares over the logarithms of all that is taken twice; nothing of fewer than three.
    pub exponent: Option<f64>,
}

/// What some journeys make.
pub fn ranks(journeys: &Journeys, dna: &DnaConfig) -> Ranks {
    let mut found: BTreeMap<Vec<Vec<u16>>, BTreeMap<u32, u64>> = BTreeMap::new();
    for journey in &journeys.all {
        *found.entry(journey.way(dna)).or_default().entry(journey.token).or_default() += 1;
    }
    let way = |(modules, tokens): (Vec<Vec<u16>>, BTreeMap<u32, u64>)| {
        let count = tokens.values().sum();
        let mut tokens: Vec<(u32, u64)> = tokens.into_iter().collect();
        tokens.sort_by_key(|(token, count)| (std::cmp::Reverse(*count), *token));
        tokens.truncate(SHOWN_TOKENS);
        Way { modules, count, tokens }
    };
    let mut ways: Vec<Way> = found.into_iter().map(way).collect();
    ways.sort_by_key(|way| std::cmp::Reverse(way.count));
    let exponent = exponent(&ways.iter().map(|way| way.count).collect::<Vec<_>>());
    Ranks { ways, tokens: journeys.all.len() as u64, exponent }
}

impl Ranks {
    /// The rank of each way, from 0.
    pub fn by_way(&self) -> BTreeMap<&[Vec<u16>], usize> {
        self.ways.iter().enumerate().map(|(rank, way)| (&way.modules[..], rank)).collect()
    }

    /// The rank of a token's way.
    pub fn of(&self, journey: &Journey, dna: &DnaConfig) -> Option<usize> {
        let way = journey.way(dna);
        self.ways.iter().position(|own| own.modules == way)
    }
}

fn exponent(counts: &[u64]) -> Option<f64> {
    let points: Vec<(f64, f64)> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count >= 2)
        .map(|(rank, count)| ((rank as f64 + 1.0).ln(), (*count as f64).ln()))
        .collect();
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let across: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let along: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    (points.len() > 2).then(|| -across / along)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_law_has_its_exponent() {
        for power in [0.5, 1.0, 2.0] {
            let counts: Vec<u64> = (1..=40).map(|rank| (1e7 * f64::from(rank).powf(-power)) as u64).collect();
            assert!((exponent(&counts).unwrap() - power).abs() < 1e-3);
        }
        assert_eq!(exponent(&[9, 4]), None);
    }
}
