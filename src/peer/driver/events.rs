//! What a running peer reports to the program that started it.

use crate::names::{BlobHash, PathId, PeerKey};
use crate::peer::trainer::task::Stepped;
use crate::protocol::Report;
use crate::protocol::status::waiting::Waiting;
use crate::training::Score;

/// Something worth showing.
#[derive(Clone, Debug)]
pub enum PeerEvent {
    /// Inner steps were made.
    Stepped(Stepped),
    /// Nothing trains here now, and why.
    Waiting(Waiting),
    /// The protocol reports.
    Reported(Report),
    /// A path has had all its phases and is scored.
    Scored {
        path: PathId,
        /// The path of the grid that it stands for in the last phase.
        drawn: PathId,
        /// On its held-out slice.
        held_out: Score,
        /// On the test text routed to it.
        test: Score,
    },
    /// A peer gave other bytes than a blob's. They were thrown away.
    WrongBytes { peer: PeerKey, blob: BlobHash },
    /// The disk does not take what is written, and why: nothing is trained or combined until it does.
    ShortOfDisk(String),
    /// It does again.
    DiskTakes,
    /// Others do not let this peer in, and why.
    NotInvited(String),
    /// Nobody has been heard for this long; these addresses were tried.
    Alone {
        /// How long.
        seconds: u64,
        /// What was tried.
        tried: Vec<String>,
        /// What the network knows of relays, of this LAN and of whether others come in.
        outlook: Vec<String>,
    },
}

/// Takes news; must not block for long.
pub type EventSink = std::sync::Arc<dyn Fn(PeerEvent) + Send + Sync>;
