//! The shares themselves: who holds what, and whether there is a place for one more.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId, relay};

use crate::network::connectivity::address_scope::origin_of;
use crate::network::limits::{
    CIRCUIT_EVERY, CIRCUITS_IN_A_ROW, CIRCUITS_TO_PEER, PEERS_PER_IP, RESERVATION_EVERY, RESERVATIONS_IN_A_ROW,
};
use crate::network::protection::rate_limiter::KeyedRateLimiter;
use crate::network::relay_shares::bounds::RelayBounds;
use crate::network::relay_shares::refusal::Step;

/// The period of a relay's byte budgets.
const HOUR: Duration = Duration::from_secs(60 * 60);

/// The circuits of one IP address: an eighth, but never fewer than the peers of one household need.
fn circuits_of_ip(circuits: usize) -> usize {
    (circuits / 8).max(PEERS_PER_IP as usize)
}

/// The reservations of one IP address, which last twice as long: half as large a share.
fn reservations_of_ip(reservations: usize) -> usize {
    (reservations / 16).max(PEERS_PER_IP as usize)
}

/// A request that a limiter has just decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided {
    Reservation { granted: bool },
    Circuit { granted: bool },
}

/// A circuit that is requested or open.
struct Circuit {
    source: ConnectionId,
    from: PeerId,
    ip: Option<IpAddr>,
    /// Nothing if the destination may have no reservation.
    to: Option<PeerId>,
    destination: ConnectionId,
    open: bool,
}

/// What is held, and the rates of requests.
pub(super) struct Shares {
    bounds: RelayBounds,
    connections: HashMap<ConnectionId, (PeerId, Option<IpAddr>)>,
    /// The connections with a reservation.
    reserved: HashMap<ConnectionId, Option<IpAddr>>,
    circuits: Vec<Circuit>,
    /// Circuits that the limiter refused, by their source, until libp2p reports it.
    refused: HashMap<ConnectionId, usize>,
    /// The connection whose request is being decided.
    pub(super) asking: Option<ConnectionId>,
    pub(super) decided: Option<Decided>,
    reservations_per_peer: KeyedRateLimiter<PeerId>,
    reservations_per_ip: KeyedRateLimiter<IpAddr>,
    circuits_per_peer: KeyedRateLimiter<PeerId>,
    circuits_per_ip: KeyedRateLimiter<IpAddr>,
}

impl Shares {
    pub(super) fn new(bounds: RelayBounds) -> Self {
        let budget = bounds.hourly_bytes_per_ip / bounds.circuit_bytes.max(1);
        let reservations = RESERVATION_EVERY * RESERVATIONS_IN_A_ROW;
        Self {
            bounds,
            connections: HashMap::new(),
            reserved: HashMap::new(),
            circuits: Vec::new(),
            refused: HashMap::new(),
            asking: None,
            decided: None,
            reservations_per_peer: KeyedRateLimiter::in_each(reservations, RESERVATIONS_IN_A_ROW),
            reservations_per_ip: KeyedRateLimiter::in_each(reservations, RESERVATIONS_IN_A_ROW * PEERS_PER_IP),
            circuits_per_peer: KeyedRateLimiter::in_each(CIRCUIT_EVERY * CIRCUITS_IN_A_ROW, CIRCUITS_IN_A_ROW),
            circuits_per_ip: KeyedRateLimiter::in_each(HOUR, u32::try_from(budget).unwrap_or(u32::MAX)),
        }
    }

    /// The connection that asks, its peer and its IP address.
    fn asking(&self) -> Option<(ConnectionId, PeerId, Option<IpAddr>)> {
        let connection = self.asking?;
        self.connections.get(&connection).map(|(peer, ip)| (connection, *peer, *ip))
    }

    /// Judges a request for a reservation. One that is renewed has its place.
    pub(super) fn grants_reservation(&mut self) -> bool {
        let Some((connection, peer, ip)) = self.asking() else { return false };
        let of_ip = |ip: IpAddr| self.reserved.values().filter(|other| **other == Some(ip)).count();
        let place = self.reserved.contains_key(&connection)
            || (self.reserved.len() < self.bounds.reservations
                && ip.is_none_or(|ip| of_ip(ip) < reservations_of_ip(self.bounds.reservations)));
        let granted = place
            && self.reservations_per_peer.allows(&peer)
            && ip.is_none_or(|ip| self.reservations_per_ip.allows(&ip));
        self.decided = Some(Decided::Reservation { granted });
        granted
    }

    /// Judges a request for a circuit, by its source. What finds no place takes nothing of a rate.
    pub(super) fn grants_circuit(&mut self) -> bool {
        let Some((_, peer, ip)) = self.asking() else { return false };
        let count = |which: &dyn Fn(&Circuit) -> bool| self.circuits.iter().filter(|one| which(one)).count();
        let granted = self.circuits.len() < self.bounds.circuits
            && count(&|one| one.from == peer) < self.bounds.circuits_per_peer
            && ip.is_none_or(|ip| count(&|one| one.ip == Some(ip)) < circuits_of_ip(self.bounds.circuits))
            && self.circuits_per_peer.allows(&peer)
            && ip.is_none_or(|ip| self.circuits_per_ip.allows(&ip));
        self.decided = Some(Decided::Circuit { granted });
        granted
    }

