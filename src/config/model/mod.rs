//! The network of a path: its sizes, its parts, and all of their tensors.
//!
//! The parts are `embedding`, `block.0` to `block.N-1`, `final-norm` and, unless the head is tied to the embedding,
//! `head`. [Directional](crate::config::model::directional) attention adds `router.0`, `directions.0` and so on. A
//! [DNA](crate::config::model::dna) model adds `router.0`, `module.0` and so on, and `balance`. Only this module knows
//! the tensors of a part and their order in the flat buffer of a module.

pub mod blocks;
pub mod directional;
pub mod dna;
pub mod images;
pub mod levels;
pub mod parts;
pub mod rotary;
mod tensors;

use serde::{Deserialize, Serialize};

use crate::config::model::blocks::{
    Activation, Biases, NormKind, NormPlacement, Positions, QkNorm, is_default, is_usual_epsilon, norm_epsilon,
};
use crate::config::model::directional::{Around, DirectionalConfig, DirectionalError, Pooling};
use crate::config::model::dna::{DnaConfig, DnaError};
use crate::config::model::images::{ImagesConfig, ImagesError};
use crate::config::model::parts::Part;
use crate::config::model::rotary::{RotaryConfig, RotaryError};

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
    #[serde(default)]
    pub positions: Positions,
    /// How queries and keys are rotated, if not as in RoFormer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary: Option<RotaryConfig>,
    /// Whether the head uses the transposed embedding.
    #[serde(default)]
    pub tied_head: bool,
    /// Which linear layers and norms have biases.
    #[serde(default)]
    pub biases: Biases,
    #[serde(default, skip_serializing_if = "is_default")]
    pub activation: Activation,
    /// Whether the hidden values of the feed-forward part are multiplied by a second linear layer of its input.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gated: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub norm: NormKind,
    /// ε of norms.
    #[serde(default = "norm_epsilon", skip_serializing_if = "is_usual_epsilon")]
    pub norm_epsilon: f64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub norm_placement: NormPlacement,
    /// Heads of keys and values, each for as many heads of queries; `heads` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qk_norm: Option<QkNorm>,
    /// Whether attention and feed-forward of a block read the same stream.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parallel_residual: bool,
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
    #[error("kv_heads = {kv_heads} does not divide heads = {heads}: each serves as many heads of queries; change one")]
    KvHeads { kv_heads: usize, heads: usize },
    #[error("norm_epsilon = {0}: must be above 0, at most 0.1")]
    NormEpsilon(f64),
    #[error("norm_placement = \"after\" and {0} exclude each other; remove one")]
    NormsAfter(&'static str),
    #[error(transparent)]
    Rotary(#[from] RotaryError),
    #[error(transparent)]
    Directional(#[from] DirectionalError),
    #[error(transparent)]
    Dna(#[from] DnaError),
    #[error(transparent)]
    Images(#[from] ImagesError),
}

impl ModelError {
    /// The key of `[model]` to which the error belongs.
    pub fn key(&self) -> String {
        match self {
            Self::Size { key, .. } => (*key).to_owned(),
            Self::Heads { .. } | Self::OddHead(_) => "heads".to_owned(),
            Self::InitialDeviation(_) => "initial_deviation".to_owned(),
            Self::KvHeads { .. } => "kv_heads".to_owned(),
            Self::NormEpsilon(_) => "norm_epsilon".to_owned(),
            Self::NormsAfter(_) => "norm_placement".to_owned(),
            Self::Rotary(error) => error.key().to_owned(),
            Self::Directional(error) => format!("directional.{}", error.key()),
            Self::Dna(error) => error.key().to_owned(),
            Self::Images(error) => error.key().to_owned(),
        }
    }
}

impl ModelConfig {
    /// A transformer of these sizes for text, with the default of every other setting.
    pub fn of([blocks, width, heads]: [usize; 3], vocabulary: usize, context: usize) -> Self {
        Self {
            architecture: Architecture::Transformer,
            blocks,
            width,
            heads,
            head_width: None,
            feed_forward: None,
            vocabulary,
            context,
            positions: Positions::Rotary,
            rotary: None,
            tied_head: false,
            biases: Biases::None,
            activation: Activation::Gelu,
            gated: false,
            norm: NormKind::Layer,
            norm_epsilon: norm_epsilon(),
            norm_placement: NormPlacement::Before,
            kv_heads: None,
            qk_norm: None,
            parallel_residual: false,
            initial_deviation: None,
            directional: None,
            dna: None,
            images: None,
        }
    }

    pub fn head_width(&self) -> usize {
        self.head_width.unwrap_or(self.width / self.heads.max(1))
    }

    /// Heads of keys and of values.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// Angles of rotary positions; those of RoFormer if the configuration has none.
    pub fn rotary(&self) -> RotaryConfig {
        self.rotary.clone().unwrap_or_default()
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
        self.check_attention()?;
        if !(self.norm_epsilon > 0.0 && self.norm_epsilon <= 0.1) {
            return Err(ModelError::NormEpsilon(self.norm_epsilon));
        }
        if self.norm_placement == NormPlacement::After {
            // The routed part of attention's output would have to go through the norm with the rest of it.
            let excluded =
                [("parallel_residual", self.parallel_residual), ("[model.directional]", self.directional.is_some())];
            if let Some((what, _)) = excluded.iter().find(|(_, is_set)| *is_set) {
                return Err(ModelError::NormsAfter(what));
            }
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

    fn check_attention(&self) -> Result<(), ModelError> {
        let (heads, kv_heads) = (self.heads, self.kv_heads());
        if !(1..=heads).contains(&kv_heads) || !heads.is_multiple_of(kv_heads) {
            return Err(ModelError::KvHeads { kv_heads, heads });
        }
        match (&self.rotary, self.positions) {
            (None, Positions::Rotary) if !self.head_width().is_multiple_of(2) => {
                Err(ModelError::OddHead(self.head_width()))
            }
            (Some(rotary), Positions::Rotary) => Ok(rotary.check(self.head_width(), self.context)?),
            (Some(_), Positions::Learned) => Err(RotaryError::Learned.into()),
            (None, _) => Ok(()),
        }
    }

    fn check_dna(&self) -> Result<(), DnaError> {
        match (&self.dna, self.architecture) {
            (None, Architecture::Transformer) => Ok(()),
            (Some(_), Architecture::Dna) if self.directional.is_some() => Err(DnaError::Directional),
            (Some(dna), Architecture::Dna) => dna.check(),
            _ => Err(DnaError::HalfSaid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> ModelConfig {
        ModelConfig { positions: Positions::Learned, biases: Biases::All, ..ModelConfig::of([2, 8, 2], 300, 16) }
    }

    #[test]
    fn blocks_that_cannot_be_are_refused_with_their_key() {
        let refused = |model: ModelConfig| {
            let error = model.check().unwrap_err();
            (error.key(), error.to_string())
        };
        let rotary = |rotary| ModelConfig { rotary, positions: Positions::Rotary, ..small() };
        let all = [
            (ModelConfig { kv_heads: Some(3), ..small() }, "kv_heads"),
            (ModelConfig { kv_heads: Some(0), ..small() }, "kv_heads"),
            (ModelConfig { norm_epsilon: 0.0, ..small() }, "norm_epsilon"),
            (ModelConfig { rotary: Some(RotaryConfig::default()), ..small() }, "rotary"),
            (rotary(Some(RotaryConfig { share: 0.3, ..RotaryConfig::default() })), "rotary.share"),
            (
                ModelConfig { parallel_residual: true, norm_placement: NormPlacement::After, ..small() },
                "norm_placement",
            ),
        ];
        for (model, expected) in all {
            let (key, message) = refused(model);
            assert_eq!(key, expected, "{message}");
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn settings_that_are_usual_are_written_as_before() {
        let written = serde_json::to_string(&small()).unwrap();
        assert_eq!(
            written,
            "{\"blocks\":2,\"width\":8,\"heads\":2,\"vocabulary\":300,\"context\":16,\"positions\":\"learned\",\
             \"tied_head\":false,\"biases\":true}"
        );
        let modern = ModelConfig {
            kv_heads: Some(1),
            qk_norm: Some(QkNorm::Whole),
            norm: NormKind::Rms,
            norm_placement: NormPlacement::After,
            activation: Activation::Silu,
            gated: true,
            biases: Biases::Qkv,
            ..small()
        };
        assert_eq!(toml::from_str::<ModelConfig>(&toml::to_string(&modern).unwrap()).unwrap(), modern);
    }

    #[test]
    fn a_tied_head_has_no_part() {
        let model = ModelConfig { tied_head: true, ..small() };
        assert_eq!(model.parts().len(), 4);
    }
}
