//! Which relays a peer knows, and on which of them it holds a place.
//!
//! A peer that cannot be reached from outside asks a relay for a place: who wants to connect to it asks the relay for a
//! circuit. It learns of relays from its machine's profile, and by meeting them: whoever goes through a relay once knows
//! it from then on. It holds places on [`RELAYS_AT_ONCE`] of them, so that one may go without anybody losing it; a place
//! that is lost or refused is looked for on the relay that has failed least, after a pause that grows with each failure.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use libp2p::core::transport::ListenerId;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

use crate::network::connectivity::addresses::{in_order, relay_and_place};
use crate::network::limits::{ADDRESSES_PER_RELAY, RELAY_LONGEST_PAUSE, RELAY_PAUSE, RELAYS_AT_ONCE, RELAYS_KNOWN};

/// A relay, and how it has served us.
struct Relay {
    places: Vec<Multiaddr>,
    /// In a row.
    failures: u32,
    not_before: Option<Instant>,
}

/// A place that is asked for, or stands.
struct Held {
    relay: PeerId,
    stands: bool,
}

/// The relays known, and the places on them.
pub(in crate::network) struct Relaying {
    me: PeerId,
    wanted: bool,
    relays: BTreeMap<PeerId, Relay>,
    held: HashMap<ListenerId, Held>,
}

impl Relaying {
    /// The profile's relays. `wanted` says whether this peer is to be found by others at all.
    pub(in crate::network) fn new(me: PeerId, configured: &[Multiaddr], wanted: bool) -> Self {
        let mut relaying = Self { me, wanted, relays: BTreeMap::new(), held: HashMap::new() };
        for (relay, place) in configured.iter().filter_map(relay_and_place) {
            relaying.learn(relay, vec![place]);
        }
        relaying
    }

    /// Remembers a relay, or more addresses of one.
    pub(in crate::network) fn learn(&mut self, relay: PeerId, places: Vec<Multiaddr>) {
        if relay == self.me || (self.relays.len() >= RELAYS_KNOWN && !self.relays.contains_key(&relay)) {
            return;
        }
        let known = self.relays.entry(relay).or_insert(Relay { places: Vec::new(), failures: 0, not_before: None });
        for place in in_order(places) {
            if known.places.len() < ADDRESSES_PER_RELAY && !known.places.contains(&place) {
                known.places.push(place);
            }
        }
    }

    /// Whether this peer is a relay that we know.
    pub(in crate::network) fn is_relay(&self, peer: &PeerId) -> bool {
        self.relays.contains_key(peer)
    }

    /// All that are known, and where.
    pub(in crate::network) fn relays(&self) -> impl Iterator<Item = (PeerId, &[Multiaddr])> {
        self.relays.iter().map(|(relay, known)| (*relay, known.places.as_slice()))
    }

    /// Whether a place stands, or none is asked for: there is nothing to wait for.
    pub(in crate::network) fn is_settled(&self) -> bool {
        self.held.is_empty() || self.held.values().any(|held| held.stands)
    }

    /// Where to ask for a place now, if one is needed. `reachable` says whether others come without a relay.
    pub(in crate::network) fn due(&self, now: Instant, reachable: bool) -> Option<(PeerId, Multiaddr)> {
        if !self.wanted || reachable || self.held.len() >= RELAYS_AT_ONCE {
            return None;
        }
        let idle = |relay: &PeerId| self.held.values().all(|held| held.relay != *relay);
        let rested = |known: &Relay| known.not_before.is_none_or(|until| until <= now);
        let (relay, known) = self
            .relays
            .iter()
            .filter(|(relay, known)| idle(relay) && rested(known) && !known.places.is_empty())
            .min_by_key(|(relay, known)| (known.failures, self.spread(relay, 0)))?;
        let place = &known.places[known.failures as usize % known.places.len()];
        Some((*relay, place.clone().with(Protocol::P2p(*relay)).with(Protocol::P2pCircuit)))
    }

    /// A place has been asked for.
    pub(in crate::network) fn asked(&mut self, listener: ListenerId, relay: PeerId) {
        self.held.insert(listener, Held { relay, stands: false });
    }

    /// The relay gave us a place, or prolonged it.
    pub(in crate::network) fn granted(&mut self, relay: PeerId) {
        for held in self.held.values_mut().filter(|held| held.relay == relay) {
            held.stands = true;
        }
        if let Some(known) = self.relays.get_mut(&relay) {
            known.failures = 0;
        }
    }

    /// A place was refused or lost; which relay's, and whether we had it. None if the listener was not one of ours.
    pub(in crate::network) fn ended(&mut self, listener: ListenerId, now: Instant) -> Option<(PeerId, bool)> {
        let Held { relay, stands } = self.held.remove(&listener)?;
        self.failed(relay, now);
        Some((relay, stands))
    }

