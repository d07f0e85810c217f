//! A behaviour that dials only addresses of a scope that other peers may name.
//!
//! Kademlia and hole punching dial what other peers tell them, and do not say who told them what. So an address passes
//! if any connected peer may name it: as long as all are on this machine or this LAN, addresses there are tried.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::connection::ConnectedPoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};

use crate::network::connectivity::address_scope::{Scope, scope_of_connection};
use crate::network::limits::NEIGHBOURS_REMEMBERED;

/// Why a dial was refused.
#[derive(Debug, thiserror::Error)]
#[error("a peer elsewhere has named an address of this LAN or this machine")]
struct NotItsToName;

/// The connections of each peer, by their scopes.
#[derive(Debug, Default)]
struct Scopes {
    peers: HashMap<PeerId, BTreeMap<ConnectionId, Scope>>,
    /// Connections of each scope.
    counts: BTreeMap<Scope, usize>,
    /// Peers that were once connected on the LAN or this machine, the oldest first.
    neighbours: HashMap<PeerId, Scope>,
    by_age: VecDeque<PeerId>,
}

impl Scopes {
    fn connected(&mut self, peer: PeerId, connection: ConnectionId, endpoint: &ConnectedPoint) {
        let scope = scope_of_connection(endpoint);
        self.peers.entry(peer).or_default().insert(connection, scope);
        *self.counts.entry(scope).or_default() += 1;
        if scope == Scope::Public || endpoint.is_relayed() {
            return;
        }
        if self.neighbours.insert(peer, scope).is_none() {
            self.by_age.push_back(peer);
        }
        if self.by_age.len() > NEIGHBOURS_REMEMBERED
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.neighbours.remove(&oldest);
        }
    }

    fn closed(&mut self, peer: PeerId, connection: ConnectionId) {
        let Some(connections) = self.peers.get_mut(&peer) else { return };
        if let Some(count) = connections.remove(&connection).and_then(|scope| self.counts.get_mut(&scope)) {
            *count -= 1;
        }
        if connections.is_empty() {
            self.peers.remove(&peer);
        }
    }

    /// That of all peers together: the widest of their connections.
    fn of_all(&self) -> Scope {
        let widest = self.counts.iter().find(|(_, count)| **count > 0);
        widest.map_or(Scope::Loopback, |(scope, _)| *scope)
    }

    fn of_peer(&self, peer: &PeerId) -> Scope {
        let connected = self.peers.get(peer).and_then(|connections| connections.values().min().copied());
        connected.or_else(|| self.neighbours.get(peer).copied()).unwrap_or_else(|| self.of_all())
    }
}

/// A behaviour of which only some dials pass.
pub(crate) struct Scoped<B> {
    inner: B,
    scopes: Scopes,
    /// Its own dial that has not begun: the swarm asks at once about a dial that it is given.
    dial: Option<ConnectionId>,
}

impl<B> Scoped<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self { inner, scopes: Scopes::default(), dial: None }
    }

    /// Which addresses a peer may name: by its connection; if there is none, by an earlier one on the LAN or this
    /// machine; else by what any connected peer may name, since one of them has passed it on.
    pub(crate) fn scope_of(&self, peer: &PeerId) -> Scope {
        self.scopes.of_peer(peer)
    }
}

impl<B> Deref for Scoped<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.inner
    }
}

impl<B> DerefMut for Scoped<B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.inner
    }
}

