//! A transformer block: attention and feed-forward, each with a norm and added to the residual stream.

use tch::{TchError, Tensor};

use crate::config::{ModelConfig, NormPlacement};
use crate::model::layers::attention::Attention;
use crate::model::layers::directional::Directional;
use crate::model::layers::feed_forward::FeedForward;
use crate::model::layers::kv_cache::Past;
use crate::model::layers::linear::Products;
use crate::model::layers::norm::Norm;
use crate::model::layers::packed::Packed;
use crate::model::layers::watch::{Watch, Writer};
use crate::model::weights::{Weights, WeightsError};

/// Inputs of a forward pass besides the stream.
pub struct Reading<'a> {
    pub products: &'a Products,
    /// `[time, 1, rotated/2]`, complex, for rotary positions.
    pub rotation: Option<&'a Tensor>,
    /// Length of each sequence without padding, `[batch]`; `None` without padding.
    pub lengths: Option<&'a Tensor>,
    /// The sequences in the row, if they are packed. There is then no padding, and no cache.
    pub packed: Option<&'a Packed>,
    pub watch: &'a dyn Watch,
}

pub struct Block {
    index: usize,
    attention_norm: Norm,
    attention: Attention,
    directional: Option<Directional>,
    feed_forward: FeedForward,
    placement: NormPlacement,
    /// Whether feed-forward reads the same stream as attention.
    parallel: bool,
}

impl Block {
    /// Takes its tensors from the weights.
    pub fn new(weights: &Weights, index: usize, model: &ModelConfig) -> Result<Self, WeightsError> {
        let name = |part: &str| format!("block.{index}.{part}");
        Ok(Self {
            index,
            attention_norm: Norm::new(weights, &name("attention-norm"), model)?,
            attention: Attention::new(weights, &name("attention"), model)?,
            directional: Directional::new(weights, index, model)?,
            feed_forward: FeedForward::new(weights, &format!("block.{index}"), model)?,
            placement: model.norm_placement,
            parallel: model.parallel_residual,
        })
    }

    pub(crate) fn attention(&self) -> &Attention {
        &self.attention
    }

    /// The router of its directions, if attention is directional.
    pub(crate) fn directional(&self) -> Option<&Directional> {
        self.directional.as_ref()
    }

    /// The residual stream `[batch, time, width]` after this block. `past` has the cache of earlier tokens, if any.
    pub fn forward(
        &self,
        stream: &Tensor,
        reading: &Reading<'_>,
        mut past: Option<&mut Past>,
    ) -> Result<Tensor, TchError> {
        let Reading { products, watch, .. } = *reading;
        let after = self.placement == NormPlacement::After;
        // The router of directions reads the norm before it is rounded.
        let (stream, input) = match (after, &self.directional) {
            (true, _) => (stream.shallow_clone(), stream.shallow_clone()),
            (false, Some(_)) => (stream.shallow_clone(), self.attention_norm.forward(stream)?),
            (false, None) => self.attention_norm.of_sum(stream, None, products)?,
        };
        let heads = match reading.packed {
            Some(packed) => self.attention.packed_heads(&input, products, reading.rotation, packed)?,
            None => self.attention.heads(&input, products, reading.rotation, past.as_deref_mut())?,
        };
        let heads = watch.heads(self.index, heads)?;
        // The stream is f32, so that adding to it widens what is added.
        let mut mixed = self.attention.project(&heads, products)?;
        if after {
            mixed = self.attention_norm.forward(&products.widen(mixed)?)?;
        }
        watch.added(Writer::Heads(self.index), &mixed)?;
        if let Some(directional) = &self.directional {
            let routing = directional.routing((&stream, &input), products, reading.lengths, past)?;
            let routing = watch.routing(self.index, routing)?;
            let taken = products.widen(directional.suppression(&heads, &routing, self.attention.out(), products)?)?;
            watch.added(Writer::Routing(self.index), &taken)?;
            mixed = products.widen(mixed)?.f_add(&taken)?;
        }
        let (attended, fed) = if self.parallel || after {
            let attended = stream.f_add(&mixed)?;
            let fed = self.feed_forward.forward(if self.parallel { &stream } else { &attended }, products)?;
            (attended, fed)
        } else {
            self.feed_forward.forward_sum(&stream, Some(&mixed), products)?
        };
        watch.added(Writer::FeedForward(self.index), &fed)?;
        attended.f_add(&fed)
    }
}
