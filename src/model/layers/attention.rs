//! Self-attention, causal in text and full in images, with learned or rotary positions. Heads of keys and values may be
//! fewer than those of queries (grouped-query attention), and queries and keys may be normalised.

use tch::{Kind, TchError, Tensor};

use crate::config::{ModelConfig, QkNorm};
use crate::model::kernels::Rotation;
use crate::model::layers::adapted_linear::AdaptedLinear;
use crate::model::layers::kv_cache::{Past, mask};
use crate::model::layers::linear::Products;
use crate::model::layers::norm::rms;
use crate::model::layers::packed::Packed;
use crate::model::layers::rotary::Rotary;
use crate::model::layers::rows::Rows;
use crate::model::weights::{Weights, WeightsError};

/// The attention of one block.
pub struct Attention {
    qkv: AdaptedLinear,
    out: AdaptedLinear,
    heads: i64,
    kv_heads: i64,
    head_width: i64,
    rotary: Rotary,
    norms: Option<QkNorms>,
    /// Whether attention is full instead of causal.
    sees_all: bool,
}

/// The RMSNorms of queries and keys.
struct QkNorms {
    kind: QkNorm,
    queries: Tensor,
    keys: Tensor,
    epsilon: f64,
}

impl Attention {
    /// Takes its tensors from the weights; `prefix` is such as `block.3.attention`.
    pub fn new(weights: &Weights, prefix: &str, model: &ModelConfig) -> Result<Self, WeightsError> {
        Ok(Self {
            qkv: AdaptedLinear::new(weights, &format!("{prefix}.qkv"), model)?,
            out: AdaptedLinear::new(weights, &format!("{prefix}.out"), model)?,
            heads: model.heads as i64,
            kv_heads: model.kv_heads() as i64,
            head_width: model.head_width() as i64,
            rotary: Rotary {
                head_width: model.head_width() as i64,
                rotated: model.rotary().width(model.head_width()) as i64,
            },
            norms: model.qk_norm.map(|kind| QkNorms::new(weights, prefix, kind, model)).transpose()?,
            sees_all: model.reads_images(),
        })
    }

    /// The concatenated outputs of the heads: `[batch, time, width]` to `[batch, time, heads · head]`. `rotation` is
    /// `[time, 1, rotated/2]`, complex, for rotary positions. `past` has the cache of earlier tokens, if any, and is
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

    /// The same for packed sequences of text: `[1, tokens, width]` to `[1, tokens, heads · head]`. `rotation` is `[tokens, 1,
    /// rotated/2]`.
    pub fn packed_heads(
        &self,
        input: &Tensor,
        products: &Products,
        rotation: Option<&Tensor>,
        packed: &Packed,
    ) -> Result<Tensor, TchError> {
        let (q, k, v) = self.queries_keys_values(input, products, rotation)?;
        packed.attended([q, k, v], &|q, k, v| self.causal(q, k, v))
    }

    /// Outputs of the heads for tokens gathered from several sequences: `[tokens + fill, width]` to `[tokens, heads ·
    /// head]`. Each token attends to those of its own sequence, in text only to earlier ones. `rotation` is `[tokens +
    /// fill, 1, rotated/2]`.
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

    /// Queries, keys and values, `[batch, time, heads, head]` each. Rotated queries and keys have their pairs side by
    /// side.
    fn queries_keys_values(
        &self,
        input: &Tensor,
        products: &Products,
        rotation: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor, Tensor), TchError> {
        let (batch, time, width) = input.size3()?;
        if let Some(rotation) = rotation.filter(|_| products.fuses() && self.norms.is_none() && self.stacked().fits()) {
            let [q, k, v] = self.stacked().forward(&self.qkv.forward(input, products)?, rotation)?;
            return Ok((q, k, v));
        }
        let together = self.heads + self.kv_heads;
        // Few outputs are reordered faster than the weights that they come from.
        let is_short = !input.requires_grad() && batch * time < width;
        let qkv = match rotation.filter(|_| !is_short) {
            None => self.qkv.forward(input, products)?,
            Some(_) => self.qkv.arranged(|stacked| self.pairs_together(stacked))?.forward(input, products)?,
        };
        let [qk, v] = halves(&qkv, [together * self.head_width, self.kv_heads * self.head_width], -1)?;
        let mut qk = qk.f_view([batch, time, together, self.head_width])?;
        if rotation.is_some() && is_short {
            qk = self.rotary.pairs_in_heads(&qk)?;
        }
        if let Some(norms) = &self.norms {
            qk = self.normalized(&qk, norms, rotation.is_some())?;
        }
        if let Some(rotation) = rotation {
            qk = self.rotary.turned(&qk, rotation)?;
        }
        let [q, k] = halves(&qk, [self.heads, self.kv_heads], 2)?;
        Ok((q, k, v.f_view([batch, time, self.kv_heads, self.head_width])?))
    }

    /// How queries, keys and values come out of their product.
    fn stacked(&self) -> Rotation {
        let Rotary { head_width, rotated } = self.rotary;
        Rotation { heads: self.heads, kv_heads: self.kv_heads, head_width, rotated }
    }

    /// Reorders the query and key rows of a stacked tensor for the rotation.
    fn pairs_together(&self, stacked: &Tensor) -> Result<Tensor, TchError> {
        let rows = [(self.heads + self.kv_heads) * self.head_width, self.kv_heads * self.head_width];
        let [qk, v] = halves(stacked, rows, 0)?;
        Tensor::f_cat(&[self.rotary.pairs_together(&qk)?, v], 0)
    }

