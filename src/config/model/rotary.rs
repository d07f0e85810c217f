//! `[model.rotary]`: how fast queries and keys are rotated, and how that is scaled for longer contexts.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use crate::config::key_error::{KeyError, require, within};
use crate::config::yes;

/// `[model.rotary]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RotaryConfig {
    /// θ: the angle of pair `i` at position 1 is `θ^(-2i / rotated dimensions)`.
    pub base: f64,
    /// Share of each head that is rotated.
    pub share: f64,
    pub scaling: Option<RotaryScaling>,
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self { base: 10_000.0, share: 1.0, scaling: None }
    }
}

/// A change of the angles by which a model was made to read longer contexts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum RotaryScaling {
    /// All angles divided by `factor`.
    Linear { factor: f64 },
    /// NTK-aware scaling that grows with the sequence (dynamic NTK). Up to `original_context` tokens nothing is scaled.
    Dynamic { factor: f64, original_context: usize },
    /// Llama 3.1: slow angles are divided by `factor`, fast ones are kept, those between are interpolated.
    Llama3 { factor: f64, low_frequency_factor: f64, high_frequency_factor: f64, original_context: usize },
    /// YaRN (2309.00071): as Llama 3.1 with a ramp over pairs, and a factor for queries and keys.
    Yarn {
        factor: f64,
        original_context: usize,
        #[serde(default = "beta_fast")]
        beta_fast: f64,
        #[serde(default = "beta_slow")]
        beta_slow: f64,
        /// Factor of rotated queries and of rotated keys.
        attention_factor: f64,
        /// Whether the ends of the ramp are whole pairs.
        #[serde(default = "yes")]
        truncate: bool,
    },
}

fn beta_fast() -> f64 {
    32.0
}

fn beta_slow() -> f64 {
    1.0
}

impl RotaryScaling {
    fn check(&self, context: usize) -> Result<(), KeyError> {
        let (Self::Linear { factor }
        | Self::Dynamic { factor, .. }
        | Self::Llama3 { factor, .. }
        | Self::Yarn { factor, .. }) = *self;
        within("model.rotary.scaling.factor", factor, 1.0..=1e6)?;
        let (Self::Dynamic { original_context, .. }
        | Self::Llama3 { original_context, .. }
        | Self::Yarn { original_context, .. }) = *self
        else {
            return Ok(());
        };
        within("model.rotary.scaling.original_context", original_context, 1..=1 << 30)?;
        let finite = |holds, key: &str, found: f64, expected| {
            require(holds && found.is_finite(), &format!("model.rotary.scaling.{key}"), found, expected)
        };
        match *self {
            Self::Linear { .. } => Ok(()),
            Self::Dynamic { .. } => {
                let expected = format!(
                    "with dynamic scaling at most model.rotary.scaling.original_context = {original_context}, since \
                     beyond it the angles of a token would depend on the length of its whole sequence"
                );
                require(context <= original_context, "model.context", context, expected)
            }
            Self::Llama3 { low_frequency_factor: low, high_frequency_factor: high, .. } => {
                finite(low > 0.0, "low_frequency_factor", low, "above 0")?;
                finite(high > low, "high_frequency_factor", high, "above low_frequency_factor")
            }
            Self::Yarn { beta_fast, beta_slow, attention_factor, .. } => {
                finite(beta_slow > 0.0, "beta_slow", beta_slow, "above 0")?;
                finite(beta_fast >= beta_slow, "beta_fast", beta_fast, "at least beta_slow")?;
                let fits = attention_factor > 0.0 && attention_factor <= 100.0;
                finite(fits, "attention_factor", attention_factor, "above 0, at most 100")
            }
        }
    }
}

impl RotaryConfig {
    /// Rotated dimensions of a head.
    pub fn width(&self, head_width: usize) -> usize {
        (head_width as f64 * self.share) as usize
    }

    pub(super) fn check(&self, head_width: usize, context: usize) -> Result<(), KeyError> {
        require(self.base > 1.0 && self.base <= 1e12, "model.rotary.base", self.base, "above 1, at most 1e12")?;
        let rotated = self.width(head_width);
        let fits = self.share > 0.0 && self.share <= 1.0 && rotated >= 2 && rotated.is_multiple_of(2);
        let expected = format!(
            "above 0, at most 1; it rotates {rotated} of the {head_width} dimensions of a head, which must be an even \
             number from 2"
        );
        require(fits, "model.rotary.share", self.share, expected)?;
        self.scaling.as_ref().map_or(Ok(()), |scaling| scaling.check(context))
    }

