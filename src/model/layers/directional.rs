//! Directional routing: a router suppresses learned directions in the output of each attention head.
//!
//! With `o` the output of a head, `d` its directions of unit length, and `r` in [0, 1] from the router, `o' = o - Σ r
//! (o·d) d`. The output projection is linear, so no tensor of a head's width is needed: `W o' = W o - (W D) (r ⊙ Dᵀ
//! o)`, with all heads' directions in one matrix `D`. Both factors are products with few columns.

use tch::{Kind, TchError, Tensor};

use crate::config::{DirectionalConfig, ModelConfig, Pooling, RouterReads};
use crate::model::layers::kv_cache::Past;
use crate::model::layers::linear::Products;
use crate::model::weights::{Weights, WeightsError};

const EPSILON: f64 = 1e-5;

/// Lower bound of the norm by which a direction is divided.
const LEAST_LENGTH: f64 = 1e-12;

/// Positions summed by one matrix product.
const SUMMED: i64 = 32;

/// A linear layer with a bias.
struct Layer {
    weight: Tensor,
    bias: Tensor,
}

/// The router and the directions of one block.
pub struct Directional {
    directions: Tensor,
    norm: Layer,
    layers: Vec<Layer>,
    pooling: Pooling,
    reads: RouterReads,
    temperature: f64,
}

impl Directional {
    /// Takes its tensors from the weights; `None` without directional attention.
    pub fn new(weights: &Weights, index: usize, model: &ModelConfig) -> Result<Option<Self>, WeightsError> {
        let Some(config) = &model.directional else { return Ok(None) };
        let DirectionalConfig { router_layers, pooling, reads, temperature, .. } = *config;
        let layer = |name: String| {
            let tensor = |what| weights.tensor(&format!("router.{index}.{name}.{what}"));
            Ok::<_, WeightsError>(Layer { weight: tensor("weight")?, bias: tensor("bias")? })
        };
        Ok(Some(Self {
            directions: weights.tensor(&format!("directions.{index}.weight"))?,
            norm: layer("norm".to_owned())?,
            layers: (0..router_layers).map(|number| layer(format!("linear.{number}"))).collect::<Result<_, _>>()?,
            pooling,
            reads,
            temperature,
        }))
    }

    /// The suppression of each direction, `[batch, time or 1, heads · directions]`, f32. `stream` and `normed`, `[batch,
    /// time, width]`, are the residual stream before the block, and the input of attention. `lengths`, `[batch]`, has
    /// the lengths without padding, if there is any; `past` has the cache of earlier tokens, if any.
    pub fn routing(
        &self,
        (stream, normed): (&Tensor, &Tensor),
        products: &Products,
        lengths: Option<&Tensor>,
        past: Option<&mut Past>,
    ) -> Result<Tensor, TchError> {
        let input = match self.reads {
            RouterReads::Normed => normed,
            RouterReads::Stream => stream,
        };
        let (_, time, width) = input.size3()?;
        let pooled = match self.pooling {
            Pooling::Token => input.shallow_clone(),
            Pooling::Prefix => return self.scores(&running_mean(input, past)?, products),
            Pooling::Sequence => mean(input, time, lengths)?,
        };
        debug_assert_eq!(pooled.size().last(), Some(&width));
        self.scores(&pooled, products)
    }

    fn scores(&self, pooled: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        let width = self.norm.weight.size();
        let (weight, bias) = (Some(&self.norm.weight), Some(&self.norm.bias));
        let mut hidden = pooled.f_layer_norm(width.as_slice(), weight, bias, EPSILON, true)?;
        for (number, layer) in self.layers.iter().enumerate() {
            if number > 0 {
                hidden = hidden.f_gelu("none")?;
            }
            hidden = products.linear(&hidden, &layer.weight, Some(&layer.bias))?;
        }
        products.widen(hidden)?.f_mul_scalar(self.temperature)?.f_sigmoid()
    }

