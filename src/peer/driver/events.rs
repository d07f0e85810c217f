//! Events that a running peer reports to the program that started it.

use crate::names::{BlobHash, PathId, PeerKey};
use crate::peer::aggregator::OuterStep;
use crate::peer::trainer::task::Stepped;
use crate::protocol::Report;
use crate::protocol::status::waiting::Waiting;
use crate::training::Score;

#[derive(Clone, Debug)]
pub enum PeerEvent {
    Stepped(Stepped),
    /// Nothing trains here now, with the reason.
    Waiting(Waiting),
    /// A report of the protocol.
    Reported(Report),
    /// A path has finished all phases and is scored.
    Scored {
        path: PathId,
        /// The path of the grid in the last phase.
        drawn: PathId,
        /// On its held-out slice.
        held_out: Score,
        /// On the test text routed to it.
        test: Score,
    },
    /// An average was computed here.
    OuterStep(OuterStep),
    /// A blob has arrived from other peers.
    Fetched {
        bytes: u64,
        /// Since it was requested.
        seconds: f64,
    },
    /// A peer sent wrong bytes for a blob. They were discarded.
    WrongBytes {
        peer: PeerKey,
        blob: BlobHash,
    },
    /// The disk rejects writes, with the reason: training and aggregation are paused.
    ShortOfDisk(String),
    /// Memory ran out: what the trainer does about it.
    ShortOfMemory(String),
    /// The disk accepts writes again.
    DiskTakes,
    /// Other peers do not admit this peer, with the reason.
    NotInvited(String),
    /// No peer has been heard for a while.
    Alone {
        /// Length of that time.
        seconds: u64,
        /// Addresses that were tried.
        tried: Vec<String>,
        /// What the network knows of relays, of this LAN and of reachability.
        outlook: Vec<String>,
    },
}

/// Receives events; must not block for long.
pub type EventSink = std::sync::Arc<dyn Fn(PeerEvent) + Send + Sync>;
