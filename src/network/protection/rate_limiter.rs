//! Limits the rates of messages and requests of peers (GCRA, by the `governor` crate).
//!
//! Authors answer for more than forwarders. A message that arrives on its author's own connection is the author's
//! doing. One that arrives through another peer may have been held back and repeated by any forwarder. So only an
//! author's own flood counts against the author, and a forwarder is penalized only for messages that no honest peer
//! would forward. Messages beyond the rate are always dropped, and not forwarded.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::DefaultClock;
use governor::state::keyed::HashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use libp2p::{Multiaddr, PeerId};

use crate::network::limits::{
    ALL_NAMED_BURST, ALL_NAMED_PER_SECOND, ASKED_BURST, ASKED_PER_SECOND, BLOBS_BURST, BLOBS_PER_SECOND, FLOOD_BURST,
    FLOOD_PER_SECOND, GOSSIP_OF_MEMBERS_PER_SECOND, GOSSIP_OF_STRANGERS_PER_SECOND, NAMED_BURST, NAMED_PER_SECOND,
    PASSED_ON_BURST, PASSED_ON_PER_SECOND, RATED_PEERS, SAID_BURST, SAID_PER_SECOND,
};
use crate::network::protection::fair_budget::FairBudget;
use crate::network::standing::Standing;

fn quota((per_second, burst): (u32, u32)) -> Quota {
    let some = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
    Quota::per_second(some(per_second)).allow_burst(some(burst))
}

/// One rate for each of many keys, of which at most [`RATED_PEERS`] are tracked.
pub(crate) struct KeyedRateLimiter<K: Hash + Eq + Clone> {
    quota: Quota,
    limiter: RateLimiter<K, HashMapStateStore<K>, DefaultClock>,
}

impl<K: Hash + Eq + Clone> KeyedRateLimiter<K> {
    /// Per second, and at once.
    pub(crate) fn new(rate: (u32, u32)) -> Self {
        Self::of(quota(rate))
    }

    /// So many at once, and then as many in each period.
    pub(crate) fn in_each(period: Duration, many: u32) -> Self {
        let many = NonZeroU32::new(many).unwrap_or(NonZeroU32::MIN);
        Self::of(Quota::with_period(period / many.get()).unwrap_or(Quota::per_hour(many)).allow_burst(many))
    }

    fn of(quota: Quota) -> Self {
        Self { quota, limiter: RateLimiter::hashmap(quota) }
    }

