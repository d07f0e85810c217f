//! Distributed neural architectures (DNA): after some ordinary blocks, each token chooses in each step which modules of
//! a pool it goes through.
//!
//! A pool has modules of four kinds, in this order: transformer blocks, attention, feed-forward, and identity, which
//! has no cost. The first three are parts of the model, `module.0` and so on. Identity has no parameters and is not a
//! part.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::config::key_error::{KeyError, require, within};
use crate::config::model::ModelConfig;
use crate::config::model::parts::{Initial, Part, TensorList};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModuleKind {
    Transformer,
    Attention,
    Mlp,
    Identity,
}

/// Modules of each kind in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Transformer blocks.
    pub transformer: usize,
    pub attention: usize,
    pub mlp: usize,
    /// Identity modules, which skip a step.
    pub identity: usize,
}

impl Pool {
    /// Modules with parameters.
    pub fn computing(&self) -> usize {
        self.transformer.saturating_add(self.attention).saturating_add(self.mlp)
    }

    pub fn count(&self) -> usize {
        self.computing().saturating_add(self.identity)
    }

    /// Indices of the identities, which come last.
    pub fn identities(&self) -> Range<usize> {
        self.computing()..self.count()
    }

    pub fn kind(&self, module: usize) -> ModuleKind {
        match module {
            module if module < self.transformer => ModuleKind::Transformer,
            module if module < self.transformer + self.attention => ModuleKind::Attention,
            module if module < self.computing() => ModuleKind::Mlp,
            _ => ModuleKind::Identity,
        }
    }
}

/// `[model.dna]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnaConfig {
    pub modules: Pool,
    /// `N_r`: number of routed steps.
    pub steps: usize,
    /// `k`: modules that a token chooses in each step.
    #[serde(default = "one")]
    pub top_k: usize,
    /// `r`: target share of choices that fall on identities; without it, only the routers decide.
    pub skips: Option<f64>,
    /// `u`: by how much an inner step changes the biases that reach this share.
    #[serde(default = "bias_rate")]
    pub bias_rate: f64,
    /// Whether routers keep their initial weights (a control experiment).
    #[serde(default)]
    pub fixed_routers: bool,
}

fn one() -> usize {
    1
}

fn bias_rate() -> f64 {
    1e-3
}

impl DnaConfig {
    pub(in crate::config) fn check(&self) -> Result<(), KeyError> {
        let (modules, top_k) = (self.modules, self.top_k);
        within("model.dna.steps", self.steps, 1..=1024)?;
        for (kind, count) in [
            ("transformer", modules.transformer),
            ("attention", modules.attention),
            ("mlp", modules.mlp),
            ("identity", modules.identity),
        ] {
            within(&format!("model.dna.modules.{kind}"), count, 0..=4096)?;
        }
        let expected = "must have transformer, attention or mlp: identities compute nothing";
        require(modules.computing() > 0, "model.dna.modules", "only identities", expected)?;
        let most = modules.count();
        let expected = format!("1 to {most}, the modules of the pool: a token cannot choose one twice");
        require((1..=most).contains(&top_k), "model.dna.top_k", top_k, expected)?;
        if let Some(skips) = self.skips {
            let most = (modules.identity as f64 / top_k as f64).min(1.0);
            let fits = modules.identity > 0 && (0.0..=most).contains(&skips);
            let expected = format!("0 to {most}, with {} identities and top_k = {top_k}", modules.identity);
            require(fits, "model.dna.skips", skips, expected)?;
        }
        let fits = self.bias_rate > 0.0 && self.bias_rate <= 1.0;
        require(fits, "model.dna.bias_rate", self.bias_rate, "above 0, at most 1")
    }

    /// Parts of the routed steps, in the order of computation.
    pub(in crate::config) fn parts(&self) -> impl Iterator<Item = Part> {
        let modules = (0..self.modules.computing()).map(Part::Module);
        (0..self.steps).map(Part::Router).chain(modules).chain([Part::Balance])
    }

