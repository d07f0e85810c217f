//! How outer gradients travel, are averaged and are applied: `[outer]`.

use serde::{Deserialize, Serialize};

/// How the average of outer gradients is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rescale {
    /// Times the square root of the distinct paths in the update (DiPaCo, section 2.3).
    SqrtPaths,
    /// As it is (DiLoCo).
    None,
    /// To the mean length of the outer gradients (radial-directional averaging): their mean gives the direction alone.
    Radial,
}

/// What the sum of outer gradients is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Divide {
    /// The weight of all contributions.
    #[default]
    All,
    /// For each value the weight of those contributions in which it is not zero.
    Senders,
}

impl Divide {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// How outer gradients and their averages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    /// 32 bits a value, exact.
    Fp32,
    /// 16 bits a value, IEEE's half precision.
    Fp16,
    /// 8 bits a value and a scale per group of 128.
    Int8,
    /// 4 bits a value and a scale per group of 128.
    Int4,
    /// 2 bits a value, which say its sign and whether it is large, and a scale per group of 128.
    Int2,
    /// What is not zero, at 4 bits.
    Sparse,
    /// The largest so many of each 4096 values, at 2 bits (SparseLoCo).
    TopK(u16),
}

/// When a module's owner makes an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OuterMode {
    /// When all its paths have contributed to the version, or at a deadline: a path waits for its modules.
    Synchronous,
    /// As contributions come, with delayed momentum; a slower path makes fewer inner steps in a phase, and none waits
    /// for another.
    Asynchronous,
}

/// `[outer]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct OuterConfig {
    /// Whether paths wait for each other.
    pub mode: OuterMode,
    /// Nesterov's learning rate.
    pub learning_rate: f32,
    /// Nesterov's momentum.
    pub momentum: f32,
    /// Scaling of the average.
    pub rescale: Rescale,
    /// Compression up.
    pub codec: Codec,
    /// Compression down, where it is not [what follows from the way up](Self::average_codec).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_codec: Option<Codec>,
    /// Whether what compression lost is added to the next outer gradient.
    pub error_feedback: bool,
    /// The part of what compression lost that is added (SparseLoCo's β), where it is not [what follows from the
    /// codec](Self::feedback).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual_decay: Option<f32>,
    /// What a sum is divided by.
    #[serde(skip_serializing_if = "Divide::is_all")]
    pub divide: Divide,
}

/// What a file says: a key that is left out follows from the codec.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    mode: Option<OuterMode>,
    learning_rate: Option<f32>,
    momentum: Option<f32>,
    rescale: Option<Rescale>,
    codec: Option<Codec>,
    average_codec: Option<Codec>,
    error_feedback: Option<bool>,
    residual_decay: Option<f32>,
    divide: Divide,
}

impl From<Written> for OuterConfig {
    fn from(written: Written) -> Self {
        let codec = written.codec.unwrap_or(Codec::Int4);
        // SparseLoCo: what is sent late would be old momentum, and what is kept back is momentum enough.
        let (learning_rate, momentum) = match codec {
            Codec::TopK(_) => (1.0, 0.0),
            _ => (0.7, 0.9),
        };
        Self {
            mode: written.mode.unwrap_or(OuterMode::Synchronous),
            learning_rate: written.learning_rate.unwrap_or(learning_rate),
            momentum: written.momentum.unwrap_or(momentum),
            rescale: written.rescale.unwrap_or(Rescale::SqrtPaths),
            codec,
            average_codec: written.average_codec,
            error_feedback: written.error_feedback.unwrap_or(true),
            residual_decay: written.residual_decay,
            divide: written.divide,
        }
    }
}

impl Default for OuterConfig {
    fn default() -> Self {
        Written::default().into()
    }
}

impl OuterConfig {
    /// How averages travel: as outer gradients do, but an average of some largest values is not cut to so many again, as
    /// nothing would ever bring what it lost.
    pub fn average_codec(&self) -> Codec {
        let follows = match self.codec {
            Codec::TopK(_) => Codec::Sparse,
            codec => codec,
        };
        self.average_codec.unwrap_or(follows)
    }

    /// The part of what compression lost that is added to the next outer gradient, if any.
    pub fn feedback(&self) -> Option<f32> {
        let follows = if matches!(self.codec, Codec::TopK(_)) { 0.95 } else { 1.0 };
        self.error_feedback.then(|| self.residual_decay.unwrap_or(follows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<OuterConfig, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_left_out_follows_from_the_codec() {
        let usual = read("").unwrap();
        assert_eq!((usual.codec, usual.mode), (Codec::Int4, OuterMode::Synchronous));
        assert_eq!((usual.learning_rate, usual.momentum, usual.feedback()), (0.7, 0.9, Some(1.0)));
        assert_eq!(usual.average_codec(), Codec::Int4);
        let few = read("codec = { top-k = 64 }").unwrap();
        assert_eq!((few.codec, few.average_codec()), (Codec::TopK(64), Codec::Sparse));
        assert_eq!((few.learning_rate, few.momentum, few.feedback()), (1.0, 0.0, Some(0.95)));
        let told =
            read("codec = { top-k = 8 }\naverage_codec = \"int8\"\nmomentum = 0.5\nerror_feedback = false").unwrap();
        assert_eq!((told.momentum, told.average_codec(), told.feedback()), (0.5, Codec::Int8, None));
        let all =
            read("codec = { top-k = 8 }\nresidual_decay = 1.0\ndivide = \"senders\"\nrescale = \"radial\"").unwrap();
        assert_eq!((all.feedback(), all.divide, all.rescale), (Some(1.0), Divide::Senders, Rescale::Radial));
        for outer in [usual, few, told, all] {
            let json: OuterConfig = serde_json::from_str(&serde_json::to_string(&outer).unwrap()).unwrap();
            assert_eq!(json, outer);
            assert_eq!(read(&toml::to_string(&outer).unwrap()).unwrap(), outer);
        }
    }

    #[test]
    fn what_is_usual_is_written_as_before() {
        let written = serde_json::to_string(&OuterConfig::default()).unwrap();
        assert_eq!(
            written,
            "{\"mode\":\"synchronous\",\"learning_rate\":0.7,\"momentum\":0.9,\"rescale\":\"sqrt-paths\",\
             \"codec\":\"int4\",\"error_feedback\":true}"
        );
    }

    #[test]
    fn what_is_unknown_is_named() {
        assert!(read("codek = \"int4\"").unwrap_err().contains("codek"));
        assert!(read("codec = \"int3\"").unwrap_err().contains("int3"));
    }
}
