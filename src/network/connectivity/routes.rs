//! The routes to each connected peer: direct, or through a relay.
//!
//! A relayed route is slow and short-lived, and costs the relay's bandwidth. While there is a direct connection, a
//! further one through a relay is refused. A relayed one that came first is closed soon after a direct one was made.
//! Blob transfers ask here whether a peer is connected directly.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use libp2p::core::Endpoint;
use libp2p::core::connection::ConnectedPoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished};
use libp2p::swarm::{
    CloseConnection, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm, dummy,
};
use libp2p::{Multiaddr, PeerId};

use crate::network::connectivity::address_scope::origin_of;
use crate::network::connectivity::addresses::is_relayed;
use crate::network::limits::DETOUR_LASTS;

/// Why another connection was refused.
#[derive(Debug, thiserror::Error)]
#[error("a direct connection to the peer exists already")]
struct Detour;

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

    #[expect(clippy::disallowed_methods, reason = "an edge: how old a connection is")]
    fn established(&mut self, event: &ConnectionEstablished<'_>) {
        let route = self.peers.entry(event.peer_id).or_default();
        let since = Instant::now();
        if event.endpoint.is_relayed() {
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
