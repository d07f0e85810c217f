//! `[outer]`: compression, averaging and application of outer gradients.

use serde::{Deserialize, Serialize};

use super::streaming::{Streaming, read_streaming};

/// Scaling of the averaged outer gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rescale {
    /// Multiplied by the square root of the number of distinct paths in the update (DiPaCo, section 2.7).
    SqrtPaths,
    /// Unscaled (DiLoCo).
    None,
}

/// Learning rate, momentum and rescaling of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Preset {
    /// DiPaCo, section 2.7: Nesterov steps with (0.7, 0.9), and √P.
    Dipaco,
    /// DiLoCo: the same steps on plain averages.
    Diloco,
}

impl Preset {
    fn values(self) -> (f32, f32, Rescale) {
        let rescale = match self {
            Self::Dipaco => Rescale::SqrtPaths,
            Self::Diloco => Rescale::None,
        };
        (0.7, 0.9, rescale)
    }
}

/// Treatment of the residual, the part of an outer gradient that compression drops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unsent {
    Lost,
    /// This share of it is added to the next outer gradient (error feedback). Until then, the path trains without it.
    SentLater(f32),
    /// It stays in the path's own parameters until it is sent. The path trains with it, and is evaluated with it.
    Kept,
}

impl Unsent {
    /// The share that is added to the next outer gradient, if any.
    pub fn added(self) -> Option<f32> {
        match self {
            Self::SentLater(part) => Some(part),
            // A kept residual is part of the next outer gradient anyway.
            Self::Lost | Self::Kept => None,
        }
    }
}

/// Compression of outer gradients and averages.
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
    /// 2 bits a value, for the sign and one of two magnitudes, and a scale per group of 128.
    Int2,
    /// Values that are not zero, at 4 bits.
    Sparse,
    /// The largest so many of each 4096 values, at 2 bits (SparseLoCo).
    TopK(u16),
}

/// When a module's owner makes an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OuterMode {
    /// When all paths have contributed, or at a deadline. Paths wait for their modules.
    Synchronous,
    /// As contributions arrive, with delayed momentum. A slow path makes fewer inner steps in a phase, and no path
    /// waits for another.
    Asynchronous,
}

/// `[outer]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct OuterConfig {
    pub mode: OuterMode,
    pub learning_rate: f32,
    pub momentum: f32,
    pub rescale: Rescale,
    /// Compression of outer gradients.
    pub codec: Codec,
    /// Compression of averages, if it differs from [the default](Self::average_codec).
    pub average_codec: Option<Codec>,
    /// Whether the residual is added to the next outer gradient.
    pub error_feedback: bool,
    /// Share of the residual that is added (SparseLoCo's β), if it differs from [the default](Self::unsent).
    pub residual_decay: Option<f32>,
    /// Whether the residual stays in the path's own parameters until it is sent.
    pub keep_unsent: bool,
    /// Whether levels are synchronised one after the other during a phase, or all between two phases.
    pub streaming: Option<Streaming>,
    /// Cap on the norm of an outer gradient, as a multiple of the module's running norm. Larger ones are scaled down. 0
    /// for none; if absent, [the mode decides](Self::cap).
    pub norm_cap: Option<f32>,
    /// Expected number of members that audit an update. With 0.1, every tenth update is audited.
    pub audit_share: f64,
    /// Whether updates of five or more contributions use [centred clipping](crate::outer::centred_clipping).
    pub centred_clipping: bool,
    /// Whether an update waits for a whole phase of every path, however long that takes. What is trained then does not depend
    /// on who is early. Older programs do not know the key.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deterministic: bool,
}

/// The smallest number of paths at which two Byzantine ones are a minority.
const CLIPPED_FROM: usize = 5;

/// An open run may have owners that lie. With one audit of an update in the mean, a wrong average stands for two updates.
const USUAL_SHARE: f64 = 1.0;

/// Learning rate, momentum and rescaling. After 16 outer steps on unlike text, perplexity was 10% higher with 0.7 and 0.9,
/// 15% with √P as well, and 8% with plain averages (docs/results/outer.md).
const USUAL_STEP: (f32, f32, Rescale) = (1.0, 0.5, Rescale::None);

/// The TOML form. Keys that are left out follow from the codec.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    /// Values of a paper for what is left out.
    preset: Option<Preset>,
    mode: Option<OuterMode>,
    learning_rate: Option<f32>,
    momentum: Option<f32>,
    rescale: Option<Rescale>,
    codec: Option<Codec>,
    average_codec: Option<Codec>,
    error_feedback: Option<bool>,
    residual_decay: Option<f32>,
    keep_unsent: bool,
    #[serde(deserialize_with = "read_streaming")]
    streaming: Option<Streaming>,
    norm_cap: Option<f32>,
    audit_share: Option<f64>,
    centred_clipping: bool,
    deterministic: bool,
}

