//! How this peer regards another: what it may do here, and who comes first when there is not enough for all.

use crate::names::PeerKey;

/// How this peer regards another one, the least useful first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The run is by invitation, and this peer has shown none. It gets nothing.
    NotAdmitted,
    /// Of an open run, and so far unknown.
    Stranger,
    /// It may ask and fetch, but takes no part.
    Visitor,
    /// It takes part.
    Member,
}

impl Standing {
    /// Whether it may ask and fetch.
    pub fn is_admitted(self) -> bool {
        self > Self::NotAdmitted
    }

    /// Whether it is heard on topics, and hears what is said there.
    pub fn gossips(self) -> bool {
        matches!(self, Self::Stranger | Self::Member)
    }
}

/// What becomes of a gossip message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is handled and forwarded.
    Accept,
    /// It is dropped. Its author may be admitted where it came from.
    Ignore,
    /// It is dropped, and counts as an offence of its author: no honest peer says this.
    Reject,
}

/// The application's knowledge of other peers. Called in the network's own tasks, so it must not block.
pub trait PeerAccess: Send + Sync + 'static {
    /// Whether gossip with a peer begins only with [`crate::network::NetworkHandle::gossip_with`], since each of the
    /// two must have admitted the other.
    fn is_by_invitation(&self) -> bool {
        false
    }

    /// How this peer regards another.
    fn standing(&self, _peer: PeerKey) -> Standing {
        Standing::Stranger
    }

    /// Whether a gossip message may be handled and forwarded. Its signature is checked, its contents are not.
    fn verdict(&self, _author: PeerKey, _bytes: &[u8]) -> Verdict {
        Verdict::Accept
    }
}
