//! From the choices of tokens to the input of each module.

use tch::{Device, TchError, Tensor};

/// Batches of tokens for a module are padded to a multiple of this, which suits matrix kernels.
const STEP: usize = 16;

/// Smaller batches are not padded.
const FEW: usize = 64;

/// The tokens of each module in one step. Identities are left out.
pub struct Choices {
    /// Number of tokens that chose each module, identities included.
    pub counts: Vec<u64>,
    /// For each module with parameters, in order: its tokens, ascending, followed by fill.
    modules: Vec<Given>,
    /// Tokens of all modules, one module after the other, with fill.
    tokens: Vec<i64>,
    /// Index of each token's score for its module among all scores.
    scores: Vec<i64>,
}

/// The tokens of one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Start among the tokens of all modules.
    pub first: usize,
    pub tokens: usize,
    /// Count, with fill.
    pub filled: usize,
}

impl Choices {
    /// From the chosen modules of each token, `top_k` for each, out of `modules`, of which the first `computing` have
    /// parameters.
    pub fn new(chosen: &[i64], top_k: usize, modules: usize, computing: usize) -> Self {
        let mut counts = vec![0u64; modules];
        for module in chosen {
            counts[*module as usize] += 1;
        }
        let mut given = Vec::with_capacity(computing);
        let mut all = 0;
        for count in &counts[..computing] {
            let tokens = *count as usize;
            let filled = if tokens < FEW { tokens } else { tokens.next_multiple_of(STEP) };
            given.push(Given { first: all, tokens, filled });
            all += filled;
        }
        let (mut tokens, mut scores) = (vec![0; all], vec![0; all]);
        let mut next: Vec<usize> = given.iter().map(|given| given.first).collect();
        for (index, module) in chosen.iter().enumerate() {
            let Some(place) = next.get_mut(*module as usize) else { continue };
            let token = (index / top_k) as i64;
            tokens[*place] = token;
            scores[*place] = token * modules as i64 + module;
            *place += 1;
        }
        Self { counts, modules: given, tokens, scores }
    }

    /// The tokens of each module with parameters.
    pub fn modules(&self) -> &[Given] {
        &self.modules
    }

    /// Tokens of all modules, one module after the other, with fill.
    pub fn tokens(&self) -> &[i64] {
        &self.tokens
    }

    /// The weight of a module's output for each of its tokens: the score, or 0 for fill; `[tokens, 1]`, recorded by
    /// autograd. `scores` is `[all tokens, modules]`.
    pub fn shares(&self, scores: &Tensor) -> Result<Tensor, TchError> {
        let places = on_device(&self.scores, scores.device())?;
        let shares = scores.f_reshape([-1])?.f_index_select(0, &places)?.f_unsqueeze(1)?;
        if self.modules.iter().all(|given| given.filled == given.tokens) {
            return Ok(shares);
        }
        let mut counted = vec![0f32; self.tokens.len()];
        for given in &self.modules {
            counted[given.first..][..given.tokens].fill(1.0);
        }
        shares.f_mul(&Tensor::f_from_slice(&counted)?.f_to_device(scores.device())?.f_unsqueeze(1)?)
    }
}

/// Integers as a tensor on the network's device.
pub(super) fn on_device(values: &[i64], device: Device) -> Result<Tensor, TchError> {
    Tensor::f_from_slice(values)?.f_to_device(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_is_given_those_that_chose_it_in_order() {
        let choices = Choices::new(&[1, 3, 0, 1, 2, 3, 1, 0], 2, 4, 3);
        assert_eq!(choices.counts, [2, 3, 1, 2]);
        let given = |first, tokens| Given { first, tokens, filled: tokens };
        assert_eq!(choices.modules(), [given(0, 2), given(2, 3), given(5, 1)]);
        assert_eq!(choices.tokens(), [1, 3, 0, 1, 3, 2], "those of the identity are nobody's");
        assert_eq!(choices.scores, [4, 12, 1, 5, 13, 10]);
    }

    #[test]
    fn fill_reaches_no_token() {
        let chosen: Vec<i64> = (0..70).map(|token| i64::from(token == 69)).collect();
        let choices = Choices::new(&chosen, 1, 2, 2);
        assert_eq!(
            choices.modules(),
            [Given { first: 0, tokens: 69, filled: 80 }, Given { first: 80, tokens: 1, filled: 1 }]
        );
        let shares = choices.shares(&Tensor::ones([70, 2], (tch::Kind::Float, Device::Cpu))).unwrap();
        assert_eq!(shares.sum(tch::Kind::Float).double_value(&[]), 70.0);
        assert_eq!(shares.narrow(0, 69, 11).abs().max().double_value(&[]), 0.0);
    }
}