    /// Notes what libp2p does about a request of this connection that was decided: it turns to a connection.
    pub(super) fn follow(&mut self, decided: Decided, from: ConnectionId, to: ConnectionId) -> Step {
        match decided {
            Decided::Reservation { granted: true } => {
                let ip = self.connections.get(&from).and_then(|(_, ip)| *ip);
                self.reserved.insert(from, ip);
            }
            Decided::Reservation { granted: false } => {}
            Decided::Circuit { granted: true } => {
                let refused = self.begin(from, to);
                if from != to {
                    return Step::Circuit { refused };
                }
            }
            Decided::Circuit { granted: false } => *self.refused.entry(from).or_default() += 1,
        }
        Step::Other
    }

    /// A circuit is requested of a destination, or refused to the source by libp2p if both connections are the same.
    /// Returns whether the destination has no place for it.
    fn begin(&mut self, source: ConnectionId, destination: ConnectionId) -> bool {
        let Some((from, ip)) = self.connections.get(&source).copied() else { return false };
        let to = self.connections.get(&destination).map(|(peer, _)| *peer).filter(|_| destination != source);
        let same = |one: &&Circuit| to.is_some() && one.to == to;
        let all = self.circuits.iter().filter(same).count();
        let of_ip = self.circuits.iter().filter(same).filter(|one| ip.is_some() && one.ip == ip).count();
        self.circuits.push(Circuit { source, from, ip, to, destination, open: false });
        all >= CIRCUITS_TO_PEER || of_ip >= PEERS_PER_IP as usize
    }

    /// The requested circuit that this event of the source is about.
    fn requested(&self, source: ConnectionId, to: PeerId) -> Option<usize> {
        let find =
            |to: Option<PeerId>| self.circuits.iter().position(|one| !one.open && one.source == source && one.to == to);
        find(Some(to)).or_else(|| find(None))
    }

    fn ended(&mut self, source: ConnectionId, to: PeerId) {
        if let Some(at) = self.requested(source, to) {
            self.circuits.swap_remove(at);
        }
    }

    /// A request was denied: by the limiter, or afterwards.
    fn denied(&mut self, source: ConnectionId, to: PeerId) {
        match self.refused.get_mut(&source).filter(|refused| **refused > 0) {
            Some(refused) => *refused -= 1,
            None => self.ended(source, to),
        }
    }

    /// Follows an event that libp2p has made of what came from this connection.
    #[expect(deprecated, reason = "libp2p reports some ends of a request only so")]
    pub(super) fn note(&mut self, event: &relay::Event, from: Option<ConnectionId>) {
        match (event, from) {
            (relay::Event::ReservationTimedOut { .. }, Some(connection)) => {
                self.reserved.remove(&connection);
            }
            (relay::Event::CircuitReqAccepted { dst_peer_id: to, .. }, Some(source)) => {
                if let Some(at) = self.requested(source, *to) {
                    self.circuits[at].to = Some(*to);
                    self.circuits[at].open = true;
                }
            }
            (
                relay::Event::CircuitReqDenied { dst_peer_id: to, .. }
                | relay::Event::CircuitReqDenyFailed { dst_peer_id: to, .. },
                Some(source),
            ) => self.denied(source, *to),
            (relay::Event::CircuitReqAcceptFailed { dst_peer_id: to, .. }, Some(source)) => self.ended(source, *to),
            (relay::Event::CircuitClosed { src_peer_id, dst_peer_id, .. }, _) => {
                let is_it = |one: &Circuit| one.open && one.from == *src_peer_id && one.to == Some(*dst_peer_id);
                if let Some(at) = self.circuits.iter().position(is_it) {
                    self.circuits.swap_remove(at);
                }
            }
            _ => {}
        }
    }

    pub(super) fn connected(&mut self, connection: ConnectionId, peer: PeerId, remote: &Multiaddr) {
        self.connections.insert(connection, (peer, origin_of(remote)));
    }

