//! Where tokens are in each step, and where they go from there.

use serde::Serialize;

use super::token_routes::TokenRoutes;
use crate::config::DnaConfig;

/// Tokens by step and module.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// Of each step, the share of choices that each module has.
    pub shares: Vec<Vec<f64>>,
    /// From each step to the next, the share of tokens whose best module is the first, and then the second: `[modules][modules]`.
    pub moves: Vec<Vec<Vec<f64>>>,
    /// Of each step, how many modules a router's scores amount to.
    pub effective: Vec<f64>,
    /// The share of all choices that fall on identities.
    pub skipped: f64,
}

/// What some token_routes make.
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
    Flow { shares, moves, effective: token_routes.effective.clone(), skipped }
}