    /// Directions of unit length, `[heads, directions, head]`.
    pub fn directions(&self) -> Result<Tensor, TchError> {
        let lengths = self.directions.f_norm_scalaropt_dim(2, [-1i64].as_slice(), true)?;
        self.directions.f_div(&lengths.f_clamp_min(LEAST_LENGTH)?)
    }

    /// The change of the output projection of `heads`, `[batch, time, inner]`: `[batch, time, width]`, minus the
    /// suppressed part. `out` is the projection's weight, `[width, inner]`.
    pub fn suppression(
        &self,
        heads: &Tensor,
        routing: &Tensor,
        out: &Tensor,
        products: &Products,
    ) -> Result<Tensor, TchError> {
        let of_heads = self.directions()?.f_unbind(0)?;
        let all = Tensor::f_block_diag(&of_heads)?;
        let along = products.linear(heads, &all, None)?;
        let taken = along.f_mul(&routing.f_to_kind(along.f_kind()?)?)?;
        products.linear(&taken, &out.f_matmul(&all.f_transpose(0, 1)?)?.f_neg()?, None)
    }
}

/// The mean of a sequence's first tokens, `[batch, 1, width]`.
fn mean(input: &Tensor, tokens: i64, lengths: Option<&Tensor>) -> Result<Tensor, TchError> {
    let input = input.f_narrow(1, 0, tokens)?;
    let Some(lengths) = lengths else {
        return input.f_mean_dim([1i64].as_slice(), true, Kind::Float);
    };
    let places = Tensor::f_arange(tokens, (Kind::Int64, input.device()))?;
    let counts = places.f_unsqueeze(0)?.f_lt_tensor(&lengths.f_unsqueeze(1)?)?.f_to_kind(Kind::Float)?;
    let shares = counts.f_div(&counts.f_sum_dim_intlist([1i64].as_slice(), true, Kind::Float)?.f_clamp_min(1.0)?)?;
    input.f_mul(&shares.f_unsqueeze(2)?)?.f_sum_dim_intlist([1i64].as_slice(), true, Kind::Float)
}

/// At each position, the mean of the input up to it.
fn running_mean(input: &Tensor, past: Option<&mut Past>) -> Result<Tensor, TchError> {
    let (_, time, _) = input.size3()?;
    let mut sums = running_sums(input)?;
    let mut before = 0;
    if let Some(past) = past {
        if let Some((sum, tokens)) = &past.sum {
            sums = sums.f_add(sum)?;
            before = *tokens;
        }
        past.sum = Some((sums.f_narrow(1, time - 1, 1)?, before + time));
    }
    let counts = Tensor::f_arange_start(before + 1, before + time + 1, (Kind::Float, input.device()))?;
    sums.f_div(&counts.f_unsqueeze(1)?)
}

/// At each position, the sum of the input up to it. Blocks are multiplied by a triangular matrix of ones, which is
/// twice as fast as a cumulative sum; later positions do not change any bit.
fn running_sums(input: &Tensor) -> Result<Tensor, TchError> {
    let (batch, time, width) = input.size3()?;
    let blocks = (time + SUMMED - 1) / SUMMED;
    let padded = match blocks * SUMMED - time {
        0 => input.shallow_clone(),
        lacking => input.f_constant_pad_nd([0, 0, 0, lacking])?,
    };
    let apart = padded.f_reshape([batch, blocks, SUMMED, width])?;
    let triangle = Tensor::f_ones([SUMMED, SUMMED], (Kind::Float, input.device()))?.f_tril(0)?;
    let within = triangle.f_matmul(&apart)?;
    let totals = within.f_select(2, SUMMED - 1)?.f_narrow(1, 0, blocks - 1)?;
    let before = totals.f_cumsum(1, Kind::Float)?.f_constant_pad_nd([0, 0, 1, 0])?;
    within.f_add(&before.f_unsqueeze(2)?)?.f_reshape([batch, blocks * SUMMED, width])?.f_narrow(1, 0, time)
}