    /// It could not even be asked.
    pub(in crate::network) fn failed(&mut self, relay: PeerId, now: Instant) {
        let failures = self.relays.get(&relay).map_or(0, |known| known.failures);
        let pause = RELAY_PAUSE.saturating_mul(1 << failures.min(16)).min(RELAY_LONGEST_PAUSE);
        let more = pause.mul_f64(f64::from(self.spread(&relay, failures)) / f64::from(u16::MAX));
        if let Some(known) = self.relays.get_mut(&relay) {
            known.failures += 1;
            known.not_before = Some(now + pause + more);
        }
    }

    /// Differs from peer to peer, so that those who lost the same relay do not all do the same in the same moment.
    fn spread(&self, relay: &PeerId, failures: u32) -> u16 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.me.to_bytes()).update(&relay.to_bytes()).update(&failures.to_le_bytes());
        let hash = hasher.finalize();
        u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]])
    }

    /// How it stands, in words, for a peer that hears nobody.
    pub(in crate::network) fn in_words(&self, now: Instant) -> Vec<String> {
        let each = self.relays.iter().map(|(relay, known)| {
            let place = known.places.first().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
            let stands = self.held.values().find(|held| held.relay == *relay).map(|held| held.stands);
            let state = match (stands, known.not_before) {
                (Some(true), _) => "has a place for us".to_owned(),
                (Some(false), _) => "has been asked for a place".to_owned(),
                (None, Some(until)) if known.failures > 0 => {
                    let wait: Duration = until.saturating_duration_since(now);
                    format!("failed {} times, asked again in {} s", known.failures, wait.as_secs())
                }
                (None, _) => "is not needed".to_owned(),
            };
            format!("the relay at {place} {state}")
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u8) -> Multiaddr {
        format!("/ip4/203.0.113.{number}/udp/4001/quic-v1").parse().unwrap()
    }

    fn knows(relays: &[PeerId]) -> Relaying {
        let mut relaying = Relaying::new(PeerId::random(), &[], true);
        for (number, relay) in (0..).zip(relays) {
            relaying.learn(*relay, vec![place(number)]);
        }
        relaying
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
    fn another_relay_takes_the_place_of_one_that_fails_and_that_is_asked_again_after_growing_pauses() {
        let relays = [1, 2, 3].map(|_| PeerId::random());
        let mut relaying = knows(&relays);
        let mut now = Instant::now();
        let mut taken = Vec::new();
        while let Some((relay, address)) = relaying.due(now, false) {
            assert!(address.to_string().ends_with("/p2p-circuit"), "{address}");
            let listener = ListenerId::next();
            relaying.asked(listener, relay);
            relaying.granted(relay);
            taken.push((listener, relay));
        }
        assert_eq!(taken.len(), RELAYS_AT_ONCE);
        let (listener, gone) = taken[0];
        assert_eq!(relaying.ended(listener, now), Some((gone, true)));
        let (third, _) = relaying.due(now, false).unwrap();
        assert!(taken.iter().all(|(_, relay)| *relay != third));

        let alone = [PeerId::random()];
        let mut relaying = knows(&alone);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let listener = ListenerId::next();
            relaying.asked(listener, alone[0]);
            relaying.ended(listener, now);
            let began = now;
            while relaying.due(now, false).is_none() {
                now += Duration::from_millis(100);
            }
            pauses.push(now - began);
        }
        for (failures, pause) in (0..).zip(&pauses) {
            let least = RELAY_PAUSE.saturating_mul(1 << failures).min(RELAY_LONGEST_PAUSE);
            assert!(*pause >= least && *pause <= 2 * least + Duration::from_millis(100), "{failures}: {pause:?}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
    fn no_place_is_asked_for_by_a_peer_that_is_reached_without_or_is_not_to_be_found() {
        let relay = PeerId::random();
        let now = Instant::now();
        assert!(knows(&[relay]).due(now, true).is_none());
        let mut visitor = Relaying::new(PeerId::random(), &[], false);
        visitor.learn(relay, vec![place(1)]);
        assert!(visitor.due(now, false).is_none());
    }

    #[test]
    fn a_crowd_of_relays_and_addresses_does_not_grow_without_bound() {
        let mut relaying = knows(&[]);
        let first = PeerId::random();
        relaying.learn(first, (0..99).map(place).collect());
        for _ in 0..99 {
            relaying.learn(PeerId::random(), vec![place(1)]);
        }
        assert_eq!(relaying.relays.len(), RELAYS_KNOWN);
        assert_eq!(relaying.relays[&first].places.len(), ADDRESSES_PER_RELAY);
    }
}
