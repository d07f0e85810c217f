//! The network of a path: its sizes, its parts, and all of their tensors.
//!
//! The parts are `embedding`, `block.0` to `block.N-1`, `final-norm` and, unless the head is tied to the embedding,
//! `head`. [Directional](crate::config::model::directional) attention adds `router.0`, `directions.0` and so on. A
//! [DNA](crate::config::model::dna) model adds `router.0`, `module.0` and so on, and `balance`;
//! [adapters](crate::config::model::adapter) add `adapter.0` and so on. Only this module knows the tensors of a part and
//! their order in the flat buffer of a module.

pub mod adapter;
pub mod blocks;
pub mod directional;
pub mod dna;
pub mod images;
pub mod levels;
pub mod parts;
pub mod rotary;
mod tensors;

use serde::{Deserialize, Serialize};

use crate::config::key_error::{KeyError, require, within};
use crate::config::model::adapter::AdapterConfig;
use crate::config::model::blocks::{Activation, Biases, NormKind, NormPlacement, Positions, QkNorm, norm_epsilon};
use crate::config::model::directional::{Around, DirectionalConfig, Pooling};
use crate::config::model::dna::DnaConfig;
use crate::config::model::images::ImagesConfig;
use crate::config::model::parts::Part;
use crate::config::model::rotary::RotaryConfig;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// Every token goes through every block.
    #[default]
    Transformer,
    /// After the blocks, each token chooses modules of a pool.
    Dna,
}

