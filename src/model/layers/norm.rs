//! Layer normalisation, and normalisation by the root mean square (RMSNorm).

use tch::{Kind, TchError, Tensor};

use crate::config::{ModelConfig, NormKind};
use crate::model::kernels::NarrowNorm;
use crate::model::layers::linear::Products;
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

    /// A stream with what is added to it, if anything, and the norm of that, which goes into a product: bfloat16 where a
    /// kernel rounds it at once.
    pub fn of_sum(
        &self,
        stream: &Tensor,
        added: Option<&Tensor>,
        products: &Products,
    ) -> Result<(Tensor, Tensor), TchError> {
        let Self { weight, bias, kind, epsilon } = self;
        let is_narrow = |added: &Tensor| added.kind() == Kind::BFloat16;
        if products.fuses() && NarrowNorm::fits(weight.numel() as i64) && added.is_none_or(is_narrow) {
            let centred = *kind == NormKind::Layer;
            let norm = NarrowNorm { weight, bias: bias.as_ref(), epsilon: *epsilon, centred };
            let [sum, normed] = norm.forward(stream, added)?;
            return Ok((sum, normed));
        }
        let sum = added.map_or_else(|| Ok(stream.shallow_clone()), |added| stream.f_add(added))?;
        let normed = self.forward(&sum)?;
        Ok((sum, normed))
    }
}

/// The last dimension divided by the root of its mean square, times a weight.
pub(super) fn rms(input: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor, TchError> {
    input.f_rms_norm(weight.size().as_slice(), Some(weight), Some(epsilon))
}