    /// Whether one more is within the rate.
    pub(crate) fn allows(&mut self, key: &K) -> bool {
        if self.limiter.len() >= RATED_PEERS {
            self.limiter.retain_recent();
        }
        if self.limiter.len() >= RATED_PEERS {
            // So many keys at once are made up: all start again.
            *self = Self::of(self.quota);
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
    members: FairBudget<PeerId>,
    strangers: FairBudget<PeerId>,
}

impl Default for GossipRateLimiter {
    fn default() -> Self {
        Self {
            authors: KeyedRateLimiter::new((SAID_PER_SECOND, SAID_BURST)),
            passed_on: KeyedRateLimiter::new((PASSED_ON_PER_SECOND, PASSED_ON_BURST)),
            floods: KeyedRateLimiter::new((FLOOD_PER_SECOND, FLOOD_BURST)),
            members: FairBudget::new(GOSSIP_OF_MEMBERS_PER_SECOND),
            strangers: FairBudget::new(GOSSIP_OF_STRANGERS_PER_SECOND),
        }
    }
}

impl GossipRateLimiter {
    /// A message of `author` has come from `from`, so long after the start.
    pub(crate) fn heard(&mut self, from: &PeerId, author: &PeerId, standing: Standing, now: Duration) -> Pace {
        let within = match from == author {
            true if !self.authors.allows(author) => return Pace::Flood,
            true => true,
            false if !self.floods.allows(from) => return Pace::Flood,
            false => self.passed_on.allows(from) && self.authors.allows(author),
        };
        let budget = if standing == Standing::Member { &mut self.members } else { &mut self.strangers };
        match within && budget.allows(author, now) {
            true => Pace::Fine,
            false => Pace::TooMuch,
        }
    }
}

/// The rates at which addresses are dialled that other peers have named, each by the peer that is to be there.
pub(crate) struct NamedRateLimiter {
    each: KeyedRateLimiter<PeerId>,
    all: RateLimiter<NotKeyed, InMemoryState, DefaultClock>,
}

impl Default for NamedRateLimiter {
    fn default() -> Self {
        let all = RateLimiter::direct(quota((ALL_NAMED_PER_SECOND, ALL_NAMED_BURST)));
        Self { each: KeyedRateLimiter::new((NAMED_PER_SECOND, NAMED_BURST)), all }
    }
}

impl NamedRateLimiter {
    /// The first of a peer's addresses, as many as may be dialled now.
    pub(crate) fn within(&mut self, peer: &PeerId, mut addresses: Vec<Multiaddr>) -> Vec<Multiaddr> {
        addresses.retain(|_| self.each.allows(peer) && self.all.check().is_ok());
        addresses
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

    fn heard(rates: &mut GossipRateLimiter, from: &PeerId, author: &PeerId) -> Pace {
        rates.heard(from, author, Standing::Stranger, Duration::ZERO)
    }

    #[test]
    fn an_authors_own_flood_is_its_fault_and_a_forwarders_is_not() {
        let mut rates = GossipRateLimiter::default();
        let [author, honest] = [PeerId::random(), PeerId::random()];
        let mut of = [0; 3];
        for _ in 0..3 * SAID_BURST {
            of[heard(&mut rates, &author, &author) as usize] += 1;
        }
        assert!(of[Pace::Fine as usize] > 0 && of[Pace::Flood as usize] > SAID_BURST, "{of:?}");
        // The same messages again, through another peer.
        assert_ne!(heard(&mut rates, &honest, &author), Pace::Flood);
        assert_eq!(heard(&mut rates, &honest, &honest), Pace::Fine);
    }

    #[test]
    fn four_keys_within_their_own_rates_leave_all_others_theirs() {
        let mut rates = GossipRateLimiter::default();
        let greedy = [(); 4].map(|()| PeerId::random());
        let honest = [(); 40].map(|()| PeerId::random());
        let mut fine = 0;
        for second in 0..4 {
            let now = Duration::from_secs(second);
            for _ in 0..SAID_PER_SECOND {
                for author in &greedy {
                    let pace = rates.heard(author, author, Standing::Stranger, now);
                    assert_ne!(pace, Pace::Flood, "they keep to what one may say");
                }
            }
            for _ in 0..5 {
                let others = honest.iter().map(|author| rates.heard(author, author, Standing::Stranger, now));
                fine += others.filter(|pace| *pace == Pace::Fine).count();
            }
        }
        assert_eq!(fine, 4 * 5 * honest.len());
    }

    #[test]
    fn what_strangers_say_takes_nothing_of_what_members_may_say() {
        let mut rates = GossipRateLimiter::default();
        for _ in 0..4 * GOSSIP_OF_STRANGERS_PER_SECOND {
            let stranger = PeerId::random();
            rates.heard(&stranger, &stranger, Standing::Stranger, Duration::ZERO);
        }
        let members = [(); 8].map(|()| PeerId::random());
        for _ in 0..GOSSIP_OF_MEMBERS_PER_SECOND / 8 {
            for member in &members {
                assert_eq!(rates.heard(member, member, Standing::Member, Duration::ZERO), Pace::Fine);
            }
        }
    }

    #[test]
    fn what_an_honest_peer_passes_on_under_attack_is_not_held_against_it() {
        // A peer forwards within its own budgets, of which one and a half may be used.
        let most = u64::from(GOSSIP_OF_MEMBERS_PER_SECOND + GOSSIP_OF_STRANGERS_PER_SECOND) * 3 / 2;
        assert!(most <= u64::from(FLOOD_PER_SECOND));
        // However many keys speak.
        let (mut rates, mut fine) = (GossipRateLimiter::default(), 0);
        for _ in 0..8 * GOSSIP_OF_STRANGERS_PER_SECOND {
            let author = PeerId::random();
            fine += u32::from(heard(&mut rates, &author, &author) == Pace::Fine);
        }
        assert!(fine <= GOSSIP_OF_STRANGERS_PER_SECOND * 3 / 2, "{fine} of strangers");
        let mut rates = GossipRateLimiter::default();
        let from = PeerId::random();
        for _ in 0..FLOOD_PER_SECOND {
            assert_ne!(heard(&mut rates, &from, &PeerId::random()), Pace::Flood);
        }
    }

    #[test]
    fn a_peer_that_moves_every_second_is_dialled_at_some_of_its_addresses_and_others_still_are() {
        let mut rates = NamedRateLimiter::default();
        let addresses = || (1..=8).map(|port| format!("/ip4/203.0.113.7/tcp/{port}").parse().unwrap()).collect();
        let restless = PeerId::random();
        let dialled: usize = (0..600).map(|_| rates.within(&restless, addresses()).len()).sum();
        assert!((NAMED_BURST as usize..2 * NAMED_BURST as usize).contains(&dialled), "{dialled} of 4800");
        assert_eq!(rates.within(&PeerId::random(), addresses()).len(), 8);
        let all: usize = (0..1_000).map(|_| rates.within(&PeerId::random(), addresses()).len()).sum();
        assert!(all < 2 * ALL_NAMED_BURST as usize, "{all} of 8000");
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
