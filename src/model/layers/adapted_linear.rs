//! A linear layer of a block, with a low-rank adapter (LoRA, 2106.09685, section 4.1) if the model has one.

use tch::{TchError, Tensor};

use crate::config::ModelConfig;
use crate::model::layers::linear::Products;
use crate::model::weights::{Weights, WeightsError};

/// `W x + bias`, and with an adapter `scale · B A x` besides. Where several matrices are stacked, each has an adapter of
/// its own.
pub struct AdaptedLinear {
    /// `[outputs, inputs]`
    weight: Tensor,
    bias: Option<Tensor>,
    adapter: Option<Adapter>,
}

struct Adapter {
    /// `[matrices · rank, inputs]`
    a: Tensor,
    /// `[outputs, rank]`
    b: Tensor,
    scale: f64,
    /// The rows of each matrix of the layer.
    rows: Vec<i64>,
}

impl AdaptedLinear {
    /// Takes its tensors from the weights; `name` is such as `block.3.attention.qkv`, whose adapter is
    /// `adapter.3.attention.qkv`.
    pub fn new(weights: &Weights, name: &str, model: &ModelConfig) -> Result<Self, WeightsError> {
        let weight = format!("{name}.weight");
        let adapter = match (&model.adapter, name.strip_prefix("block.")) {
            (Some(adapter), Some(place)) => Some(Adapter {
                a: weights.tensor(&format!("adapter.{place}.a"))?,
                b: weights.tensor(&format!("adapter.{place}.b"))?,
                scale: adapter.scale(),
                rows: weights.matrices(&weight).iter().map(|rows| *rows as i64).collect(),
            }),
            _ => None,
        };
        Ok(Self { weight: weights.tensor(&weight)?, bias: weights.optional(&format!("{name}.bias")), adapter })
    }

    /// `[.., inputs]` to `[.., outputs]`; bfloat16 where products are.
    pub fn forward(&self, input: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        let output = products.linear(input, &self.weight, self.bias.as_ref())?;
        match &self.adapter {
            None => Ok(output),
            Some(adapter) => output.f_add(&adapter.forward(input, products)?),
        }
    }

    /// The same layer with its outputs in another order, which must keep each of the stacked matrices together.
    pub fn arranged(&self, order: impl Fn(&Tensor) -> Result<Tensor, TchError>) -> Result<Self, TchError> {
        let adapter = |Adapter { a, b, scale, rows }: &Adapter| -> Result<Adapter, TchError> {
            Ok(Adapter { a: a.shallow_clone(), b: order(b)?, scale: *scale, rows: rows.clone() })
        };
        Ok(Self {
            weight: order(&self.weight)?,
            bias: self.bias.as_ref().map(&order).transpose()?,
            adapter: self.adapter.as_ref().map(adapter).transpose()?,
        })
    }

    pub fn weight(&self) -> &Tensor {
        &self.weight
    }
}

impl Adapter {
    fn forward(&self, input: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        let narrow = products.linear(input, &self.a, None)?.f_mul_scalar(self.scale)?;
        if self.rows.len() == 1 {
            return products.linear(&narrow, &self.b, None);
        }
        let rank = self.b.size2()?.1;
        let mut first = 0;
        let mut outputs = Vec::with_capacity(self.rows.len());
        for (matrix, rows) in self.rows.iter().enumerate() {
            let own = narrow.f_narrow(-1, matrix as i64 * rank, rank)?;
            outputs.push(products.linear(&own, &self.b.f_narrow(0, first, *rows)?, None)?);
            first += rows;
        }
        Tensor::f_cat(&outputs, -1)
    }
}
