//! How outer gradients travel, are averaged and are applied: `[outer]`.

use serde::{Deserialize, Serialize};

use super::streaming::{Streaming, read_streaming};

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

/// What becomes of what compression leaves out of an outer gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unsent {
    Lost,
    /// This part of it is added to the next outer gradient (error feedback); meanwhile the path does without it.
    SentLater(f32),
    /// It stays in the path's own copy until it is sent: the path trains on with it, and counts as what it is with it.
    Kept,
}

impl Unsent {
    /// The part of it that is added to the next outer gradient, if any.
    pub fn added(self) -> Option<f32> {
        match self {
            Self::SentLater(part) => Some(part),
            // What is kept is in the next outer gradient by itself.
            Self::Lost | Self::Kept => None,
        }
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
    /// codec](Self::unsent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual_decay: Option<f32>,
    /// Whether what compression left out stays in the path's own copy until it is sent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_unsent: bool,
    /// What a sum is divided by.
    #[serde(skip_serializing_if = "Divide::is_all")]
    pub divide: Divide,
    /// Whether levels are brought in step at one time, between two phases, or each at its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streaming: Option<Streaming>,
    /// How many times as long as the module's running norm an outer gradient may be and count in full, where it is not [what
    /// follows from the mode](Self::cap); with 0, any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_cap: Option<f32>,
    /// How many members count an update again, on average: with 0.1, every tenth update is.
    #[serde(skip_serializing_if = "is_usual_share")]
    pub audit_share: f64,
    /// Whether contributions are [clipped around their centre](crate::outer::centred_clipping) where there are five or
    /// more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub centred_clipping: bool,
}

/// Of so many paths in an update one can tell the middle from the far ends, and two that lie are fewer than half.
const CLIPPED_FROM: usize = 5;

const USUAL_SHARE: f64 = 0.1;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_usual_share(share: &f64) -> bool {
    *share == USUAL_SHARE
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
    keep_unsent: bool,
    divide: Divide,
    #[serde(deserialize_with = "read_streaming")]
    streaming: Option<Streaming>,
    norm_cap: Option<f32>,
    audit_share: Option<f64>,
    centred_clipping: bool,
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
            keep_unsent: written.keep_unsent,
            divide: written.divide,
            streaming: written.streaming,
            norm_cap: written.norm_cap,
            audit_share: written.audit_share.unwrap_or(USUAL_SHARE),
            centred_clipping: written.centred_clipping,
        }
    }
}

impl Default for OuterConfig {
    fn default() -> Self {
        Written::default().into()
    }
}

impl OuterConfig {
    /// For what is not learnt but only agreed on: members take the mean of what they have, as it is.
    pub(super) fn plain_mean(&self) -> Self {
        Self {
            learning_rate: 1.0,
            momentum: 0.0,
            rescale: Rescale::None,
            codec: Codec::Fp32,
            average_codec: Some(Codec::Fp32),
            error_feedback: false,
            keep_unsent: false,
            divide: Divide::All,
            centred_clipping: false,
            ..self.clone()
        }
    }

    /// How averages travel: as outer gradients do, but an average of some largest values is not cut to so many again, as
    /// nothing would ever bring what it lost.
    pub fn average_codec(&self) -> Codec {
        let follows = match self.codec {
            Codec::TopK(_) => Codec::Sparse,
            codec => codec,
        };
        self.average_codec.unwrap_or(follows)
    }

    /// How many times as long as the running norm an outer gradient may be and count in full; 0 for any. Where paths do not
    /// wait for each other, fast ones contribute several times as much as slow ones, by their right.
    pub fn cap(&self) -> f32 {
        let follows = if self.mode == OuterMode::Asynchronous { 0.0 } else { 2.0 };
        self.norm_cap.unwrap_or(follows)
    }

    /// Whether the contributions to an update of so many paths are clipped around their centre.
    pub fn clips(&self, paths: usize) -> bool {
        self.centred_clipping && paths >= CLIPPED_FROM
    }

    /// Whether they can be at all: they have to come together, and all that is not sent of a few largest values would be
    /// taken for a contribution of zero.
    pub fn can_clip(&self) -> bool {
        let plain = self.divide == Divide::All && self.rescale != Rescale::Radial;
        plain && self.mode == OuterMode::Synchronous && !matches!(self.codec, Codec::TopK(_))
    }

    /// What becomes of what compression leaves out.
    pub fn unsent(&self) -> Unsent {
        let follows = if matches!(self.codec, Codec::TopK(_)) { 0.95 } else { 1.0 };
        match (self.error_feedback, self.keep_unsent) {
            (_, true) => Unsent::Kept,
            (true, false) => Unsent::SentLater(self.residual_decay.unwrap_or(follows)),
            (false, false) => Unsent::Lost,
        }
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
        assert_eq!((usual.learning_rate, usual.momentum, usual.unsent()), (0.7, 0.9, Unsent::SentLater(1.0)));
        assert_eq!(usual.average_codec(), Codec::Int4);
        let few = read("codec = { top-k = 64 }").unwrap();
        assert_eq!((few.codec, few.average_codec()), (Codec::TopK(64), Codec::Sparse));
        assert_eq!((few.learning_rate, few.momentum, few.unsent()), (1.0, 0.0, Unsent::SentLater(0.95)));
        let told =
            read("codec = { top-k = 8 }\naverage_codec = \"int8\"\nmomentum = 0.5\nerror_feedback = false").unwrap();
        assert_eq!((told.momentum, told.average_codec(), told.unsent()), (0.5, Codec::Int8, Unsent::Lost));
        let all =
            read("codec = { top-k = 8 }\nresidual_decay = 1.0\ndivide = \"senders\"\nrescale = \"radial\"").unwrap();
        assert_eq!((all.unsent(), all.divide, all.rescale), (Unsent::SentLater(1.0), Divide::Senders, Rescale::Radial));
        let streams = read("streaming = { overlap = 2 }").unwrap();
        assert_eq!(streams.streaming, Some(Streaming { mix: 0.5, overlap: 2 }));
        assert_eq!(read("streaming = true").unwrap().streaming, Some(Streaming::default()));
        assert_eq!(read("streaming = false").unwrap(), usual);
        let clips = read("centred_clipping = true").unwrap();
        assert!(clips.clips(5) && !clips.clips(4) && !usual.clips(64));
        let keeps = read("codec = { top-k = 8 }\nkeep_unsent = true").unwrap();
        assert_eq!(keeps.unsent(), Unsent::Kept);
        for outer in [usual, few, told, all, streams, clips, keeps] {
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
        assert!(read("streaming = { mixes = 1 }").unwrap_err().contains("a table of mix and overlap"));
    }
}
