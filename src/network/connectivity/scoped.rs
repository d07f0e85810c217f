//! A behaviour that dials only addresses of a scope that other peers may name.
//!
//! Kademlia, identify and hole punching dial what other peers tell them, and do not say who told them what. So an address
//! passes if its peer is connected and may name it, or if it is not and all that ever were connected may: any of them may
//! have passed it on, also that of a peer that was a neighbour.
//!
//! The others are left out, and the dial goes on without them: an honest peer in a house names the address at which its
//! neighbours see it beside that at which the world does. libp2p takes no address from a dial, so a dial with such an
//! address is refused, and begun again with the rest. The inner behaviour sees one dial, under its own number.

use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished, DialFailure};
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};

use crate::network::connectivity::address_scope::{Scope, scope_of};
use crate::network::connectivity::scopes::Scopes;

/// Why a dial was refused.
#[derive(Debug, thiserror::Error)]
#[error("a peer has named an address that it may not name, or that is none")]
struct NotItsToName;

/// A behaviour of which only some dials pass.
pub(crate) struct Scoped<B> {
    inner: B,
    scopes: Scopes,
    /// Its own dial that has not begun: the swarm asks at once about a dial that it is given.
    dial: Option<ConnectionId>,
    /// A dial that was refused, until the swarm has said so, at once.
    refused: Option<ConnectionId>,
    /// Dials that begin again.
    to_dial: VecDeque<DialOpts>,
    /// The inner behaviour's numbers of these dials, until they have failed or their connections are closed.
    asked: HashMap<ConnectionId, ConnectionId>,
}

impl<B> Scoped<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self {
            inner,
            scopes: Scopes::default(),
            dial: None,
            refused: None,
            to_dial: VecDeque::new(),
            asked: HashMap::new(),
        }
    }

    /// The inner behaviour's number of a connection.
    fn asked(&self, connection: ConnectionId) -> ConnectionId {
        self.asked.get(&connection).copied().unwrap_or(connection)
    }

    /// Begins a dial again, with some of its addresses. Hole punching, the only one that names several, dials a connected
    /// peer, from the port at which it listens.
    fn dial_again(&mut self, refused: ConnectionId, peer: PeerId, addresses: Vec<Multiaddr>, role: Endpoint) {
        let dial = DialOpts::peer_id(peer).condition(PeerCondition::Always).addresses(addresses);
        let dial = if role == Endpoint::Listener { dial.override_role().build() } else { dial.build() };
        self.asked.insert(dial.connection_id(), refused);
        self.refused = Some(refused);
        self.to_dial.push_back(dial);
    }

    /// Which addresses a peer may name of itself: by its connection; if there is none, by an earlier one on the LAN or
    /// this machine; else by what all may name.
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
            Some(peer) => self.scopes.of_named(peer),
            None => self.scopes.of_all(),
        };
        let own = self.dial.take_if(|dial| *dial == connection).is_some();
        if own && !addresses.iter().all(|address| scope.may_name(address)) {
            let rest: Vec<_> = addresses.iter().filter(|address| scope.may_name(address)).cloned().collect();
            if let Some(peer) = peer.filter(|_| !rest.is_empty()) {
                self.dial_again(connection, peer, rest, role);
            }
            return Err(ConnectionDenied::new(NotItsToName));
        }
        let connection = self.asked(connection);
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
        self.inner.handle_established_outbound_connection(self.asked(connection), peer, address, role, port)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(event) => {
                self.scopes.connected(event.peer_id, event.connection_id, event.endpoint);
                let connection_id = self.asked(event.connection_id);
                let event = ConnectionEstablished { connection_id, ..event };
                self.inner.on_swarm_event(FromSwarm::ConnectionEstablished(event));
            }
            FromSwarm::ConnectionClosed(event) => {
                self.scopes.closed(event.peer_id, event.connection_id);
                let connection_id = self.asked.remove(&event.connection_id).unwrap_or(event.connection_id);
                self.inner.on_swarm_event(FromSwarm::ConnectionClosed(ConnectionClosed { connection_id, ..event }));
            }
            FromSwarm::DialFailure(event)
                if self.refused.take_if(|refused| *refused == event.connection_id).is_some() => {}
            FromSwarm::DialFailure(event) => {
                let connection_id = self.asked.remove(&event.connection_id).unwrap_or(event.connection_id);
                self.inner.on_swarm_event(FromSwarm::DialFailure(DialFailure { connection_id, ..event }));
            }
            event => self.inner.on_swarm_event(event),
        }
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, connection: ConnectionId, event: THandlerOutEvent<Self>) {
        self.inner.on_connection_handler_event(peer, self.asked(connection), event);
    }

    /// Hands on no address that its source may not name, which other behaviours would dial; and none of this peer itself
    /// that is no address, which would be told to others: who is connected through a relay is seen as a mere peer id.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        if let Some(opts) = self.to_dial.pop_front() {
            return Poll::Ready(ToSwarm::Dial { opts });
        }
        loop {
            let next = self.inner.poll(context);
            match &next {
                Poll::Ready(ToSwarm::NewExternalAddrCandidate(address)) if scope_of(address).is_none() => continue,
                Poll::Ready(ToSwarm::NewExternalAddrOfPeer { peer_id, address })
                    if !self.scopes.of_peer(peer_id).may_name(address) =>
                {
                    continue;
                }
                Poll::Ready(ToSwarm::Dial { opts }) => self.dial = Some(opts.connection_id()),
                _ => {}
            }
            return next;
        }
    }
}

