//! Redials lost connections to members at growing intervals, so that a temporary failure of the network does not
//! separate two members for good.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::names::PeerKey;

/// First pause; each further one is twice as long.
const FIRST_PAUSE_MS: u64 = 1_000;

const LONGEST_PAUSE_MS: u64 = 10 * 60_000;

/// Time after which a peer is given up; a peer that restarts dials those that it remembers.
const GIVEN_UP_MS: u64 = 24 * 3_600_000;

/// Limit of peers that are redialled. A further member takes the place of the first that was lost and is no member, or
/// else was lost first.
const MAX_LOST: usize = 256;

/// Of these, peers that were no members for a while when they were lost: newcomers, or made up.
const MAX_LOST_STRANGERS: usize = 64;

struct Lost {
    is_member: bool,
    since: Millis,
    next: Millis,
    pause_ms: u64,
}

/// The peers to redial.
#[derive(Default)]
pub(crate) struct Redial {
    lost: BTreeMap<PeerKey, Lost>,
}

impl Redial {
    /// The last connection to a peer of our modules has ended. `is_member` tells whether it has been there for a while.
    pub(crate) fn lost(&mut self, now: Millis, peer: PeerKey, is_member: bool) {
        if let Some(known) = self.lost.get_mut(&peer) {
            known.is_member |= is_member;
            return;
        }
        let strangers = self.lost.values().filter(|lost| !lost.is_member).count();
        if self.lost.len() >= MAX_LOST || (!is_member && strangers >= MAX_LOST_STRANGERS) {
            let given_up = self.lost.iter().filter(|(_, lost)| is_member || !lost.is_member);
            let Some(first) = given_up.min_by_key(|(_, lost)| (lost.is_member, lost.since)).map(|(peer, _)| *peer)
            else {
                return;
            };
            self.lost.remove(&first);
        }
        self.lost.insert(peer, Lost { is_member, since: now, next: now, pause_ms: FIRST_PAUSE_MS });
    }

    /// The peer is connected again.
    pub(crate) fn connected(&mut self, peer: PeerKey) {
        self.lost.remove(&peer);
    }

    /// The peers to dial now.
    pub(crate) fn due(&mut self, now: Millis) -> Vec<PeerKey> {
        self.lost.retain(|_, lost| now.since(lost.since) < GIVEN_UP_MS);
        let due = self.lost.iter_mut().filter(|(_, lost)| now >= lost.next);
        due.map(|(peer, lost)| {
            lost.next = now + lost.pause_ms;
            lost.pause_ms = (2 * lost.pause_ms).min(LONGEST_PAUSE_MS);
            *peer
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey([1; 32]);

    #[test]
    fn a_lost_member_is_dialled_at_once_and_then_less_and_less_often_until_it_is_found() {
        let mut redial = Redial::default();
        redial.lost(Millis(5_000), PEER, true);
        let dials = |redial: &mut Redial, from: u64, to: u64| -> Vec<u64> {
            (from..to).filter(|s| !redial.due(Millis(s * 1_000)).is_empty()).collect()
        };
        assert_eq!(dials(&mut redial, 5, 40), [5, 6, 8, 12, 20, 36]);
        // It keeps its schedule, however often the loss is reported.
        redial.lost(Millis(40_000), PEER, true);
        assert_eq!(dials(&mut redial, 40, 69), [68]);
        assert_eq!(dials(&mut redial, 10_000, 11_300), [10_000, 10_128, 10_384, 10_896]);
        redial.connected(PEER);
        assert!(dials(&mut redial, 11_300, 13_000).is_empty());
        redial.lost(Millis(13_000_000), PEER, true);
        assert!(redial.due(Millis(13_000_000 + GIVEN_UP_MS)).is_empty());
    }

    #[test]
    fn keys_that_come_and_go_keep_no_member_from_being_redialled() {
        let key = |number: u64| PeerKey(*blake3::hash(&number.to_le_bytes()).as_bytes());
        let mut redial = Redial::default();
        let mut now = Millis(0);
        let mut lose = |redial: &mut Redial, peer, is_member| {
            now = now + 1;
            redial.lost(now, peer, is_member);
            assert!(redial.lost.len() <= MAX_LOST);
        };
        lose(&mut redial, key(0), true);
        for number in 1_000..2_000 {
            lose(&mut redial, key(number), false);
        }
        assert!(redial.lost.contains_key(&key(0)) && redial.lost.contains_key(&key(1_999)), "and newcomers are");
        for member in 1..MAX_LOST as u64 {
            lose(&mut redial, key(member), true);
        }
        assert!((0..MAX_LOST as u64).all(|member| redial.lost.contains_key(&key(member))));
        lose(&mut redial, key(5_000), false);
        assert!(!redial.lost.contains_key(&key(5_000)));
        lose(&mut redial, key(999), true);
        assert!(redial.lost.contains_key(&key(999)) && !redial.lost.contains_key(&key(0)), "the first of the members");
    }
}
