//! The network of a path: its sizes, its parts, and all of their tensors.
//!
//! The parts are `embedding`, `block.0` to `block.N-1`, `final-norm` and, unless the head is tied to the embedding,
//! `head`. [Directional](crate::config::model::directional) attention adds `router.0`, `directions.0` and so on. A
//! [DNA](crate::config::model::dna) model adds `router.0`, `module.0` and so on, and `balance`. Only this module knows
//! the tensors of a part and their order in the flat buffer of a module.

pub mod directional;
pub mod dna;
pub mod images;
pub mod levels;
pub mod parts;

use serde::{Deserialize, Serialize};

use crate::config::model::directional::{Around, DirectionalConfig, DirectionalError, Pooling};
use crate::config::model::dna::{DnaConfig, DnaError, ModuleKind};
use crate::config::model::images::{ImagesConfig, ImagesError};
use crate::config::model::parts::{Initial, Part, TensorList, TensorSpec};

/// Position encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// A learned vector for each position.
    Learned,
    /// Rotated queries and keys (RoFormer), without parameters.
    Rotary,
}

/// Activation of the feed-forward part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// Exact GELU.
    #[default]
    Gelu,
    /// The tanh approximation of GPT-2.
    GeluTanh,
}

impl Activation {
    fn is_gelu(&self) -> bool {
        *self == Self::Gelu
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// Every token goes through every block.
    #[default]
    Transformer,
    /// After the blocks, each token chooses modules of a pool.
    Dna,
}

impl Architecture {
    fn is_transformer(&self) -> bool {
        *self == Self::Transformer
    }
}

/// `[model]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    #[serde(default, skip_serializing_if = "Architecture::is_transformer")]
    pub architecture: Architecture,
    /// Transformer blocks that every token goes through.
    pub blocks: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Attention heads; each has `width / heads` dimensions unless `head_width` says otherwise.
    pub heads: usize,
    /// Dimensions of a head, if not `width / heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_width: Option<usize>,
    /// Hidden width of the feed-forward part; four times `width` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_forward: Option<usize>,
    pub vocabulary: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    #[serde(default = "rotary")]
    pub positions: Positions,
    /// Whether the head uses the transposed embedding.
    #[serde(default)]
    pub tied_head: bool,
    /// Whether linear layers and norms have biases.
    #[serde(default)]
    pub biases: bool,
    #[serde(default, skip_serializing_if = "Activation::is_gelu")]
    pub activation: Activation,
    /// Standard deviation of all initial weights, truncated at twice its value. Without it, each tensor has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_deviation: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directional: Option<DirectionalConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dna: Option<DnaConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<ImagesConfig>,
}

