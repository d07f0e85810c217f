//! Peers whose contributions an owner could not fetch. An owner does not wait for them for a while.
//!
//! It says nothing bad about the peer: the connection between the two may be at fault, or the owner's own. So it is no
//! penalty, and what the peer offers is fetched all the same.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::names::PeerKey;
use crate::protocol::limits::{MAX_DOUBLINGS, MAX_MEMBERS, OWN_LINK_MS, UNFETCHABLE_MS};

/// Peers that an owner does not wait for.
#[derive(Debug, Default)]
pub(super) struct Unfetchable {
    /// Until when, and how many failures without as many successes later.
    peers: BTreeMap<PeerKey, (Millis, u32)>,
    /// When a blob was last fetched from any other peer.
    fetched: Option<Millis>,
}

impl Unfetchable {
    /// A contribution of the peer could not be fetched. Each further time lasts twice as long. Several failures at the same
    /// time, as of several modules, count once.
    pub(super) fn failed(&mut self, now: Millis, peer: PeerKey) {
        if self.has(now, peer) || (self.peers.len() >= MAX_MEMBERS && !self.peers.contains_key(&peer)) {
            return;
        }
        let (until, times) = self.peers.entry(peer).or_default();
        *until = now + (UNFETCHABLE_MS << (*times).min(MAX_DOUBLINGS));
        *times += 1;
    }

    /// A contribution of the peer was fetched. That makes up for one failure, but ends no time early: otherwise a peer could
    /// mix contributions that it serves with some that it does not.
    pub(super) fn succeeded(&mut self, now: Millis, peer: PeerKey) {
        let Some((until, times)) = self.peers.get_mut(&peer) else { return };
        if now >= *until {
            *times -= 1;
            if *times == 0 {
                self.peers.remove(&peer);
            }
        }
    }

    pub(super) fn has(&self, now: Millis, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|(until, _)| now < *until)
    }

    /// Some blob was fetched from another peer: this node's own connection works.
    pub(super) fn note_fetch(&mut self, now: Millis) {
        self.fetched = Some(now);
    }

    /// Whether this node could fetch anything lately.
    pub(super) fn own_link_works(&self, now: Millis) -> bool {
        self.fetched.is_some_and(|at| now.since(at) < OWN_LINK_MS)
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
    fn each_failure_lasts_twice_as_long_and_a_success_makes_up_for_one() {
        let (peer, mut unfetchable) = (PeerKey([1; 32]), Unfetchable::default());
        unfetchable.failed(Millis(0), peer);
        unfetchable.failed(Millis(1), peer);
        unfetchable.succeeded(Millis(2), peer);
        assert!(unfetchable.has(Millis(UNFETCHABLE_MS - 1), peer));
        let later = Millis(UNFETCHABLE_MS);
        assert!(!unfetchable.has(later, peer));
        unfetchable.failed(later, peer);
        let end = later + 2 * UNFETCHABLE_MS;
        assert!(unfetchable.has(end - 1, peer) && !unfetchable.has(end, peer));
        unfetchable.succeeded(end, peer);
        assert_eq!(unfetchable.count(), 1);
        unfetchable.succeeded(end, peer);
        assert_eq!(unfetchable.count(), 0);
    }

    #[test]
    fn the_own_connection_works_while_anything_was_fetched_lately() {
        let mut unfetchable = Unfetchable::default();
        assert!(!unfetchable.own_link_works(Millis(0)));
        unfetchable.note_fetch(Millis(5));
        assert!(unfetchable.own_link_works(Millis(4 + OWN_LINK_MS)));
        assert!(!unfetchable.own_link_works(Millis(5 + OWN_LINK_MS)));
    }
}