    /// Angle per position of each pair, and the factor of queries and keys.
    pub fn frequencies(&self, head_width: usize) -> (Vec<f64>, f64) {
        let width = self.width(head_width);
        let plain = |pair: usize| self.base.powf(-2.0 * pair as f64 / width as f64);
        let of = |change: &dyn Fn(usize, f64) -> f64| (0..width / 2).map(|pair| change(pair, plain(pair))).collect();
        match self.scaling {
            None | Some(RotaryScaling::Dynamic { .. }) => (of(&|_, angle| angle), 1.0),
            Some(RotaryScaling::Linear { factor }) => (of(&|_, angle| angle / factor), 1.0),
            Some(RotaryScaling::Llama3 {
                factor,
                low_frequency_factor: low,
                high_frequency_factor: high,
                original_context,
            }) => {
                let scaled = |_: usize, angle: f64| {
                    let turns = original_context as f64 * angle / TAU;
                    let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - kept) * angle / factor + kept * angle
                };
                (of(&scaled), 1.0)
            }
            Some(RotaryScaling::Yarn {
                factor,
                original_context,
                beta_fast,
                beta_slow,
                attention_factor,
                truncate,
            }) => {
                // The pair that turns so many times within the original context.
                let pair_of =
                    |turns: f64| width as f64 * (original_context as f64 / (turns * TAU)).ln() / (2.0 * self.base.ln());
                let (mut first, mut last) = (pair_of(beta_fast), pair_of(beta_slow));
                if truncate {
                    (first, last) = (first.floor(), last.ceil());
                }
                let (first, last) = (first.max(0.0), last.min(width as f64 - 1.0));
                let last = if first == last { last + 0.001 } else { last };
                let scaled = |pair: usize, angle: f64| {
                    let kept = 1.0 - ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
                    (1.0 - kept) * angle / factor + kept * angle
                };
                (of(&scaled), attention_factor)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RotaryConfig, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_is_written_as_it_was_read() {
        for text in [
            "base = 500000.0\n",
            "base = 10000.0\nshare = 0.25\n",
            "base = 1e4\nscaling = { type = \"linear\", factor = 2.0 }",
            "scaling = { type = \"dynamic\", factor = 2.0, original_context = 64 }",
            "scaling = { type = \"llama3\", factor = 8.0, low_frequency_factor = 1.0, high_frequency_factor = 4.0, \
             original_context = 64 }",
            "scaling = { type = \"yarn\", factor = 4.0, original_context = 64, attention_factor = 1.1 }",
        ] {
            let rotary = read(text).unwrap();
            assert_eq!(rotary.check(8, 64), Ok(()), "{text}");
            assert_eq!(read(&toml::to_string(&rotary).unwrap()).unwrap(), rotary);
        }
        assert!(read("scaling = { type = \"longrope\" }").unwrap_err().contains("longrope"));
        assert!(read("scaling = { type = \"linear\", factor = 2.0, original = 2 }").is_err());
        assert!(read("theta = 1.0").unwrap_err().contains("theta"));
    }

    #[test]
    fn what_cannot_be_computed_is_refused_in_words() {
        let refused = |text: &str| read(text).unwrap().check(8, 64).unwrap_err().to_string();
        assert!(refused("base = 1.0").starts_with("model.rotary.base = 1"));
        assert!(refused("share = 0.4").contains("rotates 3 of the 8 dimensions"));
        assert!(
            refused("scaling = { type = \"linear\", factor = 0.5 }").starts_with("model.rotary.scaling.factor = 0.5")
        );
        let dynamic = refused("scaling = { type = \"dynamic\", factor = 2.0, original_context = 32 }");
        assert!(dynamic.starts_with("model.context = 64") && dynamic.contains("original_context = 32"), "{dynamic}");
        let yarn = "scaling = { type = \"yarn\", factor = 4.0, original_context = 64, attention_factor = 0.0 }";
        assert!(refused(yarn).starts_with("model.rotary.scaling.attention_factor = 0"));
    }
}