fn rotary() -> Positions {
    Positions::Rotary
}

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ModelError {
    #[error("{key} = {found}: must be {least} to {most}")]
    Size { key: &'static str, found: usize, least: usize, most: usize },
    #[error("heads = {heads} do not divide width = {width}; change one or give head_width")]
    Heads { heads: usize, width: usize },
    #[error("rotary positions need heads of even width, found {0}")]
    OddHead(usize),
    #[error("initial_deviation = {0}: must be above 0, at most 10")]
    InitialDeviation(f64),
    #[error(transparent)]
    Directional(#[from] DirectionalError),
    #[error(transparent)]
    Dna(#[from] DnaError),
    #[error(transparent)]
    Images(#[from] ImagesError),
}

impl ModelConfig {
    pub fn head_width(&self) -> usize {
        self.head_width.unwrap_or(self.width / self.heads.max(1))
    }

    pub fn feed_forward(&self) -> usize {
        self.feed_forward.unwrap_or(4 * self.width)
    }

    /// All parts, in the order of computation.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = vec![Part::Embedding];
        parts.extend((0..self.blocks).flat_map(|index| self.layer(index)));
        parts.extend(self.dna.iter().flat_map(DnaConfig::parts));
        parts.push(Part::FinalNorm);
        if !self.tied_head {
            parts.push(Part::Head);
        }
        parts
    }

    /// A block, with its router and directions, if any.
    pub(super) fn layer(&self, index: usize) -> Vec<Part> {
        match self.directional {
            None => vec![Part::Block(index)],
            Some(_) => vec![Part::Block(index), Part::Router(index), Part::Directions(index)],
        }
    }

    /// Tokens at the beginning of each sequence that must not be scored, since earlier positions depend on them.
    pub fn unscored_tokens(&self) -> usize {
        if self.reads_images() {
            return self.context;
        }
        self.directional.as_ref().map_or(0, DirectionalConfig::unscored_tokens)
    }

    /// Whether the network's output at a position depends on later tokens.
    pub fn looks_ahead(&self) -> bool {
        self.directional.as_ref().is_some_and(|directional| directional.pooling == Pooling::Sequence)
    }

    fn around(&self) -> Around {
        Around { width: self.width, heads: self.heads, head_width: self.head_width(), context: self.context }
    }

    pub fn check(&self) -> Result<(), ModelError> {
        let in_range = |key, found, least, most| {
            if (least..=most).contains(&found) { Ok(()) } else { Err(ModelError::Size { key, found, least, most }) }
        };
        in_range("blocks", self.blocks, usize::from(self.dna.is_none()), 1024)?;
        in_range("width", self.width, 1, 1 << 16)?;
        in_range("heads", self.heads, 1, 1024)?;
        in_range("feed_forward", self.feed_forward(), 1, 1 << 18)?;
        let (least, most) = if self.reads_images() { (2, 1 << 16) } else { (258, 1 << 20) };
        in_range("vocabulary", self.vocabulary, least, most)?;
        in_range("context", self.context, 8, 1 << 20)?;
        if self.head_width.is_none() && !self.width.is_multiple_of(self.heads) {
            return Err(ModelError::Heads { heads: self.heads, width: self.width });
        }
        in_range("head_width", self.head_width(), 1, 1 << 14)?;
        if self.positions == Positions::Rotary && !self.head_width().is_multiple_of(2) {
            return Err(ModelError::OddHead(self.head_width()));
        }
        if let Some(deviation) = self.initial_deviation
            && !(deviation > 0.0 && deviation <= 10.0)
        {
            return Err(ModelError::InitialDeviation(deviation));
        }
        if let Some(directional) = &self.directional {
            directional.check(self.around())?;
        }
        self.check_dna()?;
        self.check_images()?;
        Ok(())
    }

    fn check_dna(&self) -> Result<(), DnaError> {
        match (&self.dna, self.architecture) {
            (None, Architecture::Transformer) => Ok(()),
            (Some(_), Architecture::Dna) if self.directional.is_some() => Err(DnaError::Directional),
            (Some(dna), Architecture::Dna) => dna.check(),
            _ => Err(DnaError::HalfSaid),
        }
    }

    /// Number of blocks that a token goes through.
    fn depth(&self) -> usize {
        self.blocks + self.dna.as_ref().map_or(0, |dna| dna.steps)
    }

    /// The tensors of a part, in the order of the flat buffer.
    ///
    /// Linear weights are `[out, in]` and start at 1/√width, which preserves the size of their input. Weights that
    /// write into the residual stream start smaller by √(2·blocks), as in GPT-2, so that its variance does not grow
    /// with depth. An embedding starts at 1, or at 1/√width if it is also the head. The usual 0.02 suits wider models:
    /// after 100 steps of the 3.3M path at a learning rate of 2e-3, perplexity was 345 with these values and 409 with
    /// 0.02 (one seed, a fifth of a test text).
    pub fn tensors(&self, part: Part) -> Vec<TensorSpec> {
        let narrow = self.starting(1.0 / (self.width.max(1) as f64).sqrt());
        let embedding = if self.tied_head { narrow } else { self.starting(1.0) };
        let mut list = TensorList::of(part, self.biases);
        match part {
            Part::Embedding => match self.images {
                Some(images) => self.patch_tensors(images, narrow, &mut list),
                None => {
                    list.add("tokens.weight", &[self.vocabulary, self.width], embedding);
                    if self.positions == Positions::Learned {
                        list.add("positions.weight", &[self.context, self.width], narrow);
                    }
                }
            },
            Part::Block(_) => self.module_tensors(ModuleKind::Transformer, &mut list),
            Part::Module(index) => {
                if let Some(dna) = &self.dna {
                    self.module_tensors(dna.modules.kind(index), &mut list);
                }
            }
            Part::Router(_) | Part::Directions(_) | Part::Balance => {
                if let Some(directional) = &self.directional {
                    directional.tensors(part, self.around(), &mut list);
                }
                if let Some(dna) = &self.dna {
                    dna.tensors(part, self.width, narrow, &mut list);
                }
            }
            Part::FinalNorm => list.norm("", self.width),
            Part::Head => list.add("weight", &[self.vocabulary, self.width], narrow),
        }
        list.done()
    }

    /// The tensors of a block, or of the half of it that a module has.
    fn module_tensors(&self, kind: ModuleKind, list: &mut TensorList) {
        let keeping = 1.0 / (self.width.max(1) as f64).sqrt();
        let (narrow, residual) =
            (self.starting(keeping), self.starting(keeping / (2.0 * self.depth().max(1) as f64).sqrt()));
        let inner = self.heads * self.head_width();
        if matches!(kind, ModuleKind::Transformer | ModuleKind::Attention) {
            list.norm("attention-norm", self.width);
            list.linear("attention.qkv", 3 * inner, self.width, narrow);
            list.linear("attention.out", self.width, inner, residual);
        }
        if matches!(kind, ModuleKind::Transformer | ModuleKind::Mlp) {
            list.norm("feed-forward-norm", self.width);
            list.linear("feed-forward.in", self.feed_forward(), self.width, narrow);
            list.linear("feed-forward.out", self.width, self.feed_forward(), residual);
        }
    }

    /// The initial distribution of a weight: this deviation, unless `initial_deviation` is set.
    pub(super) fn starting(&self, deviation: f64) -> Initial {
        self.initial_deviation.map_or(Initial::Normal(deviation), Initial::Truncated)
    }

    /// Number of parameters of a part.
    pub fn parameters(&self, part: Part) -> usize {
        self.tensors(part).iter().map(TensorSpec::count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> ModelConfig {
        ModelConfig {
            architecture: Architecture::Transformer,
            blocks: 2,
            width: 8,
            heads: 2,
            head_width: None,
            feed_forward: None,
            vocabulary: 300,
            context: 16,
            positions: Positions::Learned,
            tied_head: false,
            biases: true,
            activation: Activation::Gelu,
            initial_deviation: None,
            directional: None,
            dna: None,
            images: None,
        }
    }

    #[test]
    fn every_tensor_has_one_place() {
        let model = small();
        let names: Vec<String> =
            model.parts().into_iter().flat_map(|part| model.tensors(part)).map(|tensor| tensor.name).collect();
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len());
        assert!(names.contains(&"block.1.attention.qkv.bias".to_owned()));
        assert!(names.contains(&"final-norm.weight".to_owned()));
        assert_eq!(model.parameters(Part::Block(0)), 16 + (24 * 8 + 24) + (64 + 8) + 16 + (256 + 32) + (256 + 8));
    }

    #[test]
    fn a_tied_head_has_no_part() {
        let model = ModelConfig { tied_head: true, ..small() };
        assert_eq!(model.parts().len(), 4);
    }
}
