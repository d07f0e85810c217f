//! The routes to each connected peer: direct, or through a relay.
//!
//! A relayed route is slow and short-lived, and costs the relay's bandwidth. While there is a direct connection, a
//! further one through a relay is refused. A relayed one that came first is closed soon after a direct one was made.
//! Blob transfers ask here whether a peer is connected directly.
//!
//! An incoming connection through a relay has no IP address, and keys cost nothing. So these connections are counted by
//! their relays, and all together have half of the places for incoming ones.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use libp2p::core::Endpoint;
use libp2p::core::connection::ConnectedPoint;
use libp2p::core::transport::PortUse;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished};
use libp2p::swarm::{
    CloseConnection, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm, dummy,
};
use libp2p::{Multiaddr, PeerId};

use crate::network::connectivity::address_scope::origin_of;
use crate::network::connectivity::addresses::is_relayed;
use crate::network::limits::{DETOUR_LASTS, RELAYED_INCOMING, RELAYED_INCOMING_PER_RELAY};

/// Why another connection was refused.
#[derive(Debug, thiserror::Error)]
#[error("a direct connection to the peer exists already")]
struct Detour;

#[derive(Debug, thiserror::Error)]
#[error("too many connections come through relays")]
struct TooManyRelayed;

/// A direct connection.
struct Direct {
    since: Instant,
    /// Whether it was dialled from our listening port.
    from_listening_port: bool,
}

/// The connections to one peer; those through relays with their start times.
#[derive(Default)]
struct Route {
    direct: BTreeMap<ConnectionId, Direct>,
    relayed: BTreeMap<ConnectionId, Instant>,
}

/// The IP addresses of peers that are connected directly, for tasks beside the one that owns the swarm.
#[derive(Debug, Default)]
pub(crate) struct Origins(Mutex<HashMap<PeerId, IpAddr>>);

impl Origins {
    pub(crate) fn of(&self, peer: &PeerId) -> Option<IpAddr> {
        self.lock().get(peer).copied()
    }

    /// Whether there is a direct connection to a peer.
    pub(crate) fn is_direct(&self, peer: &PeerId) -> bool {
        self.lock().contains_key(peer)
    }

