//! A transformer block: attention and feed-forward, each behind a norm and added to the residual stream.

use tch::{TchError, Tensor};

use super::attention::Attention;
use super::directional::Directional;
use super::linear::Products;
use super::memory::Past;
use super::watch::{Watch, Writer};
use super::weights::{Weights, WeightsError};
use crate::config::{Activation, ModelConfig};

/// What a norm adds to the variance.
pub(crate) const EPSILON: f64 = 1e-5;

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

    /// `[width]`.
    pub(crate) fn weight(&self) -> &Tensor {
        &self.weight
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

/// How some tokens are read.
pub struct Reading<'a> {
    /// How products are computed.
    pub products: &'a Products,
    /// `[time, 1, 1, head/2]`, complex, if positions are rotary.
    pub rotation: Option<&'a Tensor>,
    /// How many tokens of each sequence are no padding, `[batch]`; nothing if none is.
    pub lengths: Option<&'a Tensor>,
    /// Who looks on.
    pub watch: &'a dyn Watch,
}

/// One block.
pub struct Block {
    index: usize,
    attention_norm: Norm,
    attention: Attention,
    directional: Option<Directional>,
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
            index,
            attention_norm: Norm::new(weights, &name("attention-norm"))?,
            attention: Attention::new(weights, &name("attention"), model)?,
            directional: Directional::new(weights, index, model)?,
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

    /// Its attention.
    pub(crate) fn attention(&self) -> &Attention {
        &self.attention
    }

    /// What routes its attention's directions, if they are.
    pub(crate) fn directional(&self) -> Option<&Directional> {
        self.directional.as_ref()
    }

    /// The residual stream `[batch, time, width]` after this block. `past` is of the tokens before, if there are any.
    ///
    /// # Errors
    /// If shapes do not fit or memory is short.
    pub fn forward(
        &self,
        stream: &Tensor,
        reading: &Reading<'_>,
        mut past: Option<&mut Past>,
    ) -> Result<Tensor, TchError> {
        let Reading { products, watch, .. } = *reading;
        let input = self.attention_norm.forward(stream)?;
        let heads = self.attention.heads(&input, products, reading.rotation, past.as_deref_mut())?;
        let heads = watch.heads(self.index, heads)?;
        let mut mixed = products.widen(self.attention.project(&heads, products)?)?;
        watch.added(Writer::Heads(self.index), &mixed)?;
        if let Some(directional) = &self.directional {
            let routing = directional.routing(&input, products, reading.lengths, past)?;
            let routing = watch.routing(self.index, routing)?;
            let taken = products.widen(directional.suppression(&heads, &routing, self.attention.out(), products)?)?;
            watch.added(Writer::Routing(self.index), &taken)?;
            mixed = mixed.f_add(&taken)?;
        }
        let stream = stream.f_add(&mixed)?;
        let hidden =
            products.linear(&self.feed_forward_norm.forward(&stream)?, &self.inner, self.inner_bias.as_ref())?;
        let fed = products.linear(&hidden.f_gelu(self.approximate)?, &self.outer, self.outer_bias.as_ref())?;
        let fed = products.widen(fed)?;
        watch.added(Writer::FeedForward(self.index), &fed)?;
        stream.f_add(&fed)
    }
}
