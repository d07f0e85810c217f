//! Distributed neural architectures: routed steps through a pool of modules.
//!
//! In each step, a token's router computes ρ, the softmax of a linear layer. The token takes the `k` modules with the
//! largest ρ + b and becomes `h + Σ ρ_i (M_i(h) - h)`. In a module with attention, a token attends to the tokens of its
//! own sequence that chose the module in the same step and, in text, precede it. Only chosen modules are computed: the
//! tokens of all modules are gathered at once, module by module, each module computes its own, and the results are
//! scattered back at once. Identities have no cost, and padding is not routed.

mod choices;
mod module;
#[cfg(test)]
mod reference;

use std::ops::Range;

use tch::{Device, Kind, TchError, Tensor};

pub use choices::Choices;

use self::choices::on_device;
use self::module::{Gathered, Module};
use crate::config::{ModelConfig, Precision};
use crate::model::layers::block::Reading;
use crate::model::layers::kv_cache::Past;
use crate::model::layers::linear::Products;
use crate::model::layers::rows::Rows;
use crate::model::layers::token_positions::{TokenPositions, to_integers};
use crate::model::layers::watch::Routed;
use crate::model::weights::{Weights, WeightsError};

/// The pool, and the routers of all steps.
pub struct Dna {
    routers: Vec<Tensor>,
    /// `[steps]`
    biases: Tensor,
    modules: Vec<Module>,
    identities: Range<usize>,
    top_k: i64,
}

impl Dna {
    /// Takes its tensors from the weights; `None` if the model has no pool.
    pub fn new(weights: &Weights, model: &ModelConfig) -> Result<Option<Self>, WeightsError> {
        let Some(dna) = &model.dna else { return Ok(None) };
        let module = |index| Module::new(weights, index, dna.modules.kind(index), model);
        Ok(Some(Self {
            routers: (0..dna.steps)
                .map(|step| weights.tensor(&format!("router.{step}.weight")))
                .collect::<Result<_, _>>()?,
            biases: weights.tensor("balance.biases")?,
            modules: (0..dna.modules.computing()).map(module).collect::<Result<_, _>>()?,
            identities: dna.modules.identities(),
            top_k: dna.top_k as i64,
        }))
    }

    /// Number of caches: one for each module in each step.
    pub fn memories(&self) -> usize {
        self.routers.len() * self.modules.len()
    }

    /// The residual stream `[batch, time, width]` after all steps. `past` has the caches of earlier tokens, if any.
    pub fn forward(
        &self,
        stream: &Tensor,
        reading: &Reading<'_>,
        mut past: Option<&mut [Past]>,
    ) -> Result<Tensor, TchError> {
        let (batch, time, _) = stream.size3()?;
        let places = TokenPositions::of((batch, time), reading.lengths, stream.device())?;
        let mut tokens = places.gather(stream)?;
        for step in 0..self.routers.len() {
            let past = past.as_mut().map(|all| &mut all[step * self.modules.len()..][..self.modules.len()]);
            tokens = self.step(step, &tokens, &places, reading, past)?;
        }
        places.put_back(stream, &tokens)
    }

    fn step(
        &self,
        step: usize,
        tokens: &Tensor,
        places: &TokenPositions,
        reading: &Reading<'_>,
        past: Option<&mut [Past]>,
    ) -> Result<Tensor, TchError> {
        let (scores, chosen) = self.choose(step, tokens, reading.products)?;
        let choices = Choices::new(&chosen, self.top_k as usize, self.identities.end, self.modules.len());
        let Choices { counts, .. } = &choices;
        reading.watch.routed(&Routed { step, scores: &scores, chosen: &chosen, counts })?;
        if choices.tokens().is_empty() {
            return Ok(tokens.shallow_clone());
        }
        let who = on_device(choices.tokens(), tokens.device())?;
        let changes = self.changes(&tokens.f_index_select(0, &who)?, &choices, places, reading, past)?;
        tokens.f_index_add(0, &who, &changes.f_mul(&choices.shares(&scores)?)?)
    }

    /// ρ of all modules, and the modules that each token chooses.
    fn choose(&self, step: usize, tokens: &Tensor, products: &Products) -> Result<(Tensor, Vec<i64>), TchError> {
        // In f32 at any precision, since a choice is discrete.
        let exact = Products { precision: Precision::F32, ..*products };
        let scores = exact.linear(tokens, &self.routers[step], None)?.f_softmax(-1, Kind::Float)?;
        let _no_gradient = tch::no_grad_guard();
        let (first, count) = (self.identities.start as i64, self.identities.len() as i64);
        let preferred = if count == 0 {
            scores.shallow_clone()
        } else {
            let preferred = scores.f_detach_copy()?;
            let _ = preferred.f_narrow(1, first, count)?.f_add_(&self.biases.f_narrow(0, step as i64, 1)?)?;
            preferred
        };
        let (_, chosen) = preferred.f_topk(self.top_k, -1, true, true)?;
        Ok((scores, to_integers(&chosen)?))
    }

    /// The outputs of modules for their tokens, one module after the other: `[tokens, width]`.
    fn changes(
        &self,
        gathered: &Tensor,
        choices: &Choices,
        places: &TokenPositions,
        reading: &Reading<'_>,
        mut past: Option<&mut [Past]>,
    ) -> Result<Tensor, TchError> {
        let sizes: Vec<i64> = choices.modules().iter().map(|given| given.filled as i64).collect();
        let parts = gathered.f_split_with_sizes(sizes.as_slice(), 0)?;
        let mut changes = Vec::new();
        for (index, (module, (stream, given))) in
            self.modules.iter().zip(parts.into_iter().zip(choices.modules())).enumerate()
        {
            if given.tokens == 0 {
                continue;
            }
            let who = &choices.tokens()[given.first..][..given.tokens];
            let rows = if module.attends() { rows(who, places, stream.device())? } else { Rows::of(&[], Device::Cpu)? };
            let rotation = reading.rotation.filter(|_| module.attends());
            let filled = &choices.tokens()[given.first..][..given.filled];
            let rotation = rotation.map(|all| turned(all, filled, places)).transpose()?;
            let gathered = Gathered { stream, tokens: given.tokens as i64, rows: &rows, rotation };
            let past = past.as_mut().and_then(|all| all.get_mut(index));
            changes.push(module.change(&gathered, reading.products, past)?);
        }
        Tensor::f_cat(&changes, 0)
    }
}

/// The layout of some tokens in their sequences.
fn rows(who: &[i64], places: &TokenPositions, device: Device) -> Result<Rows, TchError> {
    let sequences: Vec<i64> = who.iter().map(|token| places.sequences[*token as usize]).collect();
    Rows::of(&sequences, device)
}

/// The rotations for their positions.
fn turned(all: &Tensor, who: &[i64], places: &TokenPositions) -> Result<Tensor, TchError> {
    let positions: Vec<i64> = who.iter().map(|token| places.positions[*token as usize]).collect();
    all.f_index_select(0, &on_device(&positions, all.device())?)
}
