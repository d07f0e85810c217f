//! Peers that are not accepted as owners for a while: they published a wrong update, or owned a module and stalled it.
//! The time doubles with each failure.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::names::PeerKey;
use crate::protocol::limits::{FAILED_OWNER_MS, MAX_DOUBLINGS, MAX_MEMBERS};

/// The peers that have failed as owners.
#[derive(Clone, Debug, Default)]
pub struct OwnerTrust {
    peers: BTreeMap<PeerKey, Failed>,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    times: u32,
    until: Millis,
}

impl OwnerTrust {
    /// A peer has failed as an owner.
    pub fn failed(&mut self, now: Millis, peer: PeerKey) {
        if self.peers.len() >= MAX_MEMBERS {
            let soonest = self.peers.iter().min_by_key(|(_, failed)| failed.until).map(|(peer, _)| *peer);
            soonest.map(|peer| self.peers.remove(&peer));
        }
        let failed = self.peers.entry(peer).or_insert(Failed { times: 0, until: now });
        failed.until = now + (FAILED_OWNER_MS << failed.times.min(MAX_DOUBLINGS));
        failed.times += 1;
    }

    /// Whether a peer is not accepted as an owner now.
    pub fn has(&self, now: Millis, peer: PeerKey) -> bool {
        self.peers.get(&peer).is_some_and(|failed| now < failed.until)
    }

    /// How many peers have failed.
    pub fn count(&self) -> usize {
        self.peers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_doubles_with_each_failure_up_to_a_bound() {
        let (peer, mut failed) = (PeerKey([1; 32]), OwnerTrust::default());
        for doublings in [0, 1, 2] {
            let now = Millis(1_000_000_000 * doublings);
            failed.failed(now, peer);
            let lasts_ms = FAILED_OWNER_MS << doublings;
            assert!(failed.has(now + (lasts_ms - 1), peer) && !failed.has(now + lasts_ms, peer));
        }
        for _ in 0..100 {
            failed.failed(Millis(0), peer);
        }
        assert!(!failed.has(Millis(FAILED_OWNER_MS << MAX_DOUBLINGS), peer));
    }

    #[test]
    fn a_flood_of_unknown_peers_does_not_grow_the_table() {
        let mut failed = OwnerTrust::default();
        for number in 0..2 * MAX_MEMBERS as u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_le_bytes());
            failed.failed(Millis(u64::from(number)), PeerKey(key));
        }
        assert_eq!(failed.count(), MAX_MEMBERS);
    }
}
