//! One module of the pool: a block or half of one, over tokens gathered from several sequences.

use tch::{TchError, Tensor};

use crate::config::{ModelConfig, ModuleKind, NormPlacement};
use crate::model::layers::attention::Attention;
use crate::model::layers::feed_forward::FeedForward;
use crate::model::layers::kv_cache::Past;
use crate::model::layers::linear::Products;
use crate::model::layers::norm::Norm;
use crate::model::layers::rows::Rows;
use crate::model::weights::{Weights, WeightsError};

/// A module with parameters.
pub struct Module {
    attention: Option<(Norm, Attention)>,
    feed_forward: Option<FeedForward>,
    placement: NormPlacement,
    parallel: bool,
}

/// The gathered input of a module.
pub struct Gathered<'a> {
    /// Their vectors, `[tokens + fill, width]`.
    pub stream: Tensor,
    /// Number of tokens without fill.
    pub tokens: i64,
    /// Their layout in the sequences.
    pub rows: &'a Rows,
    /// `[tokens + fill, 1, rotated/2]`, complex, for rotary positions.
    pub rotation: Option<Tensor>,
}

impl Module {
    /// Takes its tensors from the weights.
    pub fn new(weights: &Weights, index: usize, kind: ModuleKind, model: &ModelConfig) -> Result<Self, WeightsError> {
        let prefix = format!("module.{index}");
        let attends = matches!(kind, ModuleKind::Transformer | ModuleKind::Attention);
        let feeds = matches!(kind, ModuleKind::Transformer | ModuleKind::Mlp);
        let attention = || {
            let norm = Norm::new(weights, &format!("{prefix}.attention-norm"), model)?;
            Ok::<_, WeightsError>((norm, Attention::new(weights, &format!("{prefix}.attention"), model)?))
        };
        Ok(Self {
            attention: attends.then(attention).transpose()?,
            feed_forward: feeds.then(|| FeedForward::new(weights, &prefix, model)).transpose()?,
            placement: model.norm_placement,
            parallel: model.parallel_residual,
        })
    }

    /// Whether it has attention.
    pub fn attends(&self) -> bool {
        self.attention.is_some()
    }

    /// `M(h) - h` of each token, `[tokens + fill, width]`; the values for fill are meaningless. `past` has the caches
    /// of earlier tokens, if any.
    pub fn change(
        &self,
        given: &Gathered<'_>,
        products: &Products,
        past: Option<&mut Past>,
    ) -> Result<Tensor, TchError> {
        let Some((norm, attention)) = &self.attention else {
            return self.fed(&given.stream, products);
        };
        let fill = given.stream.size2()?.0 - given.tokens;
        let after = self.placement == NormPlacement::After;
        let input = if after { given.stream.shallow_clone() } else { norm.forward(&given.stream)? };
        let rotation = given.rotation.as_ref();
        let heads = attention.gathered_heads((&input, given.tokens), products, rotation, given.rows, past)?;
        let heads = if fill > 0 { heads.f_constant_pad_nd([0, 0, 0, fill])? } else { heads };
        let mut mixed = products.widen(attention.project(&heads, products)?)?;
        if after {
            mixed = norm.forward(&mixed)?;
        }
        if self.feed_forward.is_none() {
            return Ok(mixed);
        }
        let fed = match self.parallel {
            true => self.fed(&given.stream, products)?,
            false => self.fed(&given.stream.f_add(&mixed)?, products)?,
        };
        mixed.f_add(&fed)
    }

    fn fed(&self, stream: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        match &self.feed_forward {
            Some(feed_forward) => products.widen(feed_forward.forward(stream, products)?),
            None => stream.f_zeros_like(),
        }
    }
}
