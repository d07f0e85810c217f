//! Compute per token and sequence, and how often tokens return to the same module.

use serde::Serialize;

use super::token_routes::{TokenRoute, TokenRoutes};
use crate::config::{ModelConfig, Part};
use crate::inspect::statistics::{mean, quantiles, variance};
use crate::inspect::subject::Passages;

/// Sequences shown of each kind.
const SHOWN: usize = 2;

/// Compute in the routed steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compute {
    /// Parameters that act on a token: mean over tokens, and the 5%, 50% and 95% quantiles.
    pub parameters: f64,
    pub quantiles: [f64; 3],
    /// The mean of each sequence's tokens.
    pub by_sequence: Vec<f64>,
    /// Sequences with the lowest, a median and the highest mean.
    pub examples: [Vec<usize>; 3],
    /// The mean share of a token's visits to modules that it has visited before.
    pub reused: f64,
    /// Pearson's correlation of this share with a token's skips; `None` if either is constant.
    pub skips_and_reuse: Option<f64>,
}

/// Similarity of two networks on the same text: Pearson's correlations over its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Likeness {
    /// Of the compute of each token.
    pub compute: Option<f64>,
    /// Of the share of repeated visits.
    pub reuse: Option<f64>,
}

/// Parameters that act on a token in the routed steps.
fn parameters(token_route: &TokenRoute, sizes: &[f64]) -> f64 {
    token_route.chosen.iter().flatten().filter_map(|module| sizes.get(usize::from(*module))).sum()
}

/// The share of visits to computing modules that are repeated.
fn reuse(token_route: &TokenRoute, computing: usize) -> f64 {
    let mut visits: Vec<u16> =
        token_route.chosen.iter().flatten().copied().filter(|module| usize::from(*module) < computing).collect();
    let all = visits.len();
    visits.sort_unstable();
    visits.dedup();
    if all == 0 { 0.0 } else { (all - visits.len()) as f64 / all as f64 }
}

fn skips(token_route: &TokenRoute, computing: usize) -> f64 {
    token_route.chosen.iter().flatten().filter(|module| usize::from(**module) >= computing).count() as f64
}

/// Parameters of each module that has any.
fn sizes(model: &ModelConfig) -> Vec<f64> {
    let computing = model.dna.as_ref().map_or(0, |dna| dna.modules.computing());
    (0..computing).map(|module| model.parameters(Part::Module(module)) as f64).collect()
}

fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let spread = (variance(a) * variance(b)).sqrt();
    let (mean_a, mean_b) = (mean(a), mean(b));
    let products: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).collect();
    (spread > 1e-12).then(|| mean(&products) / spread)
}

/// The compute of recorded routes.
pub fn compute(token_routes: &TokenRoutes, model: &ModelConfig, passages: &Passages) -> Compute {
    let sizes = sizes(model);
    let each: Vec<f64> = token_routes.all.iter().map(|token_route| parameters(token_route, &sizes)).collect();
    let mut by_sequence = vec![(0.0, 0usize); passages.sequences.len()];
    for (token_route, own) in token_routes.all.iter().zip(&each) {
        let (sum, count) = &mut by_sequence[token_route.sequence];
        (*sum, *count) = (*sum + own, *count + 1);
    }
    let by_sequence: Vec<f64> = by_sequence.into_iter().map(|(sum, count)| sum / count.max(1) as f64).collect();
    let mut order: Vec<usize> = (0..by_sequence.len()).collect();
    order.sort_by(|a, b| by_sequence[*a].total_cmp(&by_sequence[*b]));
    let from = |first: usize| order[first.min(order.len())..].iter().copied().take(SHOWN).collect::<Vec<_>>();
    let examples = [from(0), from(order.len() / 2), from(order.len().saturating_sub(SHOWN))];
    let reuses: Vec<f64> = token_routes.all.iter().map(|token_route| reuse(token_route, sizes.len())).collect();
    let skips: Vec<f64> = token_routes.all.iter().map(|token_route| skips(token_route, sizes.len())).collect();
    Compute {
        parameters: mean(&each),
        quantiles: quantiles(&each, [0.05, 0.5, 0.95]),
        by_sequence,
        examples,
        reused: mean(&reuses),
        skips_and_reuse: correlation(&skips, &reuses),
    }
}

/// Similarity of two networks on the same text.
pub fn likeness(one: (&TokenRoutes, &ModelConfig), other: (&TokenRoutes, &ModelConfig)) -> Likeness {
    let of = |(token_routes, model): (&TokenRoutes, &ModelConfig)| -> [Vec<f64>; 2] {
        let sizes = sizes(model);
        let computed = token_routes.all.iter().map(|token_route| parameters(token_route, &sizes)).collect();
        [computed, token_routes.all.iter().map(|token_route| reuse(token_route, sizes.len())).collect()]
    };
    let ([computed, reused], [other_computed, other_reused]) = (of(one), of(other));
    Likeness { compute: correlation(&computed, &other_computed), reuse: correlation(&reused, &other_reused) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_skips_and_correlations_are_counted() {
        let token_route =
            TokenRoute { token: 0, sequence: 0, position: 0, chosen: vec![vec![1, 4], vec![1, 0], vec![4, 2]] };
        assert_eq!((reuse(&token_route, 4), skips(&token_route, 4)), (0.25, 2.0));
        assert_eq!(parameters(&token_route, &[1.0, 10.0, 100.0, 1000.0]), 121.0);
        assert!((correlation(&[1.0, 2.0, 3.0], &[-2.0, -4.0, -6.0]).unwrap() + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&[1.0, 1.0], &[0.0, 5.0]), None);
    }
}