    /// The peers that are connected directly.
    pub(crate) fn peers(&self) -> Vec<PeerId> {
        self.lock().keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PeerId, IpAddr>> {
        // An entry is there or not.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tracks routes, and closes superfluous relayed ones.
#[derive(Default)]
pub(crate) struct Routes {
    peers: BTreeMap<PeerId, Route>,
    origins: Arc<Origins>,
    /// Incoming connections through relays, and the relay of each.
    incoming: HashMap<ConnectionId, Option<PeerId>>,
    to_close: VecDeque<(PeerId, ConnectionId)>,
    /// Our own addresses as observed by others, for AutoNAT and DCUtR.
    seen: VecDeque<Multiaddr>,
}

impl Routes {
    /// Whether there is a direct connection.
    pub(crate) fn is_direct(&self, peer: &PeerId) -> bool {
        self.peers.get(peer).is_some_and(|route| !route.direct.is_empty())
    }

    /// The IP addresses of peers, as they change.
    pub(crate) fn origins(&self) -> Arc<Origins> {
        self.origins.clone()
    }

    /// The start of the first connection, if all connections to a peer are relayed.
    pub(crate) fn relayed_since(&self, peer: &PeerId) -> Option<Instant> {
        let route = self.peers.get(peer).filter(|route| route.direct.is_empty())?;
        route.relayed.values().min().copied()
    }

    /// Whether this connection was dialled from our listening port, so that the other peer observed that port.
    pub(crate) fn is_from_listening_port(&self, peer: &PeerId, connection: ConnectionId) -> bool {
        let route = self.peers.get(peer).and_then(|route| route.direct.get(&connection));
        route.is_some_and(|direct| direct.from_listening_port)
    }

    /// Closes relayed connections next to which a direct one has existed long enough.
    pub(crate) fn close_detours(&mut self, now: Instant) {
        for (peer, route) in &self.peers {
            if route.direct.values().any(|direct| now.duration_since(direct.since) >= DETOUR_LASTS) {
                self.to_close.extend(route.relayed.keys().map(|connection| (*peer, *connection)));
            }
        }
    }

    /// The address at which a peer outside observed our listening port.
    pub(crate) fn seen_at(&mut self, address: Multiaddr) {
        self.seen.push_back(address);
    }

    fn admit(&self, peer: &PeerId, address: &Multiaddr) -> Result<dummy::ConnectionHandler, ConnectionDenied> {
        match is_relayed(address) && self.is_direct(peer) {
            true => Err(ConnectionDenied::new(Detour)),
            false => Ok(dummy::ConnectionHandler),
        }
    }

    /// Whether one more connection may come from this local address, if that is on a relay.
    fn admit_incoming(&self, local: &Multiaddr) -> Result<(), ConnectionDenied> {
        let relay = relay_in(local);
        let through_it = self.incoming.values().filter(|other| **other == relay).count();
        let space = self.incoming.len() < RELAYED_INCOMING && through_it < RELAYED_INCOMING_PER_RELAY;
        match is_relayed(local) && !space {
            true => Err(ConnectionDenied::new(TooManyRelayed)),
            false => Ok(()),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how old a connection is")]
    fn established(&mut self, event: &ConnectionEstablished<'_>) {
        let route = self.peers.entry(event.peer_id).or_default();
        let since = Instant::now();
        if event.endpoint.is_relayed() {
            if let ConnectedPoint::Listener { local_addr, .. } = event.endpoint {
                self.incoming.insert(event.connection_id, relay_in(local_addr));
            }
            route.relayed.insert(event.connection_id, since);
        } else {
            let from_listening_port = matches!(event.endpoint, ConnectedPoint::Dialer { port_use: PortUse::Reuse, .. });
            route.direct.insert(event.connection_id, Direct { since, from_listening_port });
            if let Some(ip) = origin_of(event.endpoint.get_remote_address()) {
                self.origins.lock().insert(event.peer_id, ip);
            }
        }
    }

    fn closed(&mut self, event: &ConnectionClosed<'_>) {
        self.incoming.remove(&event.connection_id);
        let Some(route) = self.peers.get_mut(&event.peer_id) else { return };
        route.direct.remove(&event.connection_id);
        route.relayed.remove(&event.connection_id);
        if route.direct.is_empty() {
            self.origins.lock().remove(&event.peer_id);
        }
        if route.direct.is_empty() && route.relayed.is_empty() {
            self.peers.remove(&event.peer_id);
        }
    }
}

/// The relay in the address of a circuit.
fn relay_in(address: &Multiaddr) -> Option<PeerId> {
    address.iter().find_map(|part| match part {
        Protocol::P2p(relay) => Some(relay),
        _ => None,
    })
}

impl NetworkBehaviour for Routes {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = std::convert::Infallible;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.admit_incoming(local)?;
        self.admit(&peer, local)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.admit(&peer, address)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(event) => self.established(&event),
            FromSwarm::ConnectionClosed(event) => self.closed(&event),
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        if let Some((peer_id, connection)) = self.to_close.pop_front() {
            let connection = CloseConnection::One(connection);
            return Poll::Ready(ToSwarm::CloseConnection { peer_id, connection });
        }
        match self.seen.pop_front() {
            Some(address) => Poll::Ready(ToSwarm::NewExternalAddrCandidate(address)),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::limits::INCOMING_CONNECTIONS;

    fn comes(routes: &mut Routes, number: usize, local: &Multiaddr) -> bool {
        let (peer_id, connection_id) = (PeerId::random(), ConnectionId::new_unchecked(number));
        let endpoint = ConnectedPoint::Listener { local_addr: local.clone(), send_back_addr: local.clone() };
        if routes.handle_established_inbound_connection(connection_id, peer_id, local, local).is_err() {
            return false;
        }
        routes.on_swarm_event(FromSwarm::ConnectionEstablished(ConnectionEstablished {
            peer_id,
            connection_id,
            endpoint: &endpoint,
            failed_addresses: &[],
            other_established: 0,
        }));
        true
    }

    #[test]
    fn keys_that_come_through_one_relay_leave_places_to_others_and_all_relays_leave_half_to_direct_connections() {
        let mut routes = Routes::default();
        let mut number = 0;
        let mut come = |routes: &mut Routes, local: &Multiaddr| {
            (0..INCOMING_CONNECTIONS)
                .filter(|_| {
                    comes(
                        routes,
                        {
                            number += 1;
                            number
                        },
                        local,
                    )
                })
                .count()
        };
        let through =
            || -> Multiaddr { format!("/ip4/203.0.113.7/tcp/1/p2p/{}/p2p-circuit", PeerId::random()).parse().unwrap() };
        let first = through();
        assert_eq!(come(&mut routes, &first), RELAYED_INCOMING_PER_RELAY);
        assert_eq!(come(&mut routes, &through()), RELAYED_INCOMING_PER_RELAY);
        assert_eq!(come(&mut routes, &through()), RELAYED_INCOMING - 2 * RELAYED_INCOMING_PER_RELAY);
        assert_eq!(come(&mut routes, &"/ip4/192.0.2.1/tcp/1".parse().unwrap()), INCOMING_CONNECTIONS as usize);
        let endpoint = ConnectedPoint::Listener { local_addr: first.clone(), send_back_addr: first.clone() };
        routes.on_swarm_event(FromSwarm::ConnectionClosed(ConnectionClosed {
            peer_id: PeerId::random(),
            connection_id: ConnectionId::new_unchecked(1),
            endpoint: &endpoint,
            cause: None,
            remaining_established: 0,
        }));
        assert!(comes(&mut routes, 9_999, &first), "when one has gone");
    }
}
