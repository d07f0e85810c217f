//! The relays that a peer knows, and its reservations on them.
//!
//! A peer that cannot be reached from outside reserves a slot on a relay. Other peers then ask the relay for a circuit
//! to it. A peer learns of relays from its machine's profile and from its connections through relays. It holds
//! reservations on [`RELAYS_AT_ONCE`] relays, so that it can be reached when one of them fails. A reservation that is
//! lost or refused is requested again, first on the relays of the profile, then on the relay with the fewest failures,
//! after a pause that grows with each failure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use libp2p::core::transport::ListenerId;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

use crate::network::connectivity::addresses::{in_order, relay_and_address};
use crate::network::limits::{ADDRESSES_PER_RELAY, RELAY_LONGEST_PAUSE, RELAY_PAUSE, RELAYS_AT_ONCE, RELAYS_KNOWN};

/// A relay and its history.
struct Relay {
    addresses: Vec<Multiaddr>,
    /// Consecutive failures.
    failures: u32,
    not_before: Option<Instant>,
    /// Whether the machine's profile names it.
    configured: bool,
    /// Its number in the order in which relays were learnt.
    number: u64,
}

/// A reservation that was requested or granted.
struct Reservation {
    relay: PeerId,
    granted: bool,
}

/// The relays known, and the reservations on them.
pub(crate) struct Relays {
    me: PeerId,
    wanted: bool,
    relays: BTreeMap<PeerId, Relay>,
    next_number: u64,
    reservations: HashMap<ListenerId, Reservation>,
}

impl Relays {
    /// With the profile's relays. `wanted` tells whether other peers should find this one at all.
    pub(crate) fn new(me: PeerId, configured: &[Multiaddr], wanted: bool) -> Self {
        let mut relays = Self { me, wanted, relays: BTreeMap::new(), next_number: 0, reservations: HashMap::new() };
        for (relay, address) in configured.iter().filter_map(relay_and_address) {
            relays.learn(relay, vec![address]);
            relays.relays.entry(relay).and_modify(|known| known.configured = true);
        }
        relays
    }

    /// Remembers a relay, or more addresses of one. If the table is full, a new relay takes the place of the one that has
    /// failed most, and of these of the one that was learnt first; but not of one of the profile, or with a reservation.
    /// Returns the relay that is no longer known.
    pub(crate) fn learn(&mut self, relay: PeerId, addresses: Vec<Multiaddr>) -> Option<PeerId> {
        if relay == self.me {
            return None;
        }
        let mut replaced = None;
        if self.relays.len() >= RELAYS_KNOWN && !self.relays.contains_key(&relay) {
            replaced = Some(self.replaceable()?);
            self.relays.remove(&replaced?);
        }
        let number = self.next_number;
        let new = || Relay { addresses: Vec::new(), failures: 0, not_before: None, configured: false, number };
        let known = self.relays.entry(relay).or_insert_with(new);
        self.next_number += 1;
        for address in in_order(addresses) {
            if known.addresses.len() < ADDRESSES_PER_RELAY && !known.addresses.contains(&address) {
                known.addresses.push(address);
            }
        }
        replaced
    }

    fn replaceable(&self) -> Option<PeerId> {
        let idle = self.relays.iter().filter(|(relay, known)| !known.configured && self.is_idle(relay));
        idle.max_by_key(|(_, known)| (known.failures, Reverse(known.number))).map(|(relay, _)| *relay)
    }

    /// Whether no reservation on it was requested.
    fn is_idle(&self, relay: &PeerId) -> bool {
        self.reservations.values().all(|held| held.relay != *relay)
    }

    /// Whether this peer is a known relay.
    pub(crate) fn is_relay(&self, peer: &PeerId) -> bool {
        self.relays.contains_key(peer)
    }

    /// All known relays with their addresses.
    pub(crate) fn relays(&self) -> impl Iterator<Item = (PeerId, &[Multiaddr])> {
        self.relays.iter().map(|(relay, known)| (*relay, known.addresses.as_slice()))
    }

