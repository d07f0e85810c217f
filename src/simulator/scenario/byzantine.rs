//! The kinds of Byzantine behaviour that a scenario can ask for.

use serde::Deserialize;

/// The behaviour of a Byzantine peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Byzantine {
    /// Its messages are changed at random; those that still decode are delivered.
    Garbage,
    /// Its messages exceed limits: leases, addresses, sizes.
    Oversize,
    /// It repeats old messages of others, in their names.
    Replayed,
    /// As owner it signs two updates, and sends each to one half.
    Equivocating,
    /// It claims every module with every heartbeat.
    FalseOwnership,
    /// Its updates attest wrong states, and its offers name blobs that do not exist.
    WrongHashes,
    /// It contributes ten times its negated outer gradient.
    SignFlipped,
    /// It contributes values that are not finite.
    NotFinite,
    /// It trains once, and repeats that contribution.
    Stale,
    /// It copies a neighbour's contribution.
    Copied,
    /// As owner it publishes the negated average.
    WrongAverage,
    /// It accuses every update.
    FalseProofs,
    /// Its updates have wrong weights, and its heads are too heavy.
    WrongWeights,
    /// With every heartbeat it names an owner of a later term: a new key, that has signed its claim.
    Hearsay,
    /// It offers contributions to the paths of others that no peer can fetch.
    PhantomOffers,
    /// No peer can fetch its blobs.
    Unfetchable,
    /// It asks every peer in turn to replicate modules that it does not have.
    FalseHelper,
    /// Its heartbeats name the last head that a module can have, of a valid chain whose updates count contributions that do
    /// not exist. The state for it cannot be read in every other module.
    FalseSnapshot,
    /// Its heartbeats name a head after the present one, made from contributions that do not exist.
    FalseExtension,
    /// The same, and it refuses to show the chain.
    FalseHead,
}

impl Byzantine {
    /// Its name in a scenario's file.
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
            Self::Hearsay => "byzantine: hearsay",
            Self::PhantomOffers => "byzantine: phantom offers",
            Self::Unfetchable => "byzantine: unfetchable",
            Self::FalseHelper => "byzantine: false helper",
            Self::FalseSnapshot => "byzantine: false snapshot",
            Self::FalseExtension => "byzantine: false extension",
            Self::FalseHead => "byzantine: false head",
        }
    }
}
