//! Self-attention, causal in text and full in images, with learned or rotary positions (RoFormer, section 3.2).
//!
//! The rotation is that of NeoX: in each head, dimension `i` is paired with `i + width/2`. It is computed as one
//! complex product, which needs the two of a pair side by side. So the rows of the query and key weights are first
//! brought into that order, which is cheap. Queries and keys are permuted alike, so their inner products do not change.

use tch::{Device, Kind, TchError, Tensor};

use crate::config::{ModelConfig, Positions};
use crate::model::layers::kv_cache::{Past, mask};
use crate::model::layers::linear::Products;
use crate::model::layers::rows::Rows;
use crate::model::weights::{Weights, WeightsError};

const ROTARY_BASE: f64 = 10_000.0;

/// The attention of one block.
pub struct Attention {
    qkv: Tensor,
    qkv_bias: Option<Tensor>,
    out: Tensor,
    out_bias: Option<Tensor>,
    heads: i64,
    head_width: i64,
    /// Whether attention is full instead of causal.
    sees_all: bool,
}

impl Attention {
    /// Takes its tensors from the weights; `prefix` is such as `block.3.attention`.
    pub fn new(weights: &Weights, prefix: &str, model: &ModelConfig) -> Result<Self, WeightsError> {
        Ok(Self {
            qkv: weights.tensor(&format!("{prefix}.qkv.weight"))?,
            qkv_bias: weights.optional(&format!("{prefix}.qkv.bias")),
            out: weights.tensor(&format!("{prefix}.out.weight"))?,
            out_bias: weights.optional(&format!("{prefix}.out.bias")),
            heads: model.heads as i64,
            head_width: model.head_width() as i64,
            sees_all: model.reads_images(),
        })
    }

    /// The concatenated outputs of the heads: `[batch, time, width]` to `[batch, time, heads · head]`. `rotation` is
    /// `[time, 1, 1, head/2]`, complex, for rotary positions. `past` has the cache of earlier tokens, if any, and is
    /// extended.
    pub fn heads(
        &self,
        input: &Tensor,
        products: &Products,
        rotation: Option<&Tensor>,
        past: Option<&mut Past>,
    ) -> Result<Tensor, TchError> {
        let (batch, time, _) = input.size3()?;
        let (q, k, v) = self.queries_keys_values(input, products, rotation)?;
        self.mixed((q, k, v), None, past)?.f_reshape([batch, time, self.heads * self.head_width])
    }

    /// Outputs of the heads for tokens gathered from several sequences: `[tokens + fill, width]` to `[tokens, heads ·
    /// head]`. Each token attends to those of its own sequence, in text only to earlier ones. `rotation` is `[tokens +
    /// fill, 1, 1, head/2]`.
    pub fn gathered_heads(
        &self,
        (input, tokens): (&Tensor, i64),
        products: &Products,
        rotation: Option<&Tensor>,
        rows: &Rows,
        past: Option<&mut Past>,
    ) -> Result<Tensor, TchError> {
        let (q, k, v) = self.queries_keys_values(&input.f_unsqueeze(0)?, products, rotation)?;
        let apart = |x: Tensor| rows.apart(&x.f_squeeze_dim(0)?.f_narrow(0, 0, tokens)?);
        let present = if self.sees_all { rows.present(input.device())? } else { None };
        let mixed = self.mixed((apart(q)?, apart(k)?, apart(v)?), present.as_ref(), past)?;
        rows.together(&mixed.f_reshape([-1, self.heads * self.head_width])?)
    }

    /// Queries, keys and values, `[batch, time, heads, head]` each.
    fn queries_keys_values(
        &self,
        input: &Tensor,
        products: &Products,
        rotation: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor, Tensor), TchError> {
        if let Some(rotation) = rotation {
            return self.rotated(input, products, rotation);
        }
        let (batch, time, _) = input.size3()?;
        let qkv = products.linear(input, &self.qkv, self.qkv_bias.as_ref())?;
        three(&mut qkv.f_view([batch, time, 3, self.heads, self.head_width])?.f_unbind(2)?.into_iter())
    }

    /// Values mixed by attention, `[batch, time, heads, head]`. `present` masks fill, `[batch, 1, 1, time]`. Causal
    /// attention needs no mask, since fill comes last.
    fn mixed(
        &self,
        (q, k, v): (Tensor, Tensor, Tensor),
        present: Option<&Tensor>,
        past: Option<&mut Past>,
    ) -> Result<Tensor, TchError> {
        let heads_first = |x: Tensor| x.f_transpose(1, 2);
        let (q, k, v) = (heads_first(q)?, heads_first(k)?, heads_first(v)?);
        if self.sees_all {
            return Tensor::f_scaled_dot_product_attention(&q, &k, &v, present, 0.0, false, None, false)?
                .f_transpose(1, 2);
        }
        let (k, v) = match past {
            None => (k, v),
            Some(past) => past.extended(k, v)?,
        };
        let (time, all) = (q.size()[2], k.size()[2]);
        let (mask, causal) = (mask(time, all, q.device())?, time == all);
        let mixed = Tensor::f_scaled_dot_product_attention(&q, &k, &v, mask.as_ref(), 0.0, causal, None, false)?;
        mixed.f_transpose(1, 2)
    }

