//! Records the choices of every token of a text, step by step.

use std::cell::RefCell;

use tch::TchError;

use crate::config::{DnaConfig, ModuleKind};
use crate::inspect::subject::{InspectError, Passages, row};
use crate::model::PathModel;
use crate::model::layers::watch::Routed;
use crate::model::layers::watch::Watch;
use crate::model::weights::to_values;

/// The order of Rényi's entropy for effective numbers of modules.
const ORDER: f64 = 1.5;

/// One token's route.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRoute {
    /// The token; for a patch, its image's class.
    pub token: u32,
    /// Its sequence, among the passages.
    pub sequence: usize,
    /// Its position there; patches are counted row by row.
    pub position: usize,
    /// For each step, the chosen modules, best first.
    pub chosen: Vec<Vec<u16>>,
}

impl TokenRoute {
    /// Its route without irrelevant differences: for each step, the chosen modules with parameters, ascending.
    pub fn route(&self, dna: &DnaConfig) -> Vec<Vec<u16>> {
        let step = |chosen: &Vec<u16>| {
            let computing = |module: &u16| dna.modules.kind(usize::from(*module)) != ModuleKind::Identity;
            let mut modules: Vec<u16> = chosen.iter().copied().filter(computing).collect();
            modules.sort_unstable();
            modules
        };
        self.chosen.iter().map(step).collect()
    }
}

/// The routes of all tokens of some passages.
pub struct TokenRoutes {
    /// For each token, sequence by sequence.
    pub all: Vec<TokenRoute>,
    /// For each step, the mean effective number of modules by a router's scores: `(Σ ρ^1.5)^-2`, the number of modules
    /// with equal scores that have the same inverse participation ratio.
    pub effective: Vec<f64>,
}

/// The recording of one sequence.
#[derive(Default)]
struct Seen {
    /// By step, for all tokens.
    chosen: RefCell<Vec<Vec<i64>>>,
    /// By step, the sum over tokens of the effective number of modules.
    effective: RefCell<Vec<f64>>,
}

impl Watch for Seen {
    fn routed(&self, routed: &Routed<'_>) -> Result<(), TchError> {
        self.chosen.borrow_mut().push(routed.chosen.to_vec());
        let scores = to_values(routed.scores)?;
        let modules = routed.counts.len().max(1);
        self.effective.borrow_mut().push(scores.chunks(modules).map(effective).sum());
        Ok(())
    }
}

/// The effective number of scores that sum to 1.
fn effective(scores: &[f32]) -> f64 {
    let sum: f64 = scores.iter().map(|score| f64::from(*score).powf(ORDER)).sum();
    sum.powf(1.0 / (1.0 - ORDER))
}

impl TokenRoutes {
    /// Records the routes of some passages.
    pub fn of(model: &PathModel, passages: &Passages) -> Result<Self, InspectError> {
        let dna = model.config().dna.as_ref().ok_or(InspectError::NoPool)?;
        let (mut all, mut effective) = (Vec::new(), vec![0.0; dna.steps]);
        for (sequence, tokens) in passages.sequences.iter().enumerate() {
            // As for scoring: the last token is only predicted.
            let (of_images, class) = (model.config().reads_images(), tokens.last());
            let tokens = tokens.split_last().map_or(&tokens[..], |(_, inner)| inner);
            let seen = Seen::default();
            let _ = model.watched(&row(tokens), &seen)?;
            let chosen = seen.chosen.into_inner();
            let length = model.config().stream_length(tokens.len());
            for position in 0..length {
                let token = if of_images { class } else { tokens.get(position) };
                let own = |step: &Vec<i64>| {
                    step[position * dna.top_k..][..dna.top_k].iter().map(|module| *module as u16).collect()
                };
                let token = token.copied().unwrap_or_default();
                all.push(TokenRoute { token, sequence, position, chosen: chosen.iter().map(own).collect() });
            }
            effective.iter_mut().zip(seen.effective.into_inner()).for_each(|(sum, own)| *sum += own);
        }
        let count = all.len().max(1) as f64;
        Ok(Self { all, effective: effective.into_iter().map(|sum| sum / count).collect() })
    }
}

/// The name of a module in tables and plots: the letter of its kind and its number.
pub fn label(module: usize, dna: &DnaConfig) -> String {
    let initial = match dna.modules.kind(module) {
        ModuleKind::Transformer => 'T',
        ModuleKind::Attention => 'A',
        ModuleKind::Mlp => 'M',
        ModuleKind::Identity => return "skip".to_owned(),
    };
    format!("{initial}{module}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_amount_to_their_number() {
        for count in [1, 2, 7] {
            assert!((effective(&vec![1.0 / count as f32; count]) - count as f64).abs() < 1e-5);
        }
        let between = effective(&[0.9, 0.1]);
        assert!(between > 1.0 && between < 2.0);
    }
}
