//! Layer normalisation, and normalisation by the root mean square (RMSNorm).

use tch::{TchError, Tensor};

use crate::config::{ModelConfig, NormKind};
use crate::model::weights::{Weights, WeightsError};

/// A norm with a weight and, if the model has biases and it is a layer norm, a bias.
pub struct Norm {
    weight: Tensor,
    bias: Option<Tensor>,
    kind: NormKind,
    epsilon: f64,
}

impl Norm {
    /// Takes its tensors from the weights; `prefix` is such as `final-norm`.
    pub fn new(weights: &Weights, prefix: &str, model: &ModelConfig) -> Result<Self, WeightsError> {
        Ok(Self {
            weight: weights.tensor(&format!("{prefix}.weight"))?,
            bias: weights.optional(&format!("{prefix}.bias")),
            kind: model.norm,
            epsilon: model.norm_epsilon,
        })
    }

    /// `[width]`.
    pub(crate) fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// Normalises the last dimension.
    pub fn forward(&self, input: &Tensor) -> Result<Tensor, TchError> {
        match self.kind {
            NormKind::Layer => {
                let width = self.weight.size();
                input.f_layer_norm(width.as_slice(), Some(&self.weight), self.bias.as_ref(), self.epsilon, true)
            }
            NormKind::Rms => rms(input, &self.weight, self.epsilon),
        }
    }
}

/// The last dimension divided by the root of its mean square, times a weight.
pub(super) fn rms(input: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor, TchError> {
    input.f_rms_norm(weight.size().as_slice(), Some(weight), Some(epsilon))
}
