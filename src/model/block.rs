//! A transformer block: attention and feed-forward, each behind a norm and added to the residual stream.

use tch::{TchError, Tensor};

use super::attention::Attention;
use super::linear::Products;
use super::memory::Past;
use super::weights::{Weights, WeightsError};
use crate::config::{Activation, ModelConfig};

const EPSILON: f64 = 1e-5;

/// Layer normalisation with a weight and, if the model has biases, a bias.
pub struct Norm {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Norm {
    /// Takes its tensors from the weights; `prefix` is such as `final-norm`.
    ///
    /// # Errors
    /// If the weight is missing.
    pub fn new(weights: &Weights, prefix: &str) -> Result<Self, WeightsError> {
        Ok(Self {
            weight: weights.tensor(&format!("{prefix}.weight"))?,
            bias: weights.optional(&format!("{prefix}.bias")),
        })
    }

    /// Normalises the last dimension.
    ///
    /// # Errors
    /// If shapes do not fit or memory is short.
    pub fn forward(&self, input: &Tensor) -> Result<Tensor, TchError> {
        let width = self.weight.size();
        input.f_layer_norm(width.as_slice(), Some(&self.weight), self.bias.as_ref(), EPSILON, true)
    }
}

/// One block.
pub struct Block {
    attention_norm: Norm,
    attention: Attention,
    feed_forward_norm: Norm,
    inner: Tensor,
    inner_bias: Option<Tensor>,
    outer: Tensor,
    outer_bias: Option<Tensor>,
    approximate: &'static str,
}

impl Block {
    /// Takes its tensors from the weights.
    ///
    /// # Errors
    /// If one is missing.
    pub fn new(weights: &Weights, index: usize, model: &ModelConfig) -> Result<Self, WeightsError> {
        let name = |part: &str| format!("block.{index}.{part}");
        Ok(Self {
            attention_norm: Norm::new(weights, &name("attention-norm"))?,
            attention: Attention::new(weights, &name("attention"), model)?,
            feed_forward_norm: Norm::new(weights, &name("feed-forward-norm"))?,
            inner: weights.tensor(&name("feed-forward.in.weight"))?,
            inner_bias: weights.optional(&name("feed-forward.in.bias")),
            outer: weights.tensor(&name("feed-forward.out.weight"))?,
            outer_bias: weights.optional(&name("feed-forward.out.bias")),
            approximate: match model.activation {
                Activation::Gelu => "none",
                Activation::GeluTanh => "tanh",
            },
        })
    }

    /// The residual stream `[batch, time, width]` after this block. `past` is of the tokens before, if there are any.
    ///
    /// # Errors
    /// If shapes do not fit or memory is short.
    pub fn forward(
        &self,
        stream: &Tensor,
        products: &Products,
        rotation: Option<&Tensor>,
        past: Option<&mut Past>,
    ) -> Result<Tensor, TchError> {
        let mixed = self.attention.forward(&self.attention_norm.forward(stream)?, products, rotation, past)?;
        let stream = stream.f_add(&products.widen(mixed)?)?;
        let hidden =
            products.linear(&self.feed_forward_norm.forward(&stream)?, &self.inner, self.inner_bias.as_ref())?;
        let fed = products.linear(&hidden.f_gelu(self.approximate)?, &self.outer, self.outer_bias.as_ref())?;
        stream.f_add(&products.widen(fed)?)
    }
}
