//! What is shown of this peer's connections: how others reach it, how far each connected peer is, and who is behind a relay.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::PeerKey;

/// Whether peers outside connect to this one without a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reachability {
    /// An address was announced, opened by the router, or reached in a test of a relay.
    Public,
    /// A relay has tried and failed, or this peer listens at loopback only.
    Private,
    /// Nothing is known, yet or any more.
    #[default]
    Unknown,
}

impl Reachability {
    /// The name in status and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::Unknown => "unknown",
        }
    }
}

/// The connections, as of the last tick. At most as many peers as there are connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Links {
    /// Connected peers with the same protocol version.
    pub connected: usize,
    pub reachability: Reachability,
    /// Milliseconds of the last ping of each connected peer, on any of its connections, to a tenth.
    pub round_trip_ms: BTreeMap<PeerKey, f64>,
    /// Peers to which all connections go through relays.
    pub relayed: BTreeSet<PeerKey>,
}
