//! The kinds of Byzantine behaviour that a scenario can ask for.

use serde::Deserialize;

/// How one lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Byzantine {
    /// Bytes of what it says are changed at random; what still decodes is heard.
    Garbage,
    /// It says more than fits: leases, addresses, sizes.
    Oversize,
    /// It repeats what others said long ago, in their names.
    Replayed,
    /// As owner it signs two updates, and tells each to one half.
    Equivocating,
    /// It claims every module with every heartbeat.
    FalseOwnership,
    /// Its updates attest states that they do not make, its offers name blobs that there are not.
    WrongHashes,
    /// It contributes ten times what it has trained, the other way.
    SignFlipped,
    /// It contributes what is no number.
    NotFinite,
    /// It trains once, and contributes that again and again.
    Stale,
    /// It contributes what a neighbour has.
    Copied,
    /// As owner it publishes the reverse of what was contributed.
    WrongAverage,
    /// It says of every update that it is wrong.
    FalseProofs,
    /// Its updates count with weights that are not so, its heads are heavier than they are.
    WrongWeights,
}

impl Byzantine {
    /// As a scenario's file names it.
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
            Self::FalseProofs => "byzantine: false proofs",
            Self::WrongHashes => "byzantine: wrong hashes",
            Self::WrongWeights => "byzantine: wrong weights",
        }
    }
}
