//! The kinds of Byzantine behaviour that a scenario can ask for.

use serde::Deserialize;

/// A kind of Byzantine behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Byzantine {
    /// Random bits of its messages are flipped. Messages that still decode are delivered.
    Garbage,
    /// Its messages exceed the bounds of leases, addresses and sizes.
    Oversize,
    /// It repeats old messages of other peers in their names.
    Replayed,
    /// As owner it signs two updates and sends each one to half of the peers.
    Equivocating,
    /// It claims every module in every heartbeat.
    FalseOwnership,
    /// Its updates attest wrong states, and its offers name blobs that do not exist.
    WrongHashes,
    /// It contributes minus ten times its outer gradient.
    SignFlipped,
    /// It contributes values that are not finite.
    NotFinite,
    /// It trains once and contributes the result again and again.
    Stale,
    /// It contributes the outer gradient of another path.
    Copied,
    /// As owner it publishes the negative average.
    WrongAverage,
    /// It publishes a fraud proof against every update.
    Accusing,
    /// Its updates count false weights, and its heads claim too much weight.
    WrongWeights,
}

impl Byzantine {
    /// The name in a scenario's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Garbage => "byzantine: garbage",
            Self::Oversize => "byzantine: oversize",
            Self::Replayed => "byzantine: replayed",
            Self::Equivocating => "byzantine: equivocating",
            Self::FalseOwnership => "byzantine: false ownership",
            Self::SignFlipped => "byzantine: sign flipped",
            Self::NotFinite => "byzantine: not finite",
            Self::Stale => "byzantine: stale",
            Self::Copied => "byzantine: copied",
            Self::WrongAverage => "byzantine: wrong average",
            Self::Accusing => "byzantine: accusing",
            Self::WrongHashes => "byzantine: wrong hashes",
            Self::WrongWeights => "byzantine: wrong weights",
        }
    }
}
