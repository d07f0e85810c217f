//! Peers whose contributions an owner could not fetch. An owner does not wait for them for a while.
//!
//! It says nothing bad about the peer: the connection between the two may be at fault. So it is no penalty, and ends when
//! something of the peer is fetched.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::names::PeerKey;
use crate::protocol::limits::{MAX_DOUBLINGS, MAX_MEMBERS, UNFETCHABLE_MS};

/// Peers that an owner does not wait for.
#[derive(Debug, Default)]
pub(super) struct Unfetchable {
    /// Until when, and how often in a row.
    peers: BTreeMap<PeerKey, (Millis, u32)>,
}

impl Unfetchable {
    /// A contribution of the peer could not be fetched. Each further time lasts twice as long. Those at the same time, as of
    /// several modules, count once.
    pub(super) fn failed(&mut self, now: Millis, peer: PeerKey) {
        if self.has(now, peer) || (self.peers.len() >= MAX_MEMBERS && !self.peers.contains_key(&peer)) {
            return;
        }
        let (until, times) = self.peers.entry(peer).or_default();
        *until = now + (UNFETCHABLE_MS << (*times).min(MAX_DOUBLINGS));
        *times += 1;
    }

    /// Something of the peer was fetched.
    pub(super) fn fetched(&mut self, peer: PeerKey) {
        self.peers.remove(&peer);
    }

    pub(super) fn has(&self, now: Millis, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|(until, _)| now < *until)
    }

    /// Forgets peers that are gone.
    pub(super) fn retain(&mut self, alive: impl Fn(PeerKey) -> bool) {
        self.peers.retain(|peer, _| alive(*peer));
    }

    pub(super) fn count(&self) -> usize {
        self.peers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_lasts_twice_as_long_until_something_is_fetched() {
        let (peer, mut unfetchable) = (PeerKey([1; 32]), Unfetchable::default());
        unfetchable.failed(Millis(0), peer);
        unfetchable.failed(Millis(1), peer);
        assert!(unfetchable.has(Millis(UNFETCHABLE_MS - 1), peer));
        let later = Millis(UNFETCHABLE_MS);
        assert!(!unfetchable.has(later, peer));
        unfetchable.failed(later, peer);
        assert!(
            unfetchable.has(later + (2 * UNFETCHABLE_MS - 1), peer)
                && !unfetchable.has(later + 2 * UNFETCHABLE_MS, peer)
        );
        unfetchable.fetched(peer);
        unfetchable.failed(later, peer);
        assert!(!unfetchable.has(later + UNFETCHABLE_MS, peer), "it begins again");
        unfetchable.retain(|_| false);
        assert_eq!(unfetchable.count(), 0);
    }
}
