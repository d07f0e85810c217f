//! The feed-forward part of a block: two linear layers with an activation between them, and a norm. With a gate, the
//! first layer has twice as many outputs: those that are activated, and those by which they are multiplied (2002.05202).

use tch::{TchError, Tensor};

use crate::config::{Activation, ModelConfig, NormPlacement};
use crate::model::kernels;
use crate::model::layers::adapted_linear::AdaptedLinear;
use crate::model::layers::linear::Products;
use crate::model::layers::norm::Norm;
use crate::model::weights::{Weights, WeightsError};

/// One feed-forward part.
pub struct FeedForward {
    norm: Norm,
    inner: AdaptedLinear,
    outer: AdaptedLinear,
    activation: Activation,
    gated: bool,
    placement: NormPlacement,
}

impl FeedForward {
    /// Takes its tensors from the weights; `prefix` is such as `block.3`.
    pub fn new(weights: &Weights, prefix: &str, model: &ModelConfig) -> Result<Self, WeightsError> {
        Ok(Self {
            norm: Norm::new(weights, &format!("{prefix}.feed-forward-norm"), model)?,
            inner: AdaptedLinear::new(weights, &format!("{prefix}.feed-forward.in"), model)?,
            outer: AdaptedLinear::new(weights, &format!("{prefix}.feed-forward.out"), model)?,
            activation: model.activation,
            gated: model.gated,
            placement: model.norm_placement,
        })
    }

    /// Its output for a residual stream `[.., width]`, to be added to it: bfloat16 where products are, unless normalised.
    pub fn forward(&self, stream: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        if self.placement == NormPlacement::After {
            return self.norm.forward(&products.widen(self.fed(stream, products)?)?);
        }
        Ok(self.forward_sum(stream, None, products)?.1)
    }

    /// The stream with what is added to it, if anything, and the output for that. The norm comes first.
    pub fn forward_sum(
        &self,
        stream: &Tensor,
        added: Option<&Tensor>,
        products: &Products,
    ) -> Result<(Tensor, Tensor), TchError> {
        let (sum, normed) = self.norm.of_sum(stream, added, products)?;
        Ok((sum, self.fed(&normed, products)?))
    }

    fn fed(&self, input: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        let mut hidden = self.inner.forward(input, products)?;
        if self.gated {
            let width = hidden.size().last().copied().unwrap_or(0) / 2;
            if products.fuses() && kernels::gate_fits(width) {
                return self.outer.forward(&kernels::gate(&hidden, self.activation)?, products);
            }
            let gate = self.activated(&hidden.f_narrow(-1, 0, width)?)?;
            hidden = gate.f_mul(&hidden.f_narrow(-1, width, width)?)?;
        } else {
            hidden = self.activated(&hidden)?;
        }
        self.outer.forward(&hidden, products)
    }

    fn activated(&self, hidden: &Tensor) -> Result<Tensor, TchError> {
        match self.activation {
            Activation::Gelu => hidden.f_gelu("none"),
            Activation::GeluTanh => hidden.f_gelu("tanh"),
            Activation::Silu => hidden.f_silu(),
        }
    }
}
