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
    /// For each step, the effective number of modules by a router's scores.
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
    Flow { shares, moves, effective: token_routes.effective.clone(), skipped }
}
