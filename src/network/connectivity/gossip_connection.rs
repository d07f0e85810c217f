//! Shows gossipsub one connection to each peer at a time: the newest.
//!
//! A peer that is killed and restarts at once connects before its old connection is found dead. Gossipsub sends its
//! subscriptions only with the first connection to a peer, so the new process would never learn the subscriptions of
//! others and would receive no messages. Here, when a further connection is made, gossipsub is told that the peer went
//! and came again. Older connections are closed, unless their age differs by no more than that of simultaneous dials,
//! since a peer does not dial a connected peer. Two kinds stay: a relayed connection, which is closed separately once a
//! direct one has replaced it, and connections to a relay itself, which dials us to test our addresses.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use libp2p::core::Endpoint;
use libp2p::core::connection::ConnectedPoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished};
use libp2p::swarm::{
    CloseConnection, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};

/// Connections of two peers that dial each other simultaneously differ by less than this.
const AT_ONCE: Duration = Duration::from_secs(5);

struct Newest {
    connection: ConnectionId,
    endpoint: ConnectedPoint,
    since: Instant,
}

/// A behaviour that sees only the newest connection to each peer.
pub(crate) struct GossipConnection<B> {
    inner: B,
    newest: HashMap<PeerId, Newest>,
    relays: BTreeSet<PeerId>,
    to_close: VecDeque<(PeerId, CloseConnection)>,
}

impl<B> GossipConnection<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self { inner, newest: HashMap::new(), relays: BTreeSet::new(), to_close: VecDeque::new() }
    }
}

impl<B> Deref for GossipConnection<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.inner
    }
}

impl<B> DerefMut for GossipConnection<B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.inner
    }
}

impl<B> GossipConnection<B> {
    /// Marks a peer as a relay, which may have several connections. Their number is bounded by that of known relays.
    pub(crate) fn is_relay(&mut self, peer: PeerId) {
        self.relays.insert(peer);
    }
}

impl<B: NetworkBehaviour> GossipConnection<B> {
    /// Called before the handler of another connection is created.
    fn replace_connection(&mut self, peer: PeerId) {
        let Some(Newest { connection, endpoint, since }) = self.newest.remove(&peer) else { return };
        self.closed(peer, connection, &endpoint);
        if since.elapsed() >= AT_ONCE && !endpoint.is_relayed() && !self.relays.contains(&peer) {
            self.to_close.push_back((peer, CloseConnection::One(connection)));
        }
    }

    fn closed(&mut self, peer_id: PeerId, connection_id: ConnectionId, endpoint: &ConnectedPoint) {
        let closed = ConnectionClosed { peer_id, connection_id, endpoint, cause: None, remaining_established: 0 };
        self.inner.on_swarm_event(FromSwarm::ConnectionClosed(closed));
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how old a connection is")]
    fn established(&mut self, event: ConnectionEstablished<'_>) {
        let (connection, endpoint) = (event.connection_id, event.endpoint.clone());
        self.newest.insert(event.peer_id, Newest { connection, endpoint, since: Instant::now() });
        let first = ConnectionEstablished { other_established: 0, ..event };
        self.inner.on_swarm_event(FromSwarm::ConnectionEstablished(first));
    }

    /// The inner behaviour is not told twice. If the newest connection closes, the others are closed too, since the
    /// inner behaviour does not see them.
    fn gone(&mut self, event: ConnectionClosed<'_>) {
        let peer = event.peer_id;
        if self.newest.get(&peer).is_none_or(|newest| newest.connection != event.connection_id) {
            return;
        }
        self.newest.remove(&peer);
        self.closed(peer, event.connection_id, event.endpoint);
        if event.remaining_established > 0 && !self.relays.contains(&peer) {
            self.to_close.push_back((peer, CloseConnection::All));
        }
    }
}

impl<B: NetworkBehaviour> NetworkBehaviour for GossipConnection<B> {
    type ConnectionHandler = B::ConnectionHandler;
    type ToSwarm = B::ToSwarm;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        self.inner.handle_pending_inbound_connection(connection, local, remote)
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.replace_connection(peer);
        self.inner.handle_established_inbound_connection(connection, peer, local, remote)
    }

    fn handle_pending_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        addresses: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        self.inner.handle_pending_outbound_connection(connection, peer, addresses, role)
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.replace_connection(peer);
        self.inner.handle_established_outbound_connection(connection, peer, address, role, port)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(event) => self.established(event),
            FromSwarm::ConnectionClosed(event) => self.gone(event),
            other => self.inner.on_swarm_event(other),
        }
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, connection: ConnectionId, event: THandlerOutEvent<Self>) {
        // Also from an older connection: the other side may have another newest one.
        if self.newest.contains_key(&peer) {
            self.inner.on_connection_handler_event(peer, connection, event);
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        if let Some((peer_id, connection)) = self.to_close.pop_front() {
            return Poll::Ready(ToSwarm::CloseConnection { peer_id, connection });
        }
        self.inner.poll(context)
    }
}
