//! Records the choices of every token of a text, step by step.

use std::cell::RefCell;

use tch::TchError;

use crate::config::{DnaConfig, ModuleKind};
use crate::inspect::subject::{InspectError, Passages, row};
use crate::model::PathModel;
use crate::model::layers::watch::Routed;
use crate::model::layers::watch::Watch;

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
}

/// The recording of one sequence: the choices of all tokens, by step.
#[derive(Default)]
struct Seen(RefCell<Vec<Vec<i64>>>);

impl Watch for Seen {
    fn routed(&self, routed: &Routed<'_>) -> Result<(), TchError> {
        self.0.borrow_mut().push(routed.chosen.to_vec());
        Ok(())
    }
}

impl TokenRoutes {
    /// Records the routes of some passages.
    pub fn of(model: &PathModel, passages: &Passages) -> Result<Self, InspectError> {
        let dna = model.config().dna.as_ref().ok_or(InspectError::NoPool)?;
        let mut all = Vec::new();
        for (sequence, tokens) in passages.sequences.iter().enumerate() {
            // As for scoring: the last token is only predicted.
            let (of_images, class) = (model.config().reads_images(), tokens.last());
            let tokens = tokens.split_last().map_or(&tokens[..], |(_, inner)| inner);
            let seen = Seen::default();
            let _ = model.watched(&row(tokens), &seen)?;
            let chosen = seen.0.into_inner();
            let length = model.config().stream_length(tokens.len());
            for position in 0..length {
                let token = if of_images { class } else { tokens.get(position) };
                let own = |step: &Vec<i64>| {
                    step[position * dna.top_k..][..dna.top_k].iter().map(|module| *module as u16).collect()
                };
                let token = token.copied().unwrap_or_default();
                all.push(TokenRoute { token, sequence, position, chosen: chosen.iter().map(own).collect() });
            }
        }
        Ok(Self { all })
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