    /// Whether a reservation was granted, or none was requested, so that there is nothing to wait for.
    pub(crate) fn is_settled(&self) -> bool {
        self.reservations.is_empty() || self.reservations.values().any(|held| held.granted)
    }

    /// The relay to ask for a reservation now, if one is needed. `reachable` tells whether others connect without a
    /// relay.
    pub(crate) fn due(&self, now: Instant, reachable: bool) -> Option<(PeerId, Multiaddr)> {
        if !self.wanted || reachable || self.reservations.len() >= RELAYS_AT_ONCE {
            return None;
        }
        let rested = |known: &Relay| known.not_before.is_none_or(|until| until <= now);
        let (relay, known) = self
            .relays
            .iter()
            .filter(|(relay, known)| self.is_idle(relay) && rested(known) && !known.addresses.is_empty())
            .min_by_key(|(relay, known)| (!known.configured, known.failures, self.spread(relay, 0)))?;
        let address = &known.addresses[known.failures as usize % known.addresses.len()];
        Some((*relay, address.clone().with(Protocol::P2p(*relay)).with(Protocol::P2pCircuit)))
    }

    /// A reservation has been requested.
    pub(crate) fn asked(&mut self, listener: ListenerId, relay: PeerId) {
        self.reservations.insert(listener, Reservation { relay, granted: false });
    }

    /// The relay granted a reservation, or renewed it.
    pub(crate) fn granted(&mut self, relay: PeerId) {
        for held in self.reservations.values_mut().filter(|held| held.relay == relay) {
            held.granted = true;
        }
        if let Some(known) = self.relays.get_mut(&relay) {
            known.failures = 0;
        }
    }

    /// A reservation was refused or lost. Returns its relay, and whether it had been granted; `None` if the listener
    /// was not one of ours.
    pub(crate) fn ended(&mut self, listener: ListenerId, now: Instant) -> Option<(PeerId, bool)> {
        let Reservation { relay, granted } = self.reservations.remove(&listener)?;
        self.failed(relay, now);
        Some((relay, granted))
    }

    /// The relay could not be asked.
    pub(crate) fn failed(&mut self, relay: PeerId, now: Instant) {
        let failures = self.relays.get(&relay).map_or(0, |known| known.failures);
        let pause = RELAY_PAUSE.saturating_mul(1 << failures.min(16)).min(RELAY_LONGEST_PAUSE);
        let more = pause.mul_f64(f64::from(self.spread(&relay, failures)) / f64::from(u16::MAX));
        if let Some(known) = self.relays.get_mut(&relay) {
            known.failures += 1;
            known.not_before = Some(now + pause + more);
        }
    }

