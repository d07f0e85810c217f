//! Directional routing: each attention head may have directions of its output taken away, more or less, as a small network
//! that looks at the text says.
//!
//! The paper gives the router's total and not its layers. Of 12 layers, 12 heads of 128, width 1536 and 4 directions they
//! are 16,079,424 parameters (table 7), which a norm with weight and bias, and four linear layers with biases and a third of
//! the width between them, have exactly.

use serde::{Deserialize, Serialize};

use crate::config::model::parts::{Initial, Part, TensorList};

/// What a layer's router looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// At each position, the mean of what has been read up to it.
    #[default]
    Prefix,
    /// The mean over the whole sequence, as in the paper: a position's routing has seen what it is to predict.
    Sequence,
    /// Each position's own vector.
    Token,
    /// The mean over the sequence's first tokens, whose own loss does not count.
    Context,
}

/// `[model.directional]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionalConfig {
    /// Directions of each head.
    pub directions: usize,
    /// What a router looks at.
    #[serde(default)]
    pub pooling: Pooling,
    /// With `pooling = "context"`, how many tokens.
    #[serde(default = "context_tokens")]
    pub context_tokens: usize,
    /// Linear layers of a router.
    #[serde(default = "router_layers")]
    pub router_layers: usize,
    /// Width between them; a third of the model's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_width: Option<usize>,
    /// What a router says is multiplied by it before the sigmoid.
    #[serde(default = "temperature")]
    pub temperature: f64,
}

fn context_tokens() -> usize {
    32
}

fn router_layers() -> usize {
    4
}

fn temperature() -> f64 {
    5.0
}

/// What a router says begins near nothing, so that every direction begins half suppressed.
const LAST_LAYER: f64 = 0.02;

/// Why directions do not fit a model.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum DirectionalError {
    #[error("directional.{key} = {found}: must be {least} to {most}")]
    Size { key: &'static str, found: usize, least: usize, most: usize },
    #[error("directional.temperature = {0}: must be above 0, and finite")]
    Temperature(f64),
}

impl DirectionalError {
    /// The key of `[model.directional]`.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Size { key, .. } => key,
            Self::Temperature(_) => "temperature",
        }
    }
}

/// The sizes of the model around it.
#[derive(Clone, Copy)]
pub(in crate::config) struct Around {
    pub width: usize,
    pub heads: usize,
    pub head_width: usize,
    pub context: usize,
}

impl DirectionalConfig {
    /// The paper's router and pooling over the prefix.
    pub fn of(directions: usize) -> Self {
        Self {
            directions,
            pooling: Pooling::default(),
            context_tokens: context_tokens(),
            router_layers: router_layers(),
            router_width: None,
            temperature: temperature(),
        }
    }

    /// Tokens at the beginning of each sequence whose routing has seen them and those after them: none is scored.
    pub fn unscored_tokens(&self) -> usize {
        if self.pooling == Pooling::Context { self.context_tokens } else { 0 }
    }

    /// Whether what comes after so many tokens may change what is made of them, so that they must be read again.
    pub fn reads_again(&self, tokens: usize) -> bool {
        match self.pooling {
            Pooling::Sequence => true,
            Pooling::Context => tokens < self.context_tokens,
            Pooling::Prefix | Pooling::Token => false,
        }
    }

    pub(in crate::config) fn check(&self, around: Around) -> Result<(), DirectionalError> {
        let in_range = |key, found, least, most| {
            if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(DirectionalError::Size { key, found, least, most })
            }
        };
        in_range("directions", self.directions, 1, around.head_width)?;
        in_range("router_layers", self.router_layers, 1, 16)?;
        in_range("router_width", self.hidden(around.width), 1, 1 << 16)?;
        if self.pooling == Pooling::Context {
            in_range("context_tokens", self.context_tokens, 1, around.context - 1)?;
        }
        if !(self.temperature.is_finite() && self.temperature > 0.0) {
            return Err(DirectionalError::Temperature(self.temperature));
        }
        Ok(())
    }

    fn hidden(&self, width: usize) -> usize {
        self.router_width.unwrap_or(width.div_ceil(3))
    }

    /// The tensors of a layer's router or directions, in the order in which they lie in a flat buffer.
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
                    let initial = if last { Initial::Normal(LAST_LAYER) } else { keeping(inputs) };
                    list.add(&format!("linear.{layer}.weight"), &[wide, inputs], initial);
                    list.add(&format!("linear.{layer}.bias"), &[wide], Initial::Zeros);
                    inputs = wide;
                }
            }
            _ => {}
        }
    }
}
