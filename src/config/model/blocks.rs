//! What the blocks of a network are made of: norms, biases, activations, and how attention is normalised.
//!
//! The defaults are those of GPT-2 and GPT-NeoX. Llama, Mistral, Qwen and OLMo 2 differ in these keys alone.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Position encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// A learned vector for each position.
    Learned,
    /// Rotated queries and keys (RoFormer), without parameters.
    #[default]
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
    /// `x · sigmoid(x)`; with a gate it is SwiGLU.
    Silu,
}

/// The norms of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// Layer normalisation.
    #[default]
    Layer,
    /// Division by the root mean square, without a bias (RMSNorm).
    Rms,
}

/// Where the norms of a block are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// Before attention and before feed-forward.
    #[default]
    Before,
    /// After each of them, before the sum (OLMo 2).
    After,
}

/// An RMSNorm of queries and keys, before they are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QkNorm {
    /// Of each head, with one weight for all heads (Qwen 3).
    Head,
    /// Of all heads at once (OLMo 2).
    Whole,
}

/// Which layers have biases. In a configuration `false`, `true`, `"qkv"` or `"attention"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Biases {
    #[default]
    None,
    /// All linear layers but the head, and layer norms.
    All,
    /// Queries, keys and values (Qwen 2).
    Qkv,
    /// Queries, keys, values and the output of attention.
    Attention,
}

impl Biases {
    /// Whether queries, keys and values have biases.
    pub fn of_qkv(self) -> bool {
        self != Self::None
    }

    /// Whether the output of attention has a bias.
    pub fn of_output(self) -> bool {
        matches!(self, Self::All | Self::Attention)
    }

    /// Whether feed-forward layers, patch embeddings and layer norms have biases.
    pub fn elsewhere(self) -> bool {
        self == Self::All
    }
}

impl Serialize for Biases {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_bool(false),
            Self::All => serializer.serialize_bool(true),
            Self::Qkv => serializer.serialize_str("qkv"),
            Self::Attention => serializer.serialize_str("attention"),
        }
    }
}

impl<'de> Deserialize<'de> for Biases {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reading;
        impl Visitor<'_> for Reading {
            type Value = Biases;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("false, true, \"qkv\" or \"attention\"")
            }

            fn visit_bool<E: Error>(self, all: bool) -> Result<Biases, E> {
                Ok(if all { Biases::All } else { Biases::None })
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Biases, E> {
                match name {
                    "qkv" => Ok(Biases::Qkv),
                    "attention" => Ok(Biases::Attention),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(name), &self)),
                }
            }
        }
        deserializer.deserialize_any(Reading)
    }
}

/// The usual ε of norms.
pub(super) fn norm_epsilon() -> f64 {
    1e-5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_are_written_as_they_were_and_by_name() {
        for (biases, text) in [
            (Biases::None, "false"),
            (Biases::All, "true"),
            (Biases::Qkv, "\"qkv\""),
            (Biases::Attention, "\"attention\""),
        ] {
            assert_eq!(serde_json::to_string(&biases).unwrap(), text);
            assert_eq!(serde_json::from_str::<Biases>(text).unwrap(), biases);
        }
        let error = serde_json::from_str::<Biases>("\"all\"").unwrap_err().to_string();
        assert!(error.contains("false, true, \"qkv\" or \"attention\""), "{error}");
    }
}
