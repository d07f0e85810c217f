//! Shows gossipsub one connection to each peer at a time, the newest, and only peers that are admitted.
//!
//! In a run by invitation, gossip with a peer begins when each of the two has admitted the other. Until then gossipsub
//! hears nothing of the peer, so it sends it nothing, and what the peer sends is dropped. The side that is told last
//! that it was accepted sends its subscriptions last, so none is dropped.
//!
//! A peer that is killed and restarts at once connects before its old connection is found dead. Gossipsub sends its
//! subscriptions only with the first connection to a peer, so the new process would never learn the subscriptions of
//! others and would receive no messages. Here, when a further connection is made, gossipsub is told that the peer went
//! and came again. Older connections are closed, unless their age differs by no more than that of simultaneous dials,
//! since a peer does not dial a connected peer. Two kinds stay: a relayed connection, which is closed separately once a
//! direct one has replaced it, and connections to a relay itself, which dials us to test our addresses.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
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

use crate::network::identity::peer_key;
use crate::network::standing::PeerAccess;

/// Connections of two peers that dial each other simultaneously differ by less than this.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Events of a peer that are kept until gossip with it begins: it subscribes to one module after the other meanwhile, and
/// says which messages it has. Frames of at most 12 KiB, from 192 peers: 74 MB at worst.
const MAX_FIRST: usize = 32;

struct Newest<E> {
    /// The first events of the connection, if the peer was not admitted then: they say which protocol the peer speaks and
    /// to what it has subscribed, and are not repeated.
    first: VecDeque<(ConnectionId, E)>,
    connection: ConnectionId,
    endpoint: ConnectedPoint,
    since: Instant,
    /// Whether an event was dropped, because there were too many.
    lost: bool,
    /// Whether the inner behaviour was told.
    told: bool,
}

/// A behaviour that sees only the newest connection to each admitted peer.
pub(crate) struct GossipConnection<B: NetworkBehaviour> {
    inner: B,
    access: Arc<dyn PeerAccess>,
    newest: HashMap<PeerId, Newest<THandlerOutEvent<B>>>,
    relays: BTreeSet<PeerId>,
    to_close: VecDeque<(PeerId, CloseConnection)>,
    /// Connections were made before it was known whether the run is open.
    undecided: bool,
}

impl<B: NetworkBehaviour> GossipConnection<B> {
    pub(crate) fn new(inner: B, access: Arc<dyn PeerAccess>) -> Self {
        Self {
            inner,
            access,
            newest: HashMap::new(),
            relays: BTreeSet::new(),
            to_close: VecDeque::new(),
            undecided: false,
        }
    }
}

impl<B: NetworkBehaviour> Deref for GossipConnection<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.inner
    }
}

impl<B: NetworkBehaviour> DerefMut for GossipConnection<B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.inner
    }
}

impl<B: NetworkBehaviour> GossipConnection<B> {
    /// Marks a peer as a relay, which may have several connections. Their number is bounded by that of known relays.
    pub(crate) fn is_relay(&mut self, peer: PeerId) {
        self.relays.insert(peer);
    }

    /// A relay is known no longer.
    pub(crate) fn is_no_relay(&mut self, peer: &PeerId) {
        self.relays.remove(peer);
    }
}

impl<B: NetworkBehaviour> GossipConnection<B> {
    /// Begins gossip with a peer, each of the two having admitted the other.
    pub(crate) fn begin_with(&mut self, peer: PeerId) {
        if self.admits(&peer)
            && let Some(newest) = self.newest.get_mut(&peer).filter(|newest| !newest.told)
        {
            newest.told = true;
            if newest.lost {
                // With the next connection, the peer sends all of its subscriptions.
                self.to_close.push_back((peer, CloseConnection::One(newest.connection)));
            }
            self.inner.on_swarm_event(FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id: peer,
                connection_id: newest.connection,
                endpoint: &newest.endpoint,
                failed_addresses: &[],
                other_established: 0,
            }));
            self.pass_on(peer);
        }
    }

    /// What the peer sent before gossip with it began.
    fn pass_on(&mut self, peer: PeerId) {
        let first = self.newest.get_mut(&peer).map(|newest| std::mem::take(&mut newest.first));
        for (connection, event) in first.into_iter().flatten() {
            self.inner.on_connection_handler_event(peer, connection, event);
        }
    }

    /// Begins gossip with everybody, if the run turns out to be open.
    fn begin_if_open(&mut self) {
        if self.undecided && !self.access.is_by_invitation() {
            self.undecided = false;
            let peers: Vec<PeerId> = self.newest.keys().copied().collect();
            peers.into_iter().for_each(|peer| self.begin_with(peer));
        }
    }

    fn admits(&self, peer: &PeerId) -> bool {
        peer_key(peer).is_some_and(|key| self.access.standing(key).gossips())
    }

    /// Called before the handler of another connection is created.
    fn replace_connection(&mut self, peer: PeerId) {
        let Some(Newest { connection, endpoint, since, .. }) = self.newest.remove(&peer) else { return };
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
        self.newest.insert(
            event.peer_id,
            Newest { first: VecDeque::new(), connection, endpoint, since: Instant::now(), lost: false, told: false },
        );
        match self.access.is_by_invitation() {
            true => self.undecided = true,
            false => self.begin_with(event.peer_id),
        }
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
        // Also from an older connection: the other side may have another newest one. Also before gossip has begun here:
        // the other side may know already that it begins.
        let admitted = self.admits(&peer);
        self.begin_if_open();
        match self.newest.get_mut(&peer) {
            Some(_) if admitted => {
                self.pass_on(peer);
                self.inner.on_connection_handler_event(peer, connection, event);
            }
            Some(newest) if newest.first.len() < MAX_FIRST => newest.first.push_back((connection, event)),
            Some(newest) => newest.lost = true,
            None => {}
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        if let Some((peer_id, connection)) = self.to_close.pop_front() {
            return Poll::Ready(ToSwarm::CloseConnection { peer_id, connection });
        }
        self.begin_if_open();
        self.inner.poll(context)
    }
}
