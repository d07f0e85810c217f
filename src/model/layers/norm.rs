//! Layer normalisation.

use tch::{TchError, Tensor};

use crate::model::weights::{Weights, WeightsError};

/// Added to the variance.
pub(crate) const EPSILON: f64 = 1e-5;

/// Layer normalisation with a weight and, if the model has biases, a bias.
pub struct Norm {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Norm {
    /// Takes its tensors from the weights; `prefix` is such as `final-norm`.
    pub fn new(weights: &Weights, prefix: &str) -> Result<Self, WeightsError> {
        Ok(Self {
            weight: weights.tensor(&format!("{prefix}.weight"))?,
            bias: weights.optional(&format!("{prefix}.bias")),
        })
    }

    /// `[width]`.
    pub(crate) fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// Normalises the last dimension.
    pub fn forward(&self, input: &Tensor) -> Result<Tensor, TchError> {
        let width = self.weight.size();
        input.f_layer_norm(width.as_slice(), Some(&self.weight), self.bias.as_ref(), EPSILON, true)
    }
}
