//! The flow of tokens: their modules in each step, and their moves between steps.

use serde::Serialize;

use super::token_routes::TokenRoutes;
use crate::config::DnaConfig;

/// Tokens by step and module.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// For each step, the share of choices of each module.
    pub shares: Vec<Vec<f64>>,
    /// For each pair of steps, the share of tokens whose best module is the first, and then the second:
    /// `[modules][modules]`.
    pub moves: Vec<Vec<Vec<f64>>>,
    /// For each step, the effective top-k of the choices (DNA paper, appendix A, equation 4): from 1, if all fall on one
    /// module, to the square root of the number of modules, if each has as many.
    pub effective: Vec<f64>,
    /// The share of all choices that fall on identities.
    pub skipped: f64,
}

/// The flow of recorded routes.
pub fn flow(token_routes: &TokenRoutes, dna: &DnaConfig) -> Flow {
    let modules = dna.modules.count();
    let tokens = token_routes.all.len().max(1) as f64;
    let mut shares = vec![vec![0.0; modules]; dna.steps];
    let mut moves = vec![vec![vec![0.0; modules]; modules]; dna.steps.saturating_sub(1)];
    for token_route in &token_routes.all {
        for (chosen, shares) in token_route.chosen.iter().zip(&mut shares) {
            chosen.iter().for_each(|module| shares[usize::from(*module)] += 1.0 / (tokens * dna.top_k as f64));
        }
        for (pair, moves) in token_route.chosen.windows(2).zip(&mut moves) {
            moves[usize::from(pair[0][0])][usize::from(pair[1][0])] += 1.0 / tokens;
        }
    }
    let skipped = shares.iter().flat_map(|step| &step[dna.modules.identities()]).sum::<f64>() / dna.steps as f64;
    let effective = shares.iter().map(|step| effective_top_k(step)).collect();
    Flow { shares, moves, effective, skipped }
}

/// The exponent α of the paper.
const ALPHA: f64 = 1.5;

/// `(Σ c²)^α / Σ c^2α`, the inverse of the inverse participation ratio of the counts `c`, or of shares.
fn effective_top_k(counts: &[f64]) -> f64 {
    let sum = |power: f64| counts.iter().map(|count| count.powf(power)).sum::<f64>();
    sum(2.0).powf(ALPHA) / sum(2.0 * ALPHA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_top_k_is_that_of_the_papers_equation() {
        let close = |counts: &[f64], expected: f64| assert!((effective_top_k(counts) - expected).abs() < 1e-9);
        close(&[0.0, 5.0, 0.0], 1.0);
        close(&[3.0; 16], 4.0);
        // (1 + 4)^1.5 / (1 + 8)
        close(&[1.0, 2.0], 125f64.sqrt() / 9.0);
        close(&[0.1, 0.2], 125f64.sqrt() / 9.0);
    }
}