    /// Projects the outputs of heads to the residual stream: `[batch, time, width]`.
    pub fn project(&self, heads: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        products.linear(heads, &self.out, self.out_bias.as_ref())
    }

    /// The output projection, `[width, heads · head]`.
    pub fn out(&self) -> &Tensor {
        &self.out
    }

    /// Queries, keys and values, `[batch, time, heads, head]` each, the first two rotated and with pairs side by side.
    fn rotated(
        &self,
        input: &Tensor,
        products: &Products,
        rotation: &Tensor,
    ) -> Result<(Tensor, Tensor, Tensor), TchError> {
        let (batch, time, _) = input.size3()?;
        let inner = self.heads * self.head_width;
        let weight = self.pairs_together(&self.qkv)?;
        let bias = self.qkv_bias.as_ref().map(|bias| self.pairs_together(bias)).transpose()?;
        let qkv = products.linear(input, &weight, bias.as_ref())?;
        let mut parts = qkv.f_split_with_sizes([2 * inner, inner], -1)?.into_iter();
        let (Some(qk), Some(v)) = (parts.next(), parts.next()) else {
            return Err(TchError::Shape("queries, keys and values could not be split".to_owned()));
        };
        let kind = qk.f_kind()?;
        // Rotated in f32 even if products are bfloat16: far positions need the precision.
        let pairs = qk.f_to_kind(Kind::Float)?.f_reshape([batch, time, 2, self.heads, self.head_width / 2, 2])?;
        let turned = pairs.f_view_as_complex()?.f_mul(rotation)?.f_view_as_real()?;
        let turned = turned.f_to_kind(kind)?.f_view([batch, time, 2, self.heads, self.head_width])?;
        let mut parts = turned.f_unbind(2)?.into_iter();
        let (Some(q), Some(k)) = (parts.next(), parts.next()) else {
            return Err(TchError::Shape("queries and keys could not be split".to_owned()));
        };
        Ok((q, k, v.f_view([batch, time, self.heads, self.head_width])?))
    }

    /// Reorders the query and key rows of a weight or bias from halves (`a0 a1 .. b0 b1 ..`) to pairs (`a0 b0 a1 b1
    /// ..`).
    fn pairs_together(&self, stacked: &Tensor) -> Result<Tensor, TchError> {
        let inner = self.heads * self.head_width;
        let mut parts = stacked.f_split_with_sizes([2 * inner, inner], 0)?.into_iter();
        let (Some(qk), Some(v)) = (parts.next(), parts.next()) else {
            return Err(TchError::Shape("the query, key and value weight could not be split".to_owned()));
        };
        let halves = qk.f_reshape([2 * self.heads, 2, self.head_width / 2, -1])?;
        let pairs = halves.f_transpose(1, 2)?.f_reshape(qk.size().as_slice())?;
        Tensor::f_cat(&[pairs, v], 0)
    }
}

fn three(parts: &mut impl Iterator<Item = Tensor>) -> Result<(Tensor, Tensor, Tensor), TchError> {
    match (parts.next(), parts.next(), parts.next()) {
        (Some(q), Some(k), Some(v)) => Ok((q, k, v)),
        _ => Err(TchError::Shape("queries, keys and values could not be split".to_owned())),
    }
}

/// The unit complex numbers that rotate each pair at each position, `[context, 1, 1, head/2]`; `None` if positions are
/// learned.
pub fn rotation(model: &ModelConfig, device: Device) -> Result<Option<Tensor>, TchError> {
    if model.positions != Positions::Rotary {
        return Ok(None);
    }
    let width = model.head_width();
    let angles: Vec<f64> = (0..model.context)
        .flat_map(|position| {
            (0..width / 2).map(move |pair| position as f64 * ROTARY_BASE.powf(-2.0 * pair as f64 / width as f64))
        })
        .collect();
    let angles = Tensor::f_from_slice(&angles)?.f_view([model.context as i64, 1, 1, (width / 2) as i64])?;
    let (real, imaginary) = (angles.f_cos()?.f_to_kind(Kind::Float)?, angles.f_sin()?.f_to_kind(Kind::Float)?);
    Ok(Some(Tensor::f_complex(&real, &imaginary)?.f_to_device(device)?))
}
