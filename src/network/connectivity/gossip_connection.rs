//! Tells gossipsub of one connection to each peer at a time: the newest.
//!
//! A peer that is killed and comes back at once connects before its old connection is found dead. Gossipsub tells its
//! subscriptions with the first connection to a peer only, so the new process would never learn who listens to what, and
//! nobody would hear it. Here, when a further connection is made, gossipsub is told that the peer went and
//! came again. Connections that are older by more than what two dials at once may differ by are closed, since a peer
//! dials nobody that it is connected to. Two kinds are left alone: one through a relay, which is closed in its own time
//! once a direct one has taken its place, and those to a relay itself, which dials us to try our addresses.

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

/// Two that dial each other at once have connections that differ by less.
const AT_ONCE: Duration = Duration::from_secs(5);

struct Newest {
    connection: ConnectionId,
    endpoint: ConnectedPoint,
    since: Instant,
}

/// A behaviour that is told of the newest connection to each peer only.
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
    /// This peer is a relay: it may have several connections. There are no more such peers than relays that are known.
    pub(crate) fn is_relay(&mut self, peer: PeerId) {
        self.relays.insert(peer);
    }
}

impl<B: NetworkBehaviour> GossipConnection<B> {
    /// Before the handler of another connection is made.
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

    /// What the inner behaviour was told before is not told again. If the newest goes, the others go with it: they have
    /// no part in the inner behaviour any more.
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
        // From an older connection, too: the other side may have another newest one.
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
