//! The input of the network: token embeddings of text, or patch embeddings of images.

use tch::{Kind, TchError, Tensor};

use crate::config::{ImagesConfig, ModelConfig};
use crate::model::layers::linear::Products;
use crate::model::weights::{Weights, WeightsError};

/// The first part of a network.
pub enum Input {
    /// Reads text.
    Tokens {
        /// A vector for each entry of the vocabulary, `[vocabulary, width]`.
        vectors: Tensor,
        /// A vector for each position, `[context, width]`, if positions are learned.
        positions: Option<Tensor>,
    },
    /// Reads images.
    Patches(Patches),
}

/// The patch embedding: a convolution without overlap (ViT, equation 1).
pub struct Patches {
    weight: Tensor,
    bias: Option<Tensor>,
    positions: Tensor,
    side: i64,
    patch: i64,
}

impl Input {
    /// Takes its tensors from the weights.
    pub fn new(weights: &Weights, model: &ModelConfig) -> Result<Self, WeightsError> {
        Ok(match model.images {
            None => Self::Tokens {
                vectors: weights.tensor("embedding.tokens.weight")?,
                positions: weights.optional("embedding.positions.weight"),
            },
            Some(ImagesConfig { patch }) => Self::Patches(Patches {
                weight: weights.tensor("embedding.patches.weight")?,
                bias: weights.optional("embedding.patches.bias"),
                positions: weights.tensor("embedding.positions.weight")?,
                side: model.side() as i64,
                patch: patch as i64,
            }),
        })
    }

    /// Vectors `[batch, time, width]` of tokens `[batch, tokens]`, the first of which is at position `first`. For
    /// images, each token is a byte.
    pub fn vectors(&self, tokens: &Tensor, first: i64, products: &Products) -> Result<Tensor, TchError> {
        match self {
            Self::Tokens { vectors, positions } => {
                let stream = Tensor::f_embedding(vectors, tokens, -1, false, false)?.f_to_kind(Kind::Float)?;
                match positions {
                    Some(positions) => stream.f_add(&positions.f_narrow(0, first, tokens.size2()?.1)?),
                    None => Ok(stream),
                }
            }
            Self::Patches(patches) => patches.vectors(&patches.pixels(tokens)?, products),
        }
    }

    /// Vectors `[batch, 1, width]` of one token of each of several texts, `[batch, 1]`, at these positions, `[batch]`.
    pub fn vectors_at(&self, tokens: &Tensor, positions: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        match self {
            Self::Tokens { vectors, positions: Some(learned) } => {
                let stream = Tensor::f_embedding(vectors, tokens, -1, false, false)?.f_to_kind(Kind::Float)?;
                // Not an index_select, whose gradient CUDA sums in any order.
                stream.f_add(&Tensor::f_embedding(learned, positions, -1, false, false)?.f_unsqueeze(1)?)
            }
            _ => self.vectors(tokens, 0, products),
        }
    }

    /// The patch embedding, if it reads images.
    pub fn patches(&self) -> Option<&Patches> {
        match self {
            Self::Patches(patches) => Some(patches),
            Self::Tokens { .. } => None,
        }
    }
}

impl Patches {
    /// Bytes `[batch, 3 · side · side]` as values from -1 to 1, `[batch, 3, side, side]`.
    pub fn pixels(&self, bytes: &Tensor) -> Result<Tensor, TchError> {
        let values = bytes.f_to_kind(Kind::Float)?.f_mul_scalar(2.0 / 255.0)?.f_sub_scalar(1.0)?;
        values.f_view([-1, 3, self.side, self.side])
    }

    /// Vectors `[batch, patches, width]` of images `[batch, 3, side, side]`, patch by patch, row by row.
    pub fn vectors(&self, pixels: &Tensor, products: &Products) -> Result<Tensor, TchError> {
        let (patch, across) = (self.patch, self.side / self.patch);
        let cut = pixels.f_view([-1, 3, across, patch, across, patch])?.f_permute([0, 2, 4, 1, 3, 5])?;
        let patches = cut.f_reshape([-1, across * across, 3 * patch * patch])?;
        products.widen(products.linear(&patches, &self.weight, self.bias.as_ref())?)?.f_add(&self.positions)
    }
}