#[cfg(test)]
mod tests {
    use libp2p::core::connection::ConnectedPoint;
    use libp2p::swarm::DialError;

    use super::*;
    use crate::network::connectivity::providers::providers;

    fn endpoint(address: &str) -> ConnectedPoint {
        ConnectedPoint::Listener {
            local_addr: "/ip4/192.0.2.1/tcp/1".parse().unwrap(),
            send_back_addr: address.parse().unwrap(),
        }
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

    /// Hole punching: it dials addresses that the other side has named, and notes what becomes of it.
    #[derive(Default)]
    struct Punches {
        says: VecDeque<ToSwarm<std::convert::Infallible, std::convert::Infallible>>,
        failed: Vec<ConnectionId>,
        made: Vec<ConnectionId>,
        closed: Vec<ConnectionId>,
    }

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
            connection: ConnectionId,
            _: PeerId,
            _: &Multiaddr,
            _: Endpoint,
            _: PortUse,
        ) -> Result<THandler<Self>, ConnectionDenied> {
            self.made.push(connection);
            Ok(libp2p::swarm::dummy::ConnectionHandler)
        }

        fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
            match event {
                FromSwarm::DialFailure(event) => self.failed.push(event.connection_id),
                FromSwarm::ConnectionClosed(event) => self.closed.push(event.connection_id),
                _ => {}
            }
        }

        fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
            match event {}
        }

        fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
            self.says.pop_front().map_or(Poll::Pending, Poll::Ready)
        }
    }

    fn dials(scoped: &mut Scoped<Punches>) -> DialOpts {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(ToSwarm::Dial { opts }) = scoped.poll(&mut context) else { panic!("it dials") };
        opts
    }

    fn fails(scoped: &mut Scoped<Punches>, peer: PeerId, connection_id: ConnectionId) {
        let error = &DialError::Aborted;
        scoped.on_swarm_event(FromSwarm::DialFailure(DialFailure { peer_id: Some(peer), error, connection_id }));
    }

    #[test]
    fn a_hole_is_punched_at_the_public_address_of_one_that_names_its_address_in_the_house_as_well() {
        let (peer, public) = (PeerId::random(), "/ip4/203.0.113.7/udp/4001/quic-v1".parse::<Multiaddr>().unwrap());
        // As its neighbours see it, and as those see it that it has dialled through a relay.
        for other in ["/ip4/192.168.1.7/udp/4001/quic-v1".to_owned(), format!("/p2p/{peer}")] {
            let addresses = [other.parse::<Multiaddr>().unwrap(), public.clone()];
            let mut scoped = Scoped::new(Punches::default());
            connected(&mut scoped, peer, 1, "/ip4/198.51.100.1/tcp/9");
            let role = Endpoint::Listener;
            // Of each dial its number, and that under which it goes on.
            let numbers = [(); 3].map(|()| {
                let opts = DialOpts::peer_id(peer).addresses(addresses.to_vec()).override_role().build();
                let own = opts.connection_id();
                scoped.says.push_back(ToSwarm::Dial { opts });
                assert_eq!(dials(&mut scoped).connection_id(), own);
                assert!(scoped.handle_pending_outbound_connection(own, Some(peer), &addresses, role).is_err());
                fails(&mut scoped, peer, own);
                let opts = dials(&mut scoped);
                let (again, said) = (opts.connection_id(), format!("{opts:?}"));
                assert!(said.contains(&public.to_string()) && !said.contains(&other), "{said}");
                assert!(said.contains("role_override: Listener"), "{said}");
                let rest = std::slice::from_ref(&public);
                assert!(scoped.handle_pending_outbound_connection(again, Some(peer), rest, role).is_ok());
                (own, again)
            });
            assert!(scoped.failed.is_empty(), "they go on");
            let [(first, again), (second, made), (third, denied)] = numbers;
            fails(&mut scoped, peer, again);
            assert!(scoped.handle_established_outbound_connection(made, peer, &public, role, PortUse::New).is_ok());
            let endpoint = endpoint("/ip4/203.0.113.7/udp/4001/quic-v1");
            scoped.on_swarm_event(FromSwarm::ConnectionClosed(ConnectionClosed {
                peer_id: peer,
                connection_id: made,
                endpoint: &endpoint,
                cause: None,
                remaining_established: 1,
            }));
            fails(&mut scoped, peer, denied);
            assert_eq!((&scoped.failed[..], &scoped.made[..]), (&[first, third][..], &[second][..]));
            assert_eq!(scoped.closed, [second]);
            assert!(scoped.asked.is_empty() && scoped.refused.is_none() && scoped.to_dial.is_empty());
        }
    }

    #[test]
    fn what_is_no_address_is_not_told_to_others_and_what_somebody_outside_names_in_the_house_not_to_other_behaviours() {
        let (mut scoped, peer_id) = (Scoped::new(Punches::default()), PeerId::random());
        connected(&mut scoped, peer_id, 1, "/ip4/198.51.100.1/tcp/9");
        let public: Multiaddr = "/ip4/203.0.113.7/udp/4001/quic-v1".parse().unwrap();
        let in_the_house: Multiaddr = "/ip4/192.168.1.1/tcp/80".parse().unwrap();
        scoped.says.push_back(ToSwarm::NewExternalAddrCandidate(format!("/p2p/{peer_id}").parse().unwrap()));
        scoped.says.push_back(ToSwarm::NewExternalAddrOfPeer { peer_id, address: in_the_house });
        for says in [true, false] {
            scoped.says.push_back(match says {
                true => ToSwarm::NewExternalAddrCandidate(public.clone()),
                false => ToSwarm::NewExternalAddrOfPeer { peer_id, address: public.clone() },
            });
            match scoped.poll(&mut Context::from_waker(std::task::Waker::noop())) {
                Poll::Ready(ToSwarm::NewExternalAddrCandidate(address)) => assert!(says && address == public),
                Poll::Ready(ToSwarm::NewExternalAddrOfPeer { address, .. }) => assert!(!says && address == public),
                other => panic!("{other:?}"),
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
            let mut scoped = Scoped::new(Punches::default());
            scoped.says.push_back(ToSwarm::Dial { opts: DialOpts::from(address.clone()) });
            connected(&mut scoped, peer, 1, from);
            let own = dials(&mut scoped).connection_id();
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
}
