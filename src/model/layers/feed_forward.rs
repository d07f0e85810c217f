//! The feed-forward part of a block: two linear layers with GELU between them, after a norm.

use tch::{TchError, Tensor};

use crate::config::{Activation, ModelConfig};
use crate::model::layers::linear::Products;
use crate::model::layers::norm::Norm;
use crate::model::weights::{Weights, WeightsError};

/// One feed-forward part.
pub struct FeedForward {
    norm: Norm,
    inner: Tensor,
    inner_bias: Option<Tensor>,
    outer: Tensor,
    outer_bias: Option<Tensor>,
    approximate: &'static str,
}

impl FeedForward {
    /// Takes its tensors from the weights; `prefix` is such as `block.3`.
    pub fn new(weights: &Weights, prefix: &str, model: &ModelConfig) -> Result<Self, WeightsError> {
        Ok(Self {
            norm: Norm::new(weights, &format!("{prefix}.feed-forward-norm"))?,
            inner: weights.tensor(&format!("{prefix}.feed-forward.in.weight"))?,
            inner_bias: weights.optional(&format!("{prefix}.feed-forward.in.bias")),
            outer: weights.tensor(&format!("{prefix}.feed-forward.out.weight"))?,
            outer_bias: weights.optional(&format!("{prefix}.feed-forward.out.bias")),
            approximate: match model.activation {
                Activation::Gelu => "none",
                Activation::GeluTanh => "tanh",
            },
        })
    }

    /// Its output for a residual stream `[.., width]`.
    pub fn forward(&self, stream: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        let hidden = products.linear(&self.norm.forward(stream)?, &self.inner, self.inner_bias.as_ref())?;
        let fed = products.linear(&hidden.f_gelu(self.approximate)?, &self.outer, self.outer_bias.as_ref())?;
        products.widen(fed)
    }
}
