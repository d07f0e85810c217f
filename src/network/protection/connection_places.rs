//! Shares the places for incoming connections, so that those who came first do not keep all others out.
//!
//! As long as there is space, whoever comes gets a place. When all are taken, a connection of a better claim takes that of
//! another, which is closed: members come before others, and an IP address or a network with few places before one with
//! at least two more. Connections that this peer has dialled are counted, and stay.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::connection::ConnectedPoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::behaviour::ConnectionEstablished;
use libp2p::swarm::{
    CloseConnection, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm, dummy,
};
use libp2p::{Multiaddr, PeerId};

use crate::network::connectivity::address_scope::origin_of;
use crate::network::connectivity::addresses::is_relayed;
use crate::network::identity::peer_key;
use crate::network::limits::{CLOSING_CONNECTIONS, CONNECTIONS, INCOMING_CONNECTIONS};
use crate::network::protection::per_ip_limiter::site_of;
use crate::network::standing::{PeerAccess, Standing};

#[derive(Debug, thiserror::Error)]
#[error("all places for connections are taken")]
struct NoPlace;

/// What places are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// An IP address, or that of the relay through which a connection comes.
    Ip(IpAddr),
    /// A peer on this machine, on which there may be many.
    Own(PeerId),
    /// A relay that has a name.
    Unknown,
}

/// An incoming connection.
#[derive(Clone, Copy, Debug)]
struct Claim {
    peer: PeerId,
    origin: Origin,
    /// The network of its origin.
    site: Origin,
}

impl Claim {
    fn new(peer: PeerId, local: &Multiaddr, remote: &Multiaddr) -> Self {
        let relayed = is_relayed(local);
        let origin = match origin_of(if relayed { local } else { remote }) {
            Some(ip) if ip.is_loopback() && !relayed => Origin::Own(peer),
            Some(ip) => Origin::Ip(ip),
            None => Origin::Unknown,
        };
        let site = if let Origin::Ip(ip) = origin { Origin::Ip(site_of(ip)) } else { origin };
        Self { peer, origin, site }
    }
}

/// How many places each network, address and key has.
#[derive(Default)]
struct Held {
    sites: BTreeMap<Origin, usize>,
    origins: BTreeMap<Origin, usize>,
    peers: BTreeMap<PeerId, usize>,
}

impl Held {
    fn of<'a>(claims: impl Iterator<Item = &'a Claim>) -> Self {
        let mut held = Self::default();
        for claim in claims {
            *held.sites.entry(claim.site).or_default() += 1;
            *held.origins.entry(claim.origin).or_default() += 1;
            *held.peers.entry(claim.peer).or_default() += 1;
        }
        held
    }

    /// Those of the network, of the address and of the key of a connection.
    fn by(&self, claim: &Claim) -> [usize; 3] {
        let count = |held: Option<&usize>| held.copied().unwrap_or_default();
        [count(self.sites.get(&claim.site)), count(self.origins.get(&claim.origin)), count(self.peers.get(&claim.peer))]
    }
}

/// The places of incoming connections.
pub(crate) struct ConnectionPlaces {
    access: Arc<dyn PeerAccess>,
    incoming: BTreeMap<ConnectionId, Claim>,
    outgoing: BTreeSet<ConnectionId>,
    /// Connections that had to make room, until they are closed.
    closing: BTreeSet<ConnectionId>,
    to_close: VecDeque<(PeerId, ConnectionId)>,
}

