//! Frequencies of routes: rank against frequency, the exponent of the power law, and the tokens of each route.

use std::collections::BTreeMap;

use serde::Serialize;

use super::token_routes::{TokenRoute, TokenRoutes};
use crate::config::DnaConfig;

/// Tokens shown of a route.
const SHOWN_TOKENS: usize = 8;

/// A route through the pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Route {
    /// For each step, the chosen modules with parameters.
    pub modules: Vec<Vec<u16>>,
    /// Tokens that take it.
    pub count: u64,
    /// The commonest of these tokens, with their counts.
    pub tokens: Vec<(u32, u64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranks {
    /// The commonest first.
    pub routes: Vec<Route>,
    /// Number of tokens.
    pub tokens: u64,
    /// `a` in `count ~ rank^-a`, by least squares over the logarithms of all routes that are taken at least twice;
    /// `None` for fewer than three.
    pub exponent: Option<f64>,
}

/// The ranks of recorded routes.
pub fn ranks(token_routes: &TokenRoutes, dna: &DnaConfig) -> Ranks {
    let mut found: BTreeMap<Vec<Vec<u16>>, BTreeMap<u32, u64>> = BTreeMap::new();
    for token_route in &token_routes.all {
        *found.entry(token_route.route(dna)).or_default().entry(token_route.token).or_default() += 1;
    }
    let route = |(modules, tokens): (Vec<Vec<u16>>, BTreeMap<u32, u64>)| {
        let count = tokens.values().sum();
        let mut tokens: Vec<(u32, u64)> = tokens.into_iter().collect();
        tokens.sort_by_key(|(token, count)| (std::cmp::Reverse(*count), *token));
        tokens.truncate(SHOWN_TOKENS);
        Route { modules, count, tokens }
    };
    let mut routes: Vec<Route> = found.into_iter().map(route).collect();
    routes.sort_by_key(|route| std::cmp::Reverse(route.count));
    let exponent = exponent(&routes.iter().map(|route| route.count).collect::<Vec<_>>());
    Ranks { routes, tokens: token_routes.all.len() as u64, exponent }
}

impl Ranks {
    /// The rank of each route, from 0.
    pub fn by_route(&self) -> BTreeMap<&[Vec<u16>], usize> {
        self.routes.iter().enumerate().map(|(rank, route)| (&route.modules[..], rank)).collect()
    }

    /// The rank of a token's route.
    pub fn of(&self, token_route: &TokenRoute, dna: &DnaConfig) -> Option<usize> {
        let route = token_route.route(dna);
        self.routes.iter().position(|own| own.modules == route)
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
