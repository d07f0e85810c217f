//! The path under analysis, and the text that it reads.

use std::collections::BTreeMap;

use tch::{Kind, Tensor};

use crate::config::{LevelConfig, ModelConfig, Starts};
use crate::grid::Sharing;
use crate::model::layers::watch::Watch;
use crate::model::{ForwardError, PathModel};
use crate::text::corpus::Domains;
use crate::text::{TokenSet, Tokenizer};
use crate::training::inner::loss::row_losses;

#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("this run has no [model.directional], so it has no directional attention to inspect")]
    Plain,
    #[error("this run has no [model.dna]: every token goes through every block, so it has no routes to inspect")]
    NoPool,
    #[error("the text has no sequence of more than {0} tokens, so no token is scored")]
    TooShort(usize),
    #[error("there is no {what} {found}; this model has {count}, from 0")]
    Unknown { what: &'static str, found: usize, count: usize },
    #[error("{found:?} is not an intervention: {expected}")]
    Syntax { found: String, expected: &'static str },
    #[error(
        "{found:?} is not a route: give one word for each of up to {steps} steps: skip, *, or modules of {modules}"
    )]
    Route { found: String, steps: usize, modules: String },
    #[error("the two networks differ in {0}; compare two of one run, or of one configuration")]
    Differ(&'static str),
    #[error(transparent)]
    Forward(#[from] ForwardError),
    #[error("the network: {0}")]
    Tensor(#[from] tch::TchError),
}

/// A path's network, and its tokenizer.
pub struct Subject {
    pub model: PathModel,
    pub tokenizer: Tokenizer,
}

/// Sequences of a text, each with the domain of its document if it has one.
pub struct Passages {
    /// At least two tokens each.
    pub sequences: Vec<Vec<u32>>,
    /// For each sequence, the number of its document.
    pub documents: Vec<u32>,
    /// For each sequence, the number of its domain.
    pub domains: Vec<Option<u32>>,
    /// The domains' names, by number.
    pub names: Vec<String>,
    /// The first scored token of any sequence.
    pub first: usize,
}

impl Passages {
    /// Sequences of a set, at most so many of each domain, in order: the longest of each document first.
    pub fn of(set: &TokenSet, domains: &Domains, starts: Starts, most: usize) -> Result<Self, InspectError> {
        let first = starts.of_document.max(starts.of_sequence).max(1);
        let mut names: Vec<String> = Vec::new();
        for (name, number) in domains.names() {
            names.resize(names.len().max(number as usize + 1), String::new());
            names[number as usize] = name.to_owned();
        }
        let domain = |index: usize| domains.of(set.document(index) as usize);
        let mut by_length: Vec<usize> = (0..set.len()).filter(|index| set.sequence(*index).len() > first).collect();
        by_length.sort_by_key(|index| std::cmp::Reverse(set.sequence(*index).len()));
        let mut of_document: BTreeMap<u32, usize> = BTreeMap::new();
        let mut rank = |index: &usize| {
            let count = of_document.entry(set.document(*index)).or_default();
            *count += 1;
            *count
        };
        let ranks: BTreeMap<usize, usize> = by_length.iter().map(|index| (*index, rank(index))).collect();
        by_length.sort_by_key(|index| ranks[index]);
        let mut taken = vec![0; names.len() + 1];
        by_length.retain(|index| {
            let count = &mut taken[domain(*index).map_or(names.len(), |domain| domain as usize)];
            *count += 1;
            *count <= most
        });
        by_length.sort_unstable();
        if by_length.is_empty() {
            return Err(InspectError::TooShort(first));
        }
        let sequences = by_length.iter().map(|index| set.sequence(*index).to_vec()).collect();
        let documents = by_length.iter().map(|index| set.document(*index)).collect();
        Ok(Self { sequences, documents, domains: by_length.into_iter().map(domain).collect(), names, first })
    }
}

/// Tokens as the network takes them, `[1, tokens]`.
pub fn row(tokens: &[u32]) -> Tensor {
    let tokens: Vec<i64> = tokens.iter().map(|token| i64::from(*token)).collect();
    Tensor::from_slice(&tokens).unsqueeze(0)
}

impl Subject {
    /// Its parameters, in one level.
    pub fn levels(&self) -> Vec<LevelConfig> {
        let parts = self.config().parts().iter().map(ToString::to_string).collect();
        vec![LevelConfig { parts, sharing: Sharing::Shared }]
    }

    pub fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    /// The loss of each token of a sequence from `first` on, in nats, with a watch.
    pub fn losses(&self, tokens: &[u32], first: usize, watch: &dyn Watch) -> Result<Vec<f64>, InspectError> {
        let (Some((_, inner)), true) = (tokens.split_last(), tokens.len() > first.max(1)) else {
            return Ok(Vec::new());
        };
        let hidden = self.model.watched(&row(inner), watch)?.f_squeeze_dim(0)?;
        let targets = row(&tokens[1..]).f_squeeze_dim(0)?.f_to_device(self.model.device())?;
        let losses = row_losses(&self.model.exact(), self.model.head(), &hidden, &targets)?;
        let losses: Vec<f64> = Vec::try_from(losses.f_to_kind(Kind::Double)?.f_to_device(tch::Device::Cpu)?)?;
        Ok(losses[first.max(1) - 1..].to_vec())
    }

    /// Nats and tokens of all passages, with a watch.
    pub fn score(&self, passages: &Passages, watch: &dyn Watch) -> Result<(f64, u64), InspectError> {
        let mut sum = (0.0, 0);
        for tokens in &passages.sequences {
            let losses = self.losses(tokens, passages.first, watch)?;
            sum = (sum.0 + losses.iter().sum::<f64>(), sum.1 + losses.len() as u64);
        }
        Ok(sum)
    }
}