impl ConnectionPlaces {
    pub(crate) fn new(access: Arc<dyn PeerAccess>) -> Self {
        Self {
            access,
            incoming: BTreeMap::new(),
            outgoing: BTreeSet::new(),
            closing: BTreeSet::new(),
            to_close: VecDeque::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.incoming.len() >= INCOMING_CONNECTIONS as usize || self.is_full_in_all()
    }

    fn is_full_in_all(&self) -> bool {
        self.incoming.len() + self.outgoing.len() >= CONNECTIONS as usize
    }

    fn standing(&self, peer: &PeerId) -> Standing {
        peer_key(peer).map_or(Standing::NotAdmitted, |key| self.access.standing(key))
    }

    /// The connection that has to make room for this one, if any does: of the lowest standing, of the network with the
    /// most places, of the address there with the most, of the key with the most, the one that came last.
    fn makes_room(&self, newcomer: &Claim) -> Option<ConnectionId> {
        let held = Held::of(self.incoming.values());
        let claims = self.incoming.iter();
        let ranked = claims.map(|(id, claim)| (Reverse(self.standing(&claim.peer)), held.by(claim), *id));
        let (Reverse(standing), [of_site, of_origin, of_peer], id) = ranked.max()?;
        let other = self.incoming.get(&id)?;
        let [own_site, own_origin, own_peer] = held.by(newcomer);
        let has_more = match (other.site == newcomer.site, other.origin == newcomer.origin) {
            (false, _) => of_site > own_site + 1,
            (true, false) => of_origin > own_origin + 1,
            (true, true) => of_peer > own_peer + 1,
        };
        let own_standing = self.standing(&newcomer.peer);
        (standing < own_standing || (standing == own_standing && has_more)).then_some(id)
    }

    fn admit(&mut self, newcomer: &Claim) -> Result<(), NoPlace> {
        if !self.is_full() {
            return Ok(());
        }
        if self.closing.len() >= CLOSING_CONNECTIONS {
            return Err(NoPlace);
        }
        let id = self.makes_room(newcomer).ok_or(NoPlace)?;
        if let Some(Claim { peer, .. }) = self.incoming.remove(&id) {
            tracing::debug!(%peer, "a connection makes room for another one");
            self.closing.insert(id);
            self.to_close.push_back((peer, id));
        }
        Ok(())
    }

    fn established(&mut self, event: &ConnectionEstablished<'_>) {
        match event.endpoint {
            ConnectedPoint::Listener { local_addr, send_back_addr } => {
                let claim = Claim::new(event.peer_id, local_addr, send_back_addr);
                self.incoming.insert(event.connection_id, claim);
            }
            ConnectedPoint::Dialer { .. } => {
                self.outgoing.insert(event.connection_id);
            }
        }
    }
}

impl NetworkBehaviour for ConnectionPlaces {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = std::convert::Infallible;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.admit(&Claim::new(peer, local, remote)).map_err(ConnectionDenied::new)?;
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        match self.is_full_in_all() {
            true => Err(ConnectionDenied::new(NoPlace)),
            false => Ok(dummy::ConnectionHandler),
        }
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(event) => self.established(&event),
            FromSwarm::ConnectionClosed(event) => {
                self.incoming.remove(&event.connection_id);
                self.outgoing.remove(&event.connection_id);
                self.closing.remove(&event.connection_id);
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        match self.to_close.pop_front() {
            Some((peer_id, connection)) => {
                Poll::Ready(ToSwarm::CloseConnection { peer_id, connection: CloseConnection::One(connection) })
            }
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::names::PeerKey;
    use crate::network::identity::{Identity, peer_id};

    /// Peers of an open run, some of them members.
    #[derive(Default)]
    struct Known(Mutex<BTreeSet<PeerKey>>);

    impl PeerAccess for Known {
        fn standing(&self, peer: PeerKey) -> Standing {
            if self.0.lock().unwrap().contains(&peer) { Standing::Member } else { Standing::Stranger }
        }
    }

    /// The places, and the connections that came and were told to go.
    struct Test {
        places: ConnectionPlaces,
        known: Arc<Known>,
        next: usize,
    }

    impl Test {
        fn new() -> Self {
            let known = Arc::new(Known::default());
            Self { places: ConnectionPlaces::new(known.clone()), known, next: 0 }
        }

        fn member(&self) -> PeerId {
            let key = Identity::generate().key();
            self.known.0.lock().unwrap().insert(key);
            peer_id(key).unwrap()
        }

        fn established(&mut self, peer_id: PeerId, endpoint: &ConnectedPoint) {
            let connection_id = ConnectionId::new_unchecked(self.next);
            self.next += 1;
            self.places.on_swarm_event(FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id,
                connection_id,
                endpoint,
                failed_addresses: &[],
                other_established: 0,
            }));
        }

        /// Whether a connection got a place.
        fn comes(&mut self, peer: PeerId, from: &str) -> bool {
            self.comes_to("/ip4/192.0.2.1/tcp/4001", peer, from)
        }

        fn comes_to(&mut self, local: &str, peer: PeerId, from: &str) -> bool {
            let (local_addr, send_back_addr) = (local.parse().unwrap(), from.parse().unwrap());
            let admitted = self.places.admit(&Claim::new(peer, &local_addr, &send_back_addr)).is_ok();
            if admitted {
                self.established(peer, &ConnectedPoint::Listener { local_addr, send_back_addr });
            }
            admitted
        }

        fn dials(&mut self) -> bool {
            let (address, peer) = ("/ip4/198.51.100.99/tcp/1".parse().unwrap(), PeerId::random());
            let role = (Endpoint::Dialer, PortUse::New);
            let id = ConnectionId::new_unchecked(self.next);
            let places = &mut self.places;
            let admitted = places.handle_established_outbound_connection(id, peer, &address, role.0, role.1).is_ok();
            if admitted {
                self.established(peer, &ConnectedPoint::Dialer { address, role_override: role.0, port_use: role.1 });
            }
            admitted
        }

        /// As many as there are places, each from the next of these addresses.
        fn filled(&mut self, from: impl Fn(u32) -> String) {
            for number in 0..INCOMING_CONNECTIONS {
                assert!(self.comes(PeerId::random(), &from(number)));
            }
            assert!(self.places.is_full() && self.places.to_close.is_empty());
        }

        /// The peers that had to make room, which are gone then.
        fn gone(&mut self) -> Vec<PeerId> {
            let gone: Vec<_> = self.places.to_close.drain(..).collect();
            gone.iter().for_each(|(_, id)| assert!(self.places.closing.remove(id)));
            gone.into_iter().map(|(peer, _)| peer).collect()
        }
    }