    /// Normalised queries and keys, `[batch, time, heads + kv_heads, head]`.
    fn normalized(&self, qk: &Tensor, norms: &QkNorms, in_pairs: bool) -> Result<Tensor, TchError> {
        let parts = halves(qk, [self.heads, self.kv_heads], 2)?;
        let mut normalized = Vec::with_capacity(2);
        for (part, weight) in parts.iter().zip([&norms.queries, &norms.keys]) {
            let weight = if in_pairs { self.rotary.pairs_together(weight)? } else { weight.shallow_clone() };
            normalized.push(match norms.kind {
                QkNorm::Head => rms(&part.f_to_kind(Kind::Float)?, &weight, norms.epsilon)?,
                QkNorm::Whole => {
                    let (batch, time, heads, width) = part.size4()?;
                    let whole = part.f_to_kind(Kind::Float)?.f_reshape([batch, time, heads * width])?;
                    rms(&whole, &weight, norms.epsilon)?.f_view([batch, time, heads, width])?
                }
            });
        }
        Tensor::f_cat(&normalized, 2)?.f_to_kind(qk.f_kind()?)
    }

    /// Values mixed by attention, `[batch, time, heads, head]`. `present` masks fill, `[batch, 1, 1, time]`. Causal
    /// attention needs no mask, since fill comes last.
    fn mixed(
        &self,
        (q, k, v): (Tensor, Tensor, Tensor),
        present: Option<&Tensor>,
        past: Option<&mut Past>,
    ) -> Result<Tensor, TchError> {
        if self.sees_all {
            let heads_first = |x: Tensor| x.f_transpose(1, 2);
            let (q, k, v) = (heads_first(q)?, heads_first(k)?, heads_first(v)?);
            let (k, v) = (self.for_queries(k)?, self.for_queries(v)?);
            return Tensor::f_scaled_dot_product_attention(&q, &k, &v, present, 0.0, false, None, false)?
                .f_transpose(1, 2);
        }
        match past {
            Some(past) if !past.groups.is_empty() => {
                let mut first = 0;
                let mut mixed = Vec::with_capacity(past.groups.len());
                for group in &past.groups {
                    let own = |x: &Tensor| x.f_narrow(0, first, group.len());
                    let (keys, values) = group.extended(&own(&k)?, &own(&v)?)?;
                    mixed.push(self.of_last(&own(&q)?, &keys, &values, group.mask())?);
                    first += group.len();
                }
                if mixed.len() == 1 { Ok(mixed.remove(0)) } else { Tensor::f_cat(&mixed, 0) }
            }
            Some(past) => {
                let (k, v) = past.extended(&k, &v)?;
                if q.size()[1] == 1 { self.of_last(&q, &k, &v, None) } else { self.causal(q, k, v) }
            }
            None => self.causal(q, k, v),
        }
    }

    /// Values mixed by causal attention of the last tokens: `[batch, time, heads, head]` each, of keys and values for all
    /// tokens so far, to `[batch, time, heads, head]`.
    fn causal(&self, q: Tensor, k: Tensor, v: Tensor) -> Result<Tensor, TchError> {
        let (q, k, v) = (q.f_transpose(1, 2)?, k.f_transpose(1, 2)?, v.f_transpose(1, 2)?);
        let (k, v) = (self.for_queries(k)?, self.for_queries(v)?);
        let (time, all) = (q.size()[2], k.size()[2]);
        let (mask, causal) = (mask(time, all, q.device())?, time == all);
        let mixed = Tensor::f_scaled_dot_product_attention(&q, &k, &v, mask.as_ref(), 0.0, causal, None, false)?;
        mixed.f_transpose(1, 2)
    }

    /// The same of one token of each row, `[batch, 1, heads, head]`. The queries of a group are like tokens that see the
    /// same, so that their keys and values need not be copied.
    fn of_last(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor, TchError> {
        let (batch, _, heads, width) = q.size4()?;
        let q = q.f_reshape([batch, self.kv_heads, heads / self.kv_heads, width])?;
        let (k, v) = (k.f_transpose(1, 2)?, v.f_transpose(1, 2)?);
        let mixed = Tensor::f_scaled_dot_product_attention(&q, &k, &v, mask, 0.0, false, None, false)?;
        mixed.f_reshape([batch, 1, heads, width])
    }

    /// Projects the outputs of heads to the residual stream: `[batch, time, width]`.
    pub fn project(&self, heads: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        self.out.forward(heads, products)
    }

    /// The weight of the output projection, `[width, heads · head]`, without an adapter.
    pub fn out(&self) -> &Tensor {
        self.out.weight()
    }

    /// Keys or values, `[batch, kv_heads, time, head]`, once for each head of queries.
    fn for_queries(&self, of_groups: Tensor) -> Result<Tensor, TchError> {
        if self.heads == self.kv_heads {
            return Ok(of_groups);
        }
        let (batch, _, time, width) = of_groups.size4()?;
        let each = self.heads / self.kv_heads;
        let spread = of_groups.f_unsqueeze(2)?.f_expand([batch, self.kv_heads, each, time, width], false)?;
        spread.f_reshape([batch, self.heads, time, width])
    }
}

impl QkNorms {
    fn new(weights: &Weights, prefix: &str, kind: QkNorm, model: &ModelConfig) -> Result<Self, WeightsError> {
        Ok(Self {
            kind,
            queries: weights.tensor(&format!("{prefix}.q-norm.weight"))?,
            keys: weights.tensor(&format!("{prefix}.k-norm.weight"))?,
            epsilon: model.norm_epsilon,
        })
    }
}

/// Two parts of these sizes.
fn halves(whole: &Tensor, sizes: [i64; 2], dimension: i64) -> Result<[Tensor; 2], TchError> {
    let parts = whole.f_split_with_sizes(sizes, dimension)?;
    parts.try_into().map_err(|_| TchError::Shape("queries, keys and values could not be split".to_owned()))
}