    /// The tensors of a step's router, and of the balance of choices:
    ///
    /// - `router.S.weight`, `[modules, width]`;
    /// - `balance.biases`, `[steps]`: added to the scores of all identities when a token chooses;
    /// - `balance.usage`, `[steps, modules]`: running share of the choices of each module.
    pub(in crate::config) fn tensors(&self, part: Part, width: usize, initial: Initial, list: &mut TensorList) {
        let modules = self.modules.count();
        match part {
            Part::Router(_) if self.fixed_routers => list.fixed("weight", &[modules, width], initial),
            Part::Router(_) => list.add("weight", &[modules, width], initial),
            Part::Balance => {
                list.fixed("biases", &[self.steps], Initial::Zeros);
                list.fixed("usage", &[self.steps, modules], Initial::Constant(1.0 / modules as f64));
            }
            _ => {}
        }
    }
}

impl ModelConfig {
    /// Parameters that act on one token, without the embedding rows of other tokens and positions. All choices except
    /// the share of skips are assumed to fall on the largest modules. The pair counts modules that the token visits
    /// twice as `(twice, once)`. `None` if all parameters act on every token.
    pub fn active_parameters(&self) -> Option<(u64, u64)> {
        let dna = self.dna.as_ref()?;
        let count = |part| self.parameters(part) as u64;
        let routed = |part: &Part| matches!(part, Part::Module(_) | Part::Balance);
        let always: u64 = self.parts().into_iter().filter(|part| !routed(part)).map(count).sum();
        let mut modules: Vec<u64> = (0..dna.modules.computing()).map(|index| count(Part::Module(index))).collect();
        let mean = modules.iter().sum::<u64>() as f64 / modules.len() as f64;
        let choices = (dna.steps * dna.top_k) as f64 * (1.0 - dna.skips.unwrap_or(0.0));
        let with_reuse = always + (choices * mean).round() as u64;
        modules.sort_unstable_by(|a, b| b.cmp(a));
        let distinct = (choices.round() as usize).min(modules.len());
        Some((with_reuse, always + (distinct as f64 * mean).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dna(modules: Pool) -> DnaConfig {
        DnaConfig { modules, steps: 3, top_k: 2, skips: None, bias_rate: bias_rate(), fixed_routers: false }
    }

    #[test]
    fn kinds_lie_in_order_and_identities_last() {
        let pool = Pool { transformer: 2, attention: 1, mlp: 1, identity: 2 };
        let kinds: Vec<ModuleKind> = (0..pool.count()).map(|module| pool.kind(module)).collect();
        use ModuleKind::{Attention, Identity, Mlp, Transformer};
        assert_eq!(kinds, [Transformer, Transformer, Attention, Mlp, Identity, Identity]);
        assert_eq!((pool.computing(), pool.identities()), (4, 4..6));
    }

    #[test]
    fn what_makes_no_network_is_refused_in_words() {
        let pool = Pool { transformer: 3, identity: 1, ..Pool::default() };
        assert_eq!(dna(pool).check(), Ok(()));
        let refused = |dna: DnaConfig| dna.check().unwrap_err().key.replace("model.dna.", "");
        assert_eq!(refused(dna(Pool { identity: 4, ..Pool::default() })), "modules");
        assert_eq!(refused(dna(Pool { mlp: 4097, ..pool })), "modules.mlp");
        assert_eq!(refused(DnaConfig { top_k: 5, ..dna(pool) }), "top_k");
        assert_eq!(refused(DnaConfig { top_k: 0, ..dna(pool) }), "top_k");
        assert_eq!(refused(DnaConfig { steps: 0, ..dna(pool) }), "steps");
        assert_eq!(refused(DnaConfig { bias_rate: f64::NAN, ..dna(pool) }), "bias_rate");
        for skips in [-0.1, 0.6, f64::NAN] {
            assert_eq!(refused(DnaConfig { skips: Some(skips), ..dna(pool) }), "skips", "one of two at most");
        }
        let none = Pool { identity: 0, ..pool };
        assert_eq!(refused(DnaConfig { skips: Some(0.0), ..dna(none) }), "skips");
    }
}