    /// Differs between peers, so that peers that lost the same relay do not all ask the next one at the same moment.
    fn spread(&self, relay: &PeerId, failures: u32) -> u16 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.me.to_bytes()).update(&relay.to_bytes()).update(&failures.to_le_bytes());
        let hash = hasher.finalize();
        u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]])
    }

    /// The state of each relay as text, for the report of a peer that is alone.
    pub(crate) fn in_words(&self, now: Instant) -> Vec<String> {
        let each = self.relays.iter().map(|(relay, known)| {
            let address = known.addresses.first().map_or_else(|| "an unknown address".to_owned(), ToString::to_string);
            let granted = self.reservations.values().find(|held| held.relay == *relay).map(|held| held.granted);
            let state = match (granted, known.not_before) {
                (Some(true), _) => "has granted a reservation".to_owned(),
                (Some(false), _) => "has been asked for a reservation".to_owned(),
                (None, Some(until)) if known.failures > 0 => {
                    let wait: Duration = until.saturating_duration_since(now);
                    format!("failed {} times, asked again in {} s", known.failures, wait.as_secs())
                }
                (None, _) => "is not needed".to_owned(),
            };
            format!("the relay at {address} {state}")
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> Multiaddr {
        format!("/ip4/203.0.113.{number}/udp/4001/quic-v1").parse().unwrap()
    }

    fn knows(known: &[PeerId]) -> Relays {
        let mut relays = Relays::new(PeerId::random(), &[], true);
        for (number, relay) in (0..).zip(known) {
            relays.learn(*relay, vec![address(number)]);
        }
        relays
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
    fn another_relay_takes_the_place_of_one_that_fails_and_that_is_asked_again_after_growing_pauses() {
        let relays = [1, 2, 3].map(|_| PeerId::random());
        let mut relays = knows(&relays);
        let mut now = Instant::now();
        let mut taken = Vec::new();
        while let Some((relay, address)) = relays.due(now, false) {
            assert!(address.to_string().ends_with("/p2p-circuit"), "{address}");
            let listener = ListenerId::next();
            relays.asked(listener, relay);
            relays.granted(relay);
            taken.push((listener, relay));
        }
        assert_eq!(taken.len(), RELAYS_AT_ONCE);
        let (listener, gone) = taken[0];
        assert_eq!(relays.ended(listener, now), Some((gone, true)));
        let (third, _) = relays.due(now, false).unwrap();
        assert!(taken.iter().all(|(_, relay)| *relay != third));

        let alone = [PeerId::random()];
        let mut relays = knows(&alone);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let listener = ListenerId::next();
            relays.asked(listener, alone[0]);
            relays.ended(listener, now);
            let began = now;
            while relays.due(now, false).is_none() {
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
    fn no_reservation_is_requested_by_a_peer_that_is_reached_without_or_is_not_to_be_found() {
        let relay = PeerId::random();
        let now = Instant::now();
        assert!(knows(&[relay]).due(now, true).is_none());
        let mut visitor = Relays::new(PeerId::random(), &[], false);
        visitor.learn(relay, vec![address(1)]);
        assert!(visitor.due(now, false).is_none());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
    fn a_relay_of_the_profile_is_asked_before_all_that_were_met_though_it_has_failed() {
        let own = PeerId::random();
        let mut relays = Relays::new(PeerId::random(), &[address(1).with(Protocol::P2p(own))], true);
        for number in 0..2 * RELAYS_KNOWN as u8 {
            relays.learn(PeerId::random(), vec![address(number)]);
        }
        let mut now = Instant::now();
        for _ in 0..3 {
            let (relay, _) = relays.due(now, false).unwrap();
            assert_eq!(relay, own);
            let listener = ListenerId::next();
            relays.asked(listener, relay);
            relays.ended(listener, now);
            assert_ne!(relays.due(now, false).unwrap().0, own, "while it rests");
            now += 2 * RELAY_LONGEST_PAUSE;
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
    fn relays_that_came_first_keep_no_later_one_out_and_drive_out_none_in_use() {
        let used = PeerId::random();
        let mut relays = knows(&[used]);
        let now = Instant::now();
        relays.asked(ListenerId::next(), relays.due(now, false).unwrap().0);
        let first = [(); RELAYS_KNOWN - 1].map(|()| PeerId::random());
        for relay in first {
            assert_eq!(relays.learn(relay, vec![address(2)]), None);
        }
        relays.failed(first[7], now);
        assert_eq!(relays.learn(PeerId::random(), vec![address(3)]), Some(first[7]), "it has failed");
        assert_eq!(relays.learn(PeerId::random(), vec![address(3)]), Some(first[0]), "the oldest");
        for _ in 0..99 {
            relays.learn(PeerId::random(), vec![address(4)]);
        }
        assert!(relays.is_relay(&used) && relays.relays.len() == RELAYS_KNOWN);
    }

    #[test]
    fn relays_and_addresses_do_not_grow_without_bound() {
        let mut relays = knows(&[]);
        let first = PeerId::random();
        relays.learn(first, (0..99).map(address).collect());
        for _ in 0..99 {
            relays.learn(PeerId::random(), vec![address(1)]);
        }
        assert_eq!(relays.relays.len(), RELAYS_KNOWN);
        assert!(!relays.relays.contains_key(&first), "a later one has its place");
        relays.learn(first, (0..99).map(address).collect());
        assert_eq!(relays.relays[&first].addresses.len(), ADDRESSES_PER_RELAY);
    }
}