    /// libp2p reports the end of open circuits, but not of those that were requested.
    pub(super) fn closed(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
        self.reserved.remove(&connection);
        self.refused.remove(&connection);
        self.circuits.retain(|one| one.open || (one.source != connection && one.destination != connection));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::limits::{CIRCUITS, CIRCUITS_PER_PEER, RESERVATIONS};

    fn id(connection: usize) -> ConnectionId {
        ConnectionId::new_unchecked(connection)
    }

    /// A peer connects from the address with this number.
    fn connects(shares: &mut Shares, connection: usize, ip: usize) -> PeerId {
        let peer = PeerId::random();
        let remote = format!("/ip4/198.51.{}.{}/tcp/5", ip / 256, ip % 256).parse().unwrap();
        shares.connected(id(connection), peer, &remote);
        peer
    }

    fn reserves(shares: &mut Shares, connection: usize) -> bool {
        shares.asking = Some(id(connection));
        let granted = shares.grants_reservation();
        let decided = shares.decided.take().unwrap();
        shares.follow(decided, id(connection), id(connection));
        granted
    }

    fn opens(shares: &mut Shares, source: usize, destination: usize) -> bool {
        shares.asking = Some(id(source));
        let granted = shares.grants_circuit();
        let decided = shares.decided.take().unwrap();
        let step = shares.follow(decided, id(source), id(destination));
        let refused = matches!(step, Step::Circuit { refused: true });
        if !granted || refused {
            shares.denied(id(source), shares.connections[&id(destination)].0);
        }
        granted && !refused
    }

    #[test]
    fn one_address_with_many_keys_leaves_most_circuits_to_others_even_if_it_asks_for_all() {
        let mut shares = Shares::new(RelayBounds::default());
        for connection in 0..100 {
            connects(&mut shares, connection, connection / 50);
        }
        let all = (0..50).flat_map(|source| (50..100).map(move |to| (source, to)));
        let opened = all.filter(|(source, to)| opens(&mut shares, *source, *to)).count();
        assert_eq!(opened, CIRCUITS / 8);
        assert!(opens(&mut shares, 50, 51), "another address");
        for connection in 0..50 {
            shares.closed(id(connection));
        }
        connects(&mut shares, 0, 0);
        assert!(opens(&mut shares, 0, 51), "when they have gone");
    }

    #[test]
    fn whoever_opens_circuits_to_a_peer_keeps_neither_it_nor_another_address_from_opening_theirs() {
        let mut shares = Shares::new(RelayBounds::default());
        let (home, friend) = (0, 1);
        connects(&mut shares, home, 200);
        connects(&mut shares, friend, 201);
        let per_ip = PEERS_PER_IP as usize;
        for attacker in 0..4 {
            let keys = 10 + 40 * attacker..50 + 40 * attacker;
            for key in keys.clone() {
                connects(&mut shares, key, attacker);
            }
            assert_eq!(keys.filter(|key| opens(&mut shares, *key, home)).count(), per_ip);
        }
        assert!(opens(&mut shares, friend, home));
        let own = (0..2 * CIRCUITS_PER_PEER).map(|other| {
            connects(&mut shares, 1_000 + other, 300 + other);
            opens(&mut shares, home, 1_000 + other)
        });
        assert_eq!(own.filter(|opened| *opened).count(), CIRCUITS_PER_PEER);
        let others = (0..100).map(|other| {
            connects(&mut shares, 2_000 + other, 500 + other);
            opens(&mut shares, 2_000 + other, home)
        });
        assert_eq!(others.filter(|opened| *opened).count(), CIRCUITS_TO_PEER - 4 * per_ip - 1);
    }

    #[test]
    fn eight_addresses_do_not_hold_all_reservations_and_who_has_one_keeps_it() {
        let mut shares = Shares::new(RelayBounds::default());
        let mut held = Vec::new();
        for connection in 0..8 * 64 {
            connects(&mut shares, connection, connection / 64);
            if reserves(&mut shares, connection) {
                held.push(connection);
            }
        }
        assert_eq!(held.len(), RESERVATIONS / 2);
        for ip in 0..2 * RESERVATIONS {
            connects(&mut shares, 10_000 + ip, 100 + ip);
            reserves(&mut shares, 10_000 + ip);
        }
        assert_eq!(shares.reserved.len(), RESERVATIONS);
        assert!(reserves(&mut shares, held[0]), "it renews in a table that is full");
        shares.closed(id(held[1]));
        connects(&mut shares, 20_000, 5_000);
        assert!(reserves(&mut shares, 20_000), "a place that is free again");
    }

    #[test]
    fn a_circuit_counts_until_it_was_denied_or_is_closed_and_a_refused_one_does_not() {
        let mut shares = Shares::new(RelayBounds { circuits: 2, ..RelayBounds::default() });
        let [from, to] = [0, 1].map(|connection| connects(&mut shares, connection, connection));
        let event = |end: &str| match end {
            "accepted" => relay::Event::CircuitReqAccepted { src_peer_id: from, dst_peer_id: to },
            "closed" => relay::Event::CircuitClosed { src_peer_id: from, dst_peer_id: to, error: None },
            _ => relay::Event::CircuitReqDenied {
                src_peer_id: from,
                dst_peer_id: to,
                status: relay::StatusCode::NoReservation,
            },
        };
        assert!(opens(&mut shares, 0, 1) && opens(&mut shares, 0, 1) && !opens(&mut shares, 0, 1));
        shares.refused.insert(id(0), 1);
        shares.note(&event("denied"), Some(id(0)));
        assert!(!opens(&mut shares, 0, 1), "that was about the third");
        shares.note(&event("denied"), Some(id(0)));
        assert_eq!(shares.circuits.len(), 1);
        shares.note(&event("accepted"), Some(id(0)));
        shares.closed(id(1));
        assert_eq!(shares.circuits.len(), 1, "of an open one libp2p reports the end");
        shares.note(&event("closed"), None);
        assert!(shares.circuits.is_empty());
        // To itself, or to nobody: libp2p does not say which.
        assert!(opens(&mut shares, 0, 0));
        shares.note(&event("denied"), Some(id(0)));
        assert!(shares.circuits.is_empty());
    }
}