    #[test]
    fn three_addresses_that_hold_all_places_make_room_for_others() {
        let mut test = Test::new();
        test.filled(|number| format!("/ip4/198.51.100.{}/tcp/{number}", number % 3));
        assert!(!test.comes(PeerId::random(), "/ip4/198.51.100.1/tcp/999"), "one more of these");
        let came =
            (0..500).filter(|other| test.comes(PeerId::random(), &format!("/ip4/203.0.113.{}/tcp/1", other % 20)));
        assert_eq!(came.count(), 165, "eight or nine, as each of the three has in the end");
        assert_eq!(test.gone().len(), 165);
        assert_eq!(test.places.incoming.len(), INCOMING_CONNECTIONS as usize);
    }

    #[test]
    fn a_network_of_48_bits_holds_no_more_than_an_address() {
        let mut test = Test::new();
        test.filled(|number| format!("/ip6/2001:db8:1:{number:x}::1/tcp/1"));
        assert!(!test.comes(PeerId::random(), "/ip6/2001:db8:1:ffff::1/tcp/1"));
        for other in 0..90 {
            assert!(test.comes(PeerId::random(), &format!("/ip4/203.0.113.7/tcp/{other}")), "{other}");
        }
    }

    #[test]
    fn members_get_a_place_wherever_they_are_and_strangers_take_none_of_theirs() {
        let mut test = Test::new();
        test.filled(|number| format!("/ip4/198.51.{number}.1/tcp/1"));
        assert!(!test.comes(PeerId::random(), "/ip4/203.0.113.7/tcp/1"), "all have as much");
        let members: Vec<PeerId> = (0..INCOMING_CONNECTIONS).map(|_| test.member()).collect();
        for member in &members {
            assert!(test.comes(*member, "/ip4/198.51.1.1/tcp/1"));
            assert!(!test.gone().iter().any(|gone| members.contains(gone)));
        }
        assert!(!test.comes(PeerId::random(), "/ip4/203.0.113.7/tcp/1"));
        let member = test.member();
        assert!(!test.comes(member, "/ip4/198.51.1.1/tcp/1"), "members have as much of this address");
        assert!(test.comes(member, "/ip4/203.0.113.7/tcp/1"));
    }

    #[test]
    fn who_became_a_member_since_it_came_stays() {
        let mut test = Test::new();
        let newcomer = peer_id(Identity::generate().key()).unwrap();
        assert!(test.comes(newcomer, "/ip4/198.51.100.1/tcp/1"));
        test.known.0.lock().unwrap().insert(peer_key(&newcomer).unwrap());
        for number in 0..400 {
            test.comes(PeerId::random(), &format!("/ip4/198.51.100.1/tcp/{number}"));
            test.comes(PeerId::random(), &format!("/ip4/203.0.{}.7/tcp/1", number % 100));
        }
        let gone = test.gone();
        assert!(!gone.is_empty() && !gone.contains(&newcomer));
    }

    #[test]
    fn peers_of_this_machine_are_not_counted_together_and_those_behind_a_relay_are() {
        let mut test = Test::new();
        let own: Vec<PeerId> = (0..16).map(|_| PeerId::random()).collect();
        for peer in &own {
            assert!(test.comes(*peer, "/ip4/127.0.0.1/tcp/1"));
        }
        let relay = format!("/ip4/198.51.100.7/tcp/1/p2p/{}/p2p-circuit", PeerId::random());
        while !test.places.is_full() {
            let peer = PeerId::random();
            assert!(test.comes_to(&relay, peer, &format!("/p2p/{peer}")));
        }
        for number in 0..80 {
            assert!(test.comes(PeerId::random(), &format!("/ip4/203.0.113.{number}/tcp/1")));
        }
        assert!(!test.gone().iter().any(|gone| own.contains(gone)));
    }

    #[test]
    fn connections_that_do_not_close_are_bounded() {
        let mut test = Test::new();
        test.filled(|number| format!("/ip4/198.51.100.1/tcp/{number}"));
        let came = (0..1_000).filter(|_| {
            let member = test.member();
            test.comes(member, "/ip4/203.0.113.7/tcp/1")
        });
        assert_eq!(came.count(), INCOMING_CONNECTIONS as usize);
        let came = (0..1_000_u32).filter(|number| {
            let member = test.member();
            test.comes(member, &format!("/ip4/203.{}.{}.7/tcp/1", number / 250, number % 250))
        });
        assert!(came.count() + INCOMING_CONNECTIONS as usize <= CLOSING_CONNECTIONS);
    }

    #[test]
    fn places_for_connections_that_this_peer_dials_are_left() {
        let mut test = Test::new();
        test.filled(|number| format!("/ip4/198.51.100.1/tcp/{number}"));
        let dialled = (0..100).filter(|_| test.dials()).count();
        assert_eq!(dialled, (CONNECTIONS - INCOMING_CONNECTIONS) as usize);
        assert!(test.comes(PeerId::random(), "/ip4/203.0.113.7/tcp/1"), "in the place of another");
    }
}