impl<B: NetworkBehaviour> NetworkBehaviour for Scoped<B> {
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
        self.inner.handle_established_inbound_connection(connection, peer, local, remote)
    }

    fn handle_pending_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        addresses: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        let scope = match &peer {
            Some(peer) => self.scopes.of_peer(peer),
            None => self.scopes.of_all(),
        };
        let own = self.dial.take_if(|dial| *dial == connection).is_some();
        if own && !addresses.iter().all(|address| scope.may_name(address)) {
            return Err(ConnectionDenied::new(NotItsToName));
        }
        let mut known = self.inner.handle_pending_outbound_connection(connection, peer, addresses, role)?;
        known.retain(|address| scope.may_name(address));
        Ok(known)
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.inner.handle_established_outbound_connection(connection, peer, address, role, port)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match &event {
            FromSwarm::ConnectionEstablished(event) => {
                self.scopes.connected(event.peer_id, event.connection_id, event.endpoint);
            }
            FromSwarm::ConnectionClosed(event) => self.scopes.closed(event.peer_id, event.connection_id),
            _ => {}
        }
        self.inner.on_swarm_event(event);
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, connection: ConnectionId, event: THandlerOutEvent<Self>) {
        self.inner.on_connection_handler_event(peer, connection, event);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        let next = self.inner.poll(context);
        if let Poll::Ready(ToSwarm::Dial { opts }) = &next {
            self.dial = Some(opts.connection_id());
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use libp2p::swarm::behaviour::ConnectionEstablished;
    use libp2p::swarm::dial_opts::DialOpts;

    use super::*;
    use crate::network::connectivity::providers::providers;

    fn endpoint(address: &str) -> ConnectedPoint {
        ConnectedPoint::Listener {
            local_addr: "/ip4/192.0.2.1/tcp/1".parse().unwrap(),
            send_back_addr: address.parse().unwrap(),
        }
    }

    #[test]
    fn who_is_near_names_what_is_near_even_after_its_connection_is_lost_and_for_others_only_while_nobody_is_far() {
        let [near, far, unknown] = [(), (), ()].map(|()| PeerId::random());
        let mut scopes = Scopes::default();
        let [one, two] = [1, 2].map(ConnectionId::new_unchecked);
        assert_eq!(scopes.of_peer(&unknown), Scope::Loopback, "nobody has named anything but the user");
        scopes.connected(near, one, &endpoint("/ip4/192.168.1.7/tcp/1"));
        assert_eq!((scopes.of_peer(&near), scopes.of_peer(&unknown)), (Scope::Lan, Scope::Lan));
        scopes.connected(far, two, &endpoint("/ip4/203.0.113.7/tcp/1"));
        assert_eq!((scopes.of_peer(&near), scopes.of_peer(&unknown)), (Scope::Lan, Scope::Public));
        assert_eq!(scopes.of_peer(&far), Scope::Public);
        scopes.closed(near, one);
        assert_eq!(scopes.of_peer(&near), Scope::Lan);
        scopes.closed(far, two);
        assert_eq!(scopes.of_peer(&far), Scope::Loopback, "nobody is connected");
        assert!(scopes.peers.is_empty());
    }

    fn connected(scoped: &mut Scoped<impl NetworkBehaviour>, peer_id: PeerId, connection: usize, from: &str) {
        scoped.on_swarm_event(FromSwarm::ConnectionEstablished(ConnectionEstablished {
            peer_id,
            connection_id: ConnectionId::new_unchecked(connection),
            endpoint: &endpoint(from),
            failed_addresses: &[],
            other_established: 0,
        }));
    }

    #[test]
    fn kademlia_dials_no_address_of_the_lan_that_somebody_outside_has_named() {
        let doors = ["/ip4/192.168.1.1/tcp/80", "/ip4/127.0.0.1/tcp/22", "/ip6/fe80::1/tcp/80"];
        let public = "/ip4/203.0.113.7/tcp/4001";
        for (from, tried) in
            [("/ip4/198.51.100.1/tcp/9", 1), ("/ip4/192.168.1.7/tcp/9", 3), ("/ip4/127.0.0.1/tcp/9", 4)]
        {
            let (named, informant) = (PeerId::random(), PeerId::random());
            let mut scoped = Scoped::new(providers(PeerId::random()));
            connected(&mut scoped, informant, 1, from);
            for address in doors.iter().chain([&public]) {
                scoped.inner.add_address(&named, address.parse().unwrap());
            }
            let connection = ConnectionId::new_unchecked(2);
            let dialled = scoped.handle_pending_outbound_connection(connection, Some(named), &[], Endpoint::Dialer);
            assert_eq!(dialled.unwrap().len(), tried, "named by {from}");
        }
    }

    /// Hole punching: it dials an address that the other side has named.
    struct Punches(Option<Multiaddr>);

    impl NetworkBehaviour for Punches {
        type ConnectionHandler = libp2p::swarm::dummy::ConnectionHandler;
        type ToSwarm = std::convert::Infallible;

        fn handle_established_inbound_connection(
            &mut self,
            _: ConnectionId,
            _: PeerId,
            _: &Multiaddr,
            _: &Multiaddr,
        ) -> Result<THandler<Self>, ConnectionDenied> {
            Ok(libp2p::swarm::dummy::ConnectionHandler)
        }

        fn handle_established_outbound_connection(
            &mut self,
            _: ConnectionId,
            _: PeerId,
            _: &Multiaddr,
            _: Endpoint,
            _: PortUse,
        ) -> Result<THandler<Self>, ConnectionDenied> {
            Ok(libp2p::swarm::dummy::ConnectionHandler)
        }

        fn on_swarm_event(&mut self, _: FromSwarm<'_>) {}

        fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
            match event {}
        }

        fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
            match self.0.take() {
                Some(address) => Poll::Ready(ToSwarm::Dial { opts: DialOpts::from(address) }),
                None => Poll::Pending,
            }
        }
    }

    #[test]
    fn nobody_outside_punches_a_hole_into_the_house() {
        for (from, address, passes) in [
            ("/ip4/198.51.100.1/tcp/9", "/ip4/192.168.1.1/tcp/80", false),
            ("/ip4/198.51.100.1/tcp/9", "/ip4/203.0.113.7/tcp/80", true),
            ("/ip4/192.168.1.7/tcp/9", "/ip4/192.168.1.1/tcp/80", true),
        ] {
            let (peer, address) = (PeerId::random(), address.parse::<Multiaddr>().unwrap());
            let mut scoped = Scoped::new(Punches(Some(address.clone())));
            connected(&mut scoped, peer, 1, from);
            let mut context = Context::from_waker(std::task::Waker::noop());
            let Poll::Ready(ToSwarm::Dial { opts }) = scoped.poll(&mut context) else { panic!("it dials") };
            let own = opts.connection_id();
            let asks = |scoped: &mut Scoped<Punches>, connection| {
                scoped
                    .handle_pending_outbound_connection(
                        connection,
                        Some(peer),
                        std::slice::from_ref(&address),
                        Endpoint::Dialer,
                    )
                    .is_ok()
            };
            assert!(asks(&mut scoped, ConnectionId::new_unchecked(77)), "what the user dials is the user's");
            assert_eq!(asks(&mut scoped, own), passes, "{address} named by {from}");
        }
    }

    #[test]
    fn neighbours_that_come_and_go_do_not_fill_the_memory() {
        let mut scopes = Scopes::default();
        for id in 0..2 * NEIGHBOURS_REMEMBERED {
            let (peer, connection) = (PeerId::random(), ConnectionId::new_unchecked(id));
            scopes.connected(peer, connection, &endpoint("/ip4/127.0.0.1/tcp/1"));
            scopes.closed(peer, connection);
        }
        assert_eq!((scopes.neighbours.len(), scopes.by_age.len()), (NEIGHBOURS_REMEMBERED, NEIGHBOURS_REMEMBERED));
    }
}
