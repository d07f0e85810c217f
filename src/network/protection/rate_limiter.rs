//! Limits the rates of messages and requests of peers (GCRA, by the `governor` crate).
//!
//! Authors answer for more than forwarders. A message that arrives on its author's own connection is the author's
//! doing. One that arrives through another peer may have been held back and repeated by any forwarder. So only an
//! author's own flood counts against the author, and a forwarder is penalized only for messages that no honest peer
//! would forward. Messages beyond the rate are always dropped, and not forwarded.

use std::hash::Hash;
use std::num::NonZeroU32;

use governor::clock::DefaultClock;
use governor::state::keyed::HashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use libp2p::PeerId;

use crate::network::limits::{
    ASKED_BURST, ASKED_PER_SECOND, BLOBS_BURST, BLOBS_PER_SECOND, FLOOD_BURST, FLOOD_PER_SECOND, GOSSIP_BURST,
    GOSSIP_PER_SECOND, PASSED_ON_BURST, PASSED_ON_PER_SECOND, RATED_PEERS, SAID_BURST, SAID_PER_SECOND,
};

fn quota((per_second, burst): (u32, u32)) -> Quota {
    let some = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
    Quota::per_second(some(per_second)).allow_burst(some(burst))
}

/// One rate for each of many keys, of which at most [`RATED_PEERS`] are tracked.
pub(crate) struct KeyedRateLimiter<K: Hash + Eq + Clone> {
    rate: (u32, u32),
    limiter: RateLimiter<K, HashMapStateStore<K>, DefaultClock>,
}

impl<K: Hash + Eq + Clone> KeyedRateLimiter<K> {
    /// Per second, and at once.
    pub(crate) fn new(rate: (u32, u32)) -> Self {
        Self { rate, limiter: RateLimiter::hashmap(quota(rate)) }
    }

    /// Whether one more is within the rate.
    pub(crate) fn allows(&mut self, key: &K) -> bool {
        if self.limiter.len() >= RATED_PEERS {
            self.limiter.retain_recent();
        }
        if self.limiter.len() >= RATED_PEERS {
            // So many keys at once are made up: all start again.
            *self = Self::new(self.rate);
        }
        self.limiter.check_key(key).is_ok()
    }
}

/// The decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Accepted and forwarded.
    Fine,
    /// Dropped, without a penalty.
    TooMuch,
    /// Dropped, with a penalty for the peer that it came from.
    Flood,
}

/// The rates of gossip.
pub(crate) struct GossipRateLimiter {
    authors: KeyedRateLimiter<PeerId>,
    passed_on: KeyedRateLimiter<PeerId>,
    floods: KeyedRateLimiter<PeerId>,
    all: RateLimiter<NotKeyed, InMemoryState, DefaultClock>,
}

impl Default for GossipRateLimiter {
    fn default() -> Self {
        Self {
            authors: KeyedRateLimiter::new((SAID_PER_SECOND, SAID_BURST)),
            passed_on: KeyedRateLimiter::new((PASSED_ON_PER_SECOND, PASSED_ON_BURST)),
            floods: KeyedRateLimiter::new((FLOOD_PER_SECOND, FLOOD_BURST)),
            all: RateLimiter::direct(quota((GOSSIP_PER_SECOND, GOSSIP_BURST))),
        }
    }
}

impl GossipRateLimiter {
    /// A message of `author` has come from `from`.
    pub(crate) fn heard(&mut self, from: &PeerId, author: &PeerId) -> Pace {
        if from == author {
            return match self.authors.allows(author) {
                false => Pace::Flood,
                true if self.all.check().is_err() => Pace::TooMuch,
                true => Pace::Fine,
            };
        }
        if !self.floods.allows(from) {
            return Pace::Flood;
        }
        match self.passed_on.allows(from) && self.authors.allows(author) && self.all.check().is_ok() {
            true => Pace::Fine,
            false => Pace::TooMuch,
        }
    }
}

pub(crate) fn requests() -> KeyedRateLimiter<PeerId> {
    KeyedRateLimiter::new((ASKED_PER_SECOND, ASKED_BURST))
}

pub(crate) fn blob_streams() -> KeyedRateLimiter<PeerId> {
    KeyedRateLimiter::new((BLOBS_PER_SECOND, BLOBS_BURST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authors_own_flood_is_its_fault_and_a_forwarders_is_not() {
        let mut rates = GossipRateLimiter::default();
        let [author, honest] = [PeerId::random(), PeerId::random()];
        let mut of = [0; 3];
        for _ in 0..3 * SAID_BURST {
            of[rates.heard(&author, &author) as usize] += 1;
        }
        assert!(of[Pace::Fine as usize] >= SAID_BURST && of[Pace::Flood as usize] > SAID_BURST, "{of:?}");
        // The same messages again, through another peer.
        assert_ne!(rates.heard(&honest, &author), Pace::Flood);
        assert_eq!(rates.heard(&honest, &honest), Pace::Fine);
    }

    #[test]
    fn what_an_honest_peer_passes_on_under_attack_is_not_held_against_it() {
        // A peer forwards within its own rates, which bound the messages of 10 s.
        let most = u64::from(GOSSIP_PER_SECOND) * 10 + u64::from(GOSSIP_BURST);
        assert!(most <= u64::from(FLOOD_PER_SECOND) * 10 + u64::from(FLOOD_BURST));
        let mut rates = GossipRateLimiter::default();
        let from = PeerId::random();
        for _ in 0..GOSSIP_BURST {
            assert_ne!(rates.heard(&from, &PeerId::random()), Pace::Flood);
        }
    }

    #[test]
    fn names_that_are_made_up_do_not_fill_the_memory() {
        let mut rates = KeyedRateLimiter::new((1, 1));
        for name in 0..3 * RATED_PEERS {
            rates.allows(&name);
            assert!(rates.limiter.len() <= RATED_PEERS);
        }
    }
}