impl From<Written> for OuterConfig {
    fn from(written: Written) -> Self {
        let codec = written.codec.unwrap_or(Codec::Int4);
        // SparseLoCo: late residuals act like momentum, so explicit momentum would be applied twice.
        let usual = match codec {
            Codec::TopK(_) => (1.0, 0.0, Rescale::None),
            _ => USUAL_STEP,
        };
        let (learning_rate, momentum, rescale) = written.preset.map_or(usual, Preset::values);
        Self {
            mode: written.mode.unwrap_or(OuterMode::Synchronous),
            learning_rate: written.learning_rate.unwrap_or(learning_rate),
            momentum: written.momentum.unwrap_or(momentum),
            rescale: written.rescale.unwrap_or(rescale),
            codec,
            average_codec: written.average_codec,
            error_feedback: written.error_feedback.unwrap_or(true),
            residual_decay: written.residual_decay,
            keep_unsent: written.keep_unsent,
            streaming: written.streaming,
            norm_cap: written.norm_cap,
            audit_share: written.audit_share.unwrap_or(USUAL_SHARE),
            centred_clipping: written.centred_clipping,
            deterministic: written.deterministic,
        }
    }
}

impl Default for OuterConfig {
    fn default() -> Self {
        Written::default().into()
    }
}

impl OuterConfig {
    /// For state that is averaged instead of learnt: members take the plain mean.
    pub(super) fn plain_mean(&self) -> Self {
        Self {
            learning_rate: 1.0,
            momentum: 0.0,
            rescale: Rescale::None,
            codec: Codec::Fp32,
            average_codec: Some(Codec::Fp32),
            error_feedback: false,
            keep_unsent: false,
            centred_clipping: false,
            ..self.clone()
        }
    }

    /// Averages use the codec of outer gradients, except after top-k: cutting an average to k values again would lose
    /// the rest for good.
    pub fn average_codec(&self) -> Codec {
        let follows = match self.codec {
            Codec::TopK(_) => Codec::Sparse,
            codec => codec,
        };
        self.average_codec.unwrap_or(follows)
    }

    /// The norm cap in use, as a multiple of the running norm; 0 for none. Asynchronous runs have none, since fast
    /// paths rightly contribute several times as much as slow ones.
    pub fn cap(&self) -> f32 {
        let follows = if self.mode == OuterMode::Asynchronous { 0.0 } else { 2.0 };
        self.norm_cap.unwrap_or(follows)
    }

    /// Whether an update of so many paths uses centred clipping.
    pub fn clips(&self, paths: usize) -> bool {
        self.centred_clipping && paths >= CLIPPED_FROM
    }

    /// Whether centred clipping is possible at all. It needs the contributions together, and with top-k, values that
    /// were not sent would count as zero.
    pub fn can_clip(&self) -> bool {
        self.mode == OuterMode::Synchronous && !matches!(self.codec, Codec::TopK(_))
    }

    /// Treatment of the residual.
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
        assert_eq!((usual.learning_rate, usual.momentum, usual.unsent()), (1.0, 0.5, Unsent::SentLater(1.0)));
        for (preset, rescale) in [("dipaco", Rescale::SqrtPaths), ("diloco", Rescale::None)] {
            let paper = read(&format!("preset = \"{preset}\"")).unwrap();
            assert_eq!((paper.learning_rate, paper.momentum, paper.rescale), (0.7, 0.9, rescale));
            let own = read(&format!("preset = \"{preset}\"\nmomentum = 0.8")).unwrap();
            assert_eq!(own, OuterConfig { momentum: 0.8, ..paper }, "what is given counts");
        }
        assert_eq!(usual.average_codec(), Codec::Int4);
        let few = read("codec = { top-k = 64 }").unwrap();
        assert_eq!((few.codec, few.average_codec()), (Codec::TopK(64), Codec::Sparse));
        assert_eq!((few.learning_rate, few.momentum, few.unsent()), (1.0, 0.0, Unsent::SentLater(0.95)));
        let told =
            read("codec = { top-k = 8 }\naverage_codec = \"int8\"\nmomentum = 0.5\nerror_feedback = false").unwrap();
        assert_eq!((told.momentum, told.average_codec(), told.unsent()), (0.5, Codec::Int8, Unsent::Lost));
        let all = read("codec = { top-k = 8 }\nresidual_decay = 1.0\nrescale = \"none\"").unwrap();
        assert_eq!((all.unsent(), all.rescale), (Unsent::SentLater(1.0), Rescale::None));
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
    fn what_is_unknown_is_named() {
        assert!(read("codek = \"int4\"").unwrap_err().contains("codek"));
        assert!(read("codec = \"int3\"").unwrap_err().contains("int3"));
        assert!(read("streaming = { mixes = 1 }").unwrap_err().contains("a table of mix and overlap"));
    }
}
