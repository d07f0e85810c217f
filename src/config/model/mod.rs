//! The network of a path: its sizes, its parts, and every tensor in them.
//!
//! The parts of a model are `embedding`, `block.0` to `block.N-1`, `final-norm` and, unless the head is tied to the
//! embedding, `head`; if its attention is [directional](crate::config::model::directional), also `router.0` and `directions.0` and so on; if
//! tokens choose their way through a [pool](crate::config::model::dna), also `router.0`, `module.0` and so on, and `balance`. This list is the
//! one place that knows which tensors a part has and in which order they lie in a module's flat buffer.

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

/// How a model knows positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// A learned vector for each position.
    Learned,
    /// Queries and keys are rotated (RoFormer); no parameters.
    Rotary,
}

/// What a feed-forward part does between its two linear layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// GELU, exact.
    #[default]
    Gelu,
    /// GELU by tanh, as GPT-2 has it.
    GeluTanh,
}

impl Activation {
    fn is_gelu(&self) -> bool {
        *self == Self::Gelu
    }
}

/// How blocks follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// Every token goes through every block.
    #[default]
    Transformer,
    /// After the blocks, each token chooses its way through a pool of modules.
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
    /// How blocks follow each other.
    #[serde(default, skip_serializing_if = "Architecture::is_transformer")]
    pub architecture: Architecture,
    /// Transformer blocks that every token goes through.
    pub blocks: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Attention heads; each has `width / heads` dimensions unless `head_width` says otherwise.
    pub heads: usize,
    /// Dimensions of a head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_width: Option<usize>,
    /// Hidden width of the feed-forward part; four times `width` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_forward: Option<usize>,
    /// Entries of the tokenizer.
    pub vocabulary: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Learned or rotary.
    #[serde(default = "rotary")]
    pub positions: Positions,
    /// Whether the head is the embedding, transposed.
    #[serde(default)]
    pub tied_head: bool,
    /// Whether linear layers and norms have biases.
    #[serde(default)]
    pub biases: bool,
    /// Exact GELU, or GPT-2's.
    #[serde(default, skip_serializing_if = "Activation::is_gelu")]
    pub activation: Activation,
    /// All weights begin normal with this standard deviation, cut at twice of it; where absent, each as its inputs ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_deviation: Option<f64>,
    /// Directions of attention heads that a router suppresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directional: Option<DirectionalConfig>,
    /// The pool of modules, and how tokens choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dna: Option<DnaConfig>,
    /// It reads images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<ImagesConfig>,
}

fn rotary() -> Positions {
    Positions::Rotary
}

/// Why a model's sizes do not fit each other.
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
    /// Dimensions of a head.
    pub fn head_width(&self) -> usize {
        self.head_width.unwrap_or(self.width / self.heads.max(1))
    }

    /// Hidden width of the feed-forward part.
    pub fn feed_forward(&self) -> usize {
        self.feed_forward.unwrap_or(4 * self.width)
    }

    /// All parts, in the order in which data flows through them.
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

    /// A block, with its router and directions if it has any.
    pub(super) fn layer(&self, index: usize) -> Vec<Part> {
        match self.directional {
            None => vec![Part::Block(index)],
            Some(_) => vec![Part::Block(index), Part::Router(index), Part::Directions(index)],
        }
    }

    /// Tokens at the beginning of each sequence that must not be scored, since the network has seen them before.
    pub fn unscored_tokens(&self) -> usize {
        if self.reads_images() {
            return self.context;
        }
        self.directional.as_ref().map_or(0, DirectionalConfig::unscored_tokens)
    }

    /// Whether what is made of a token depends on those after it.
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

    /// Blocks that a token goes through, one after the other.
    fn depth(&self) -> usize {
        self.blocks + self.dna.as_ref().map_or(0, |dna| dna.steps)
    }

    /// The tensors of a part, in the order in which they lie in a flat buffer.
    ///
    /// Linear weights are `[out, in]` and start at 1/√width, so that each keeps the size of what it is given. Those that
    /// write into the residual stream start smaller by √(2·blocks), as in GPT-2, so that the stream's variance does not
    /// grow with depth. An embedding starts at 1, unless it is the head as well. Beside 0.02 for
    /// all, which suits wider models: 345 (1 and 0.06) against 409 perplexity after 100 steps of the 3.3M path at the same
    /// learning rate of 2e-3, one seed, on a fifth of a test text.
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

    /// The tensors of a block, or of as much of one as a module has.
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

    /// How a weight starts that is to start with this deviation, unless all are to start with another.
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
