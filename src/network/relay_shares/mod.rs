//! Shares of a relay: how many reservations and circuits one peer, one IP address and one destination hold at a time.
//!
//! libp2p's relay counts the circuits of a peer whichever end it is, so that whoever opens circuits to a peer would keep
//! it from opening its own, and of IP addresses it knows only rates. So it is given no bounds of its own here. It asks a
//! limiter about each request, where [`Shares`] decides.
//!
//! A limiter is not told where a circuit is to lead. This shows only when libp2p turns to the destination. A circuit that
//! is one too many for its destination is refused at this point, as if the destination could not be asked ([`refusal`]):
//! the source gets its refusal.

mod bounds;
mod refusal;
mod shares;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, NotifyHandler, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId, relay};

pub use crate::network::relay_shares::bounds::RelayBounds;
use crate::network::relay_shares::refusal::{Refusing, Step};
use crate::network::relay_shares::shares::Shares;

/// The behaviour of a relay, in shares.
pub(crate) struct SharedRelay {
    inner: relay::Behaviour,
    shares: Arc<Mutex<Shares>>,
    actions: VecDeque<ToSwarm<relay::Event, THandlerInEvent<Self>>>,
}

fn lock(shares: &Mutex<Shares>) -> MutexGuard<'_, Shares> {
    // Each change is complete before anything can fail.
    shares.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedRelay {
    /// `config` has no bounds for reservations and circuits, nor rates: these are added here.
    pub(crate) fn new(me: PeerId, bounds: RelayBounds, mut config: relay::Config) -> Self {
        let shares = Arc::new(Mutex::new(Shares::new(bounds)));
        let limiter = |grants: fn(&mut Shares) -> bool| {
            let shares = shares.clone();
            move |_: PeerId, _: &Multiaddr, _: Instant| grants(&mut lock(&shares))
        };
        config.reservation_rate_limiters = vec![Box::new(limiter(Shares::grants_reservation))];
        config.circuit_src_rate_limiters = vec![Box::new(limiter(Shares::grants_circuit))];
        config.max_reservations = usize::MAX;
        config.max_circuits = usize::MAX;
        config.max_circuits_per_peer = usize::MAX;
        Self { inner: relay::Behaviour::new(me, config), shares, actions: VecDeque::new() }
    }

    /// Takes what the relay does next. libp2p does one thing for each event of a connection, so the first action after
    /// a request is about this request.
    fn take(&mut self, from: Option<ConnectionId>, context: &mut Context<'_>) {
        let mut shares = lock(&self.shares);
        let mut decided = shares.decided.take();
        while let Poll::Ready(action) = self.inner.poll(context) {
            let action = match action {
                ToSwarm::GenerateEvent(event) => {
                    shares.note(&event, from);
                    ToSwarm::GenerateEvent(event)
                }
                ToSwarm::NotifyHandler { peer_id, handler, event } => {
                    let step = match (decided.take(), from, &handler) {
                        (Some(decided), Some(from), NotifyHandler::One(to)) => shares.follow(decided, from, *to),
                        _ => Step::Other,
                    };
                    ToSwarm::NotifyHandler { peer_id, handler, event: (event, step) }
                }
                other => other.map_in(|event| (event, Step::Other)),
            };
            self.actions.push_back(action);
        }
    }
}

impl NetworkBehaviour for SharedRelay {
    type ConnectionHandler = Refusing<THandler<relay::Behaviour>>;
    type ToSwarm = relay::Event;

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.inner.handle_established_inbound_connection(connection, peer, local, remote).map(Refusing::new)
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.inner.handle_established_outbound_connection(connection, peer, address, role, port).map(Refusing::new)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match &event {
            FromSwarm::ConnectionEstablished(event) => {
                let remote = event.endpoint.get_remote_address();
                lock(&self.shares).connected(event.connection_id, event.peer_id, remote);
            }
            FromSwarm::ConnectionClosed(event) => lock(&self.shares).closed(event.connection_id),
            _ => {}
        }
        self.inner.on_swarm_event(event);
        self.take(None, &mut Context::from_waker(Waker::noop()));
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, connection: ConnectionId, event: THandlerOutEvent<Self>) {
        lock(&self.shares).asking = Some(connection);
        self.inner.on_connection_handler_event(peer, connection, event);
        self.take(Some(connection), &mut Context::from_waker(Waker::noop()));
        lock(&self.shares).asking = None;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.take(None, context);
        self.actions.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}
