//! Directional routing: a small network, the router, suppresses directions in the output of each attention head,
//! depending on the text.
//!
//! The paper gives only the total size of its routers. Table 7 has 16,079,424 parameters for 12 layers, 12 heads of
//! 128, width 1536 and 4 directions. A norm with weight and bias, followed by four linear layers with biases and hidden
//! width 512, has exactly as many.

use serde::{Deserialize, Serialize};

use crate::config::key_error::{KeyError, require, within};
use crate::config::model::parts::{Initial, Part, TensorList};
use crate::config::{is_default, is_yes, yes};

/// The input of a layer's router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// At each position, the mean over the prefix up to it.
    #[default]
    Prefix,
    /// The mean over the whole sequence, as in the paper. The routing of a position then depends on tokens that it
    /// predicts.
    Sequence,
    /// The vector of each position.
    Token,
}

/// What a router's pooled input is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouterReads {
    /// What attention reads: the residual stream after the block's norm.
    #[default]
    Normed,
    /// The residual stream itself, as in the paper (equation 1).
    Stream,
}

/// `[model.directional]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionalConfig {
    /// Directions of each head.
    pub directions: usize,
    #[serde(default)]
    pub pooling: Pooling,
    #[serde(default, skip_serializing_if = "is_default")]
    pub reads: RouterReads,
    /// Whether the last layer of a router starts near zero, so that every direction starts half suppressed. Otherwise it
    /// starts as the layers before it; the paper has no special initialisation.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub even_start: bool,
    /// Linear layers of a router.
    #[serde(default = "router_layers")]
    pub router_layers: usize,
    /// Hidden width of a router; a third of the model's width if absent.
    pub router_width: Option<usize>,
    /// Factor of the router's logits before the sigmoid.
    #[serde(default = "temperature")]
    pub temperature: f64,
}

fn router_layers() -> usize {
    4
}

fn temperature() -> f64 {
    5.0
}

/// Deviation of the last layer's weights with an even start.
const LAST_LAYER: f64 = 0.02;

/// Sizes of the surrounding model.
#[derive(Clone, Copy)]
pub(in crate::config) struct Around {
    pub width: usize,
    pub heads: usize,
    pub head_width: usize,
}

impl DirectionalConfig {
    /// The paper's router, with pooling over the prefix.
    pub fn of(directions: usize) -> Self {
        Self {
            directions,
            pooling: Pooling::default(),
            reads: RouterReads::default(),
            even_start: true,
            router_layers: router_layers(),
            router_width: None,
            temperature: temperature(),
        }
    }

    pub(in crate::config) fn check(&self, around: Around) -> Result<(), KeyError> {
        within("model.directional.directions", self.directions, 1..=around.head_width)?;
        within("model.directional.router_layers", self.router_layers, 1..=16)?;
        within("model.directional.router_width", self.hidden(around.width), 1..=1 << 16)?;
        let fits = self.temperature.is_finite() && self.temperature > 0.0;
        require(fits, "model.directional.temperature", self.temperature, "above 0, and finite")
    }

    fn hidden(&self, width: usize) -> usize {
        self.router_width.unwrap_or(width.div_ceil(3))
    }

    /// The tensors of a layer's router or directions, in the order of the flat buffer.
    pub(in crate::config) fn tensors(&self, part: Part, around: Around, list: &mut TensorList) {
        let outputs = around.heads * self.directions;
        let keeping = |inputs: usize| Initial::Normal(1.0 / (inputs.max(1) as f64).sqrt());
        match part {
            Part::Directions(_) => {
                list.add("weight", &[around.heads, self.directions, around.head_width], keeping(around.head_width));
            }
            Part::Router(_) => {
                list.add("norm.weight", &[around.width], Initial::Ones);
                list.add("norm.bias", &[around.width], Initial::Zeros);
                let mut inputs = around.width;
                for layer in 0..self.router_layers {
                    let last = layer + 1 == self.router_layers;
                    let wide = if last { outputs } else { self.hidden(around.width) };
                    let even = last && self.even_start;
                    let initial = if even { Initial::Normal(LAST_LAYER) } else { keeping(inputs) };
                    list.add(&format!("linear.{layer}.weight"), &[wide, inputs], initial);
                    list.add(&format!("linear.{layer}.bias"), &[wide], Initial::Zeros);
                    inputs = wide;
                }
            }
            _ => {}
        }
    }
}