/// `[model]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    #[serde(default)]
    pub architecture: Architecture,
    /// Transformer blocks that every token goes through.
    pub blocks: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Attention heads; each has `width / heads` dimensions unless `head_width` says otherwise.
    pub heads: usize,
    /// Dimensions of a head, if not `width / heads`.
    pub head_width: Option<usize>,
    /// Hidden width of the feed-forward part; four times `width` if absent.
    pub feed_forward: Option<usize>,
    pub vocabulary: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    #[serde(default)]
    pub positions: Positions,
    /// How queries and keys are rotated, if not as in RoFormer.
    pub rotary: Option<RotaryConfig>,
    /// Whether the head uses the transposed embedding.
    #[serde(default)]
    pub tied_head: bool,
    /// Which linear layers and norms have biases.
    #[serde(default)]
    pub biases: Biases,
    #[serde(default)]
    pub activation: Activation,
    /// Whether the hidden values of the feed-forward part are multiplied by a second linear layer of its input.
    #[serde(default)]
    pub gated: bool,
    #[serde(default)]
    pub norm: NormKind,
    /// ε of norms.
    #[serde(default = "norm_epsilon")]
    pub norm_epsilon: f64,
    #[serde(default)]
    pub norm_placement: NormPlacement,
    /// Heads of keys and values, each for as many heads of queries; `heads` if absent.
    pub kv_heads: Option<usize>,
    pub qk_norm: Option<QkNorm>,
    /// Whether attention and feed-forward of a block read the same stream.
    #[serde(default)]
    pub parallel_residual: bool,
    /// Standard deviation of all initial weights, truncated at twice its value. Without it, each tensor has its own.
    pub initial_deviation: Option<f64>,
    /// Low-rank adapters, which are trained instead of the blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterConfig>,
    pub directional: Option<DirectionalConfig>,
    pub dna: Option<DnaConfig>,
    pub images: Option<ImagesConfig>,
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
            adapter: None,
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
        parts.extend(self.adapter.iter().flat_map(|_| (0..self.blocks).map(Part::Adapter)));
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

    /// Tokens at the beginning of each sequence that are not scored: all but the class of an image.
    pub fn unscored_tokens(&self) -> usize {
        if self.reads_images() { self.context } else { 0 }
    }

    /// Whether the network's output at a position depends on later tokens.
    pub fn looks_ahead(&self) -> bool {
        self.directional.as_ref().is_some_and(|directional| directional.pooling == Pooling::Sequence)
    }

    fn around(&self) -> Around {
        Around { width: self.width, heads: self.heads, head_width: self.head_width() }
    }

    pub fn check(&self) -> Result<(), KeyError> {
        within("model.blocks", self.blocks, usize::from(self.dna.is_none())..=1024)?;
        within("model.width", self.width, 1..=1 << 16)?;
        within("model.heads", self.heads, 1..=1024)?;
        within("model.feed_forward", self.feed_forward(), 1..=1 << 18)?;
        within("model.vocabulary", self.vocabulary, if self.reads_images() { 2..=1 << 16 } else { 258..=1 << 20 })?;
        within("model.context", self.context, 8..=1 << 20)?;
        let divides = self.head_width.is_some() || self.width.is_multiple_of(self.heads);
        let expected = format!("must divide model.width = {}, unless model.head_width is given", self.width);
        require(divides, "model.heads", self.heads, expected)?;
        within("model.head_width", self.head_width(), 1..=1 << 14)?;
        self.check_attention()?;
        let epsilon = self.norm_epsilon;
        require(epsilon > 0.0 && epsilon <= 0.1, "model.norm_epsilon", epsilon, "above 0, at most 0.1")?;
        // The routed part of attention's output would have to go through the norm with the rest of it.
        let excluded = self.parallel_residual || self.directional.is_some();
        let expected = "must be \"before\" where parallel_residual or [model.directional] is set";
        let fits = self.norm_placement == NormPlacement::Before || !excluded;
        require(fits, "model.norm_placement", "\"after\"", expected)?;
        let deviation = self.initial_deviation.unwrap_or(1.0);
        require(deviation > 0.0 && deviation <= 10.0, "model.initial_deviation", deviation, "above 0, at most 10")?;
        if let Some(directional) = &self.directional {
            directional.check(self.around())?;
        }
        if let Some(adapter) = &self.adapter {
            adapter.check(self)?;
        }
        self.check_dna()?;
        self.check_images()
    }

    fn check_attention(&self) -> Result<(), KeyError> {
        let (heads, kv_heads, head_width) = (self.heads, self.kv_heads(), self.head_width());
        let expected = format!("must divide model.heads = {heads}: each serves as many heads of queries");
        let divides = (1..=heads).contains(&kv_heads) && heads.is_multiple_of(kv_heads);
        require(divides, "model.kv_heads", kv_heads, expected)?;
        match (&self.rotary, self.positions) {
            (None, Positions::Rotary) => {
                let is_even = head_width.is_multiple_of(2);
                require(is_even, "model.head_width", head_width, "must be even for rotary positions")
            }
            (Some(rotary), Positions::Rotary) => rotary.check(head_width, self.context),
            (Some(_), Positions::Learned) => {
                require(false, "model.positions", "\"learned\"", "must be \"rotary\" where [model.rotary] is set")
            }
            (None, Positions::Learned) => Ok(()),
        }
    }

    fn check_dna(&self) -> Result<(), KeyError> {
        let is_dna = self.architecture == Architecture::Dna;
        let (found, expected) = match self.architecture {
            Architecture::Dna => ("\"dna\"", "needs the table [model.dna]: add it, or leave architecture out"),
            Architecture::Transformer => {
                ("\"transformer\"", "must be \"dna\" where the table [model.dna] is set: set it, or remove the table")
            }
        };
        require(is_dna == self.dna.is_some(), "model.architecture", found, expected)?;
        let Some(dna) = &self.dna else { return Ok(()) };
        let excludes = "excludes [model.dna]; remove one";
        require(self.directional.is_none(), "model.directional", "{ … }", excludes)?;
        dna.check()
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
            (error.key.clone(), error.to_string())
        };
        let rotary = |rotary| ModelConfig { rotary, positions: Positions::Rotary, ..small() };
        let all = [
            (ModelConfig { kv_heads: Some(3), ..small() }, "model.kv_heads"),
            (ModelConfig { kv_heads: Some(0), ..small() }, "model.kv_heads"),
            (ModelConfig { norm_epsilon: 0.0, ..small() }, "model.norm_epsilon"),
            (ModelConfig { rotary: Some(RotaryConfig::default()), ..small() }, "model.positions"),
            (rotary(Some(RotaryConfig { share: 0.3, ..RotaryConfig::default() })), "model.rotary.share"),
            (
                ModelConfig { parallel_residual: true, norm_placement: NormPlacement::After, ..small() },
                "model.norm_placement",
            ),
        ];
        for (model, expected) in all {
            let (key, message) = refused(model);
            assert_eq!(key, expected, "{message}");
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_model_is_written_with_its_defaults_and_read_again() {
        let written = serde_json::to_string(&small()).unwrap();
        assert!(written.contains("\"norm\":\"layer\"") && written.contains("\"parallel_residual\":false"), "{written}");
        assert_eq!(serde_json::from_str::<ModelConfig>(&written).unwrap(), small());
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
