//! The scopes of a peer's connections: which addresses it may name.

use std::collections::{BTreeMap, HashMap, VecDeque};

use libp2p::PeerId;
use libp2p::core::connection::ConnectedPoint;
use libp2p::swarm::ConnectionId;

use crate::network::connectivity::address_scope::{Scope, scope_of_connection};
use crate::network::limits::NEIGHBOURS_REMEMBERED;

/// The connections of each peer, by their scopes.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    peers: HashMap<PeerId, BTreeMap<ConnectionId, Scope>>,
    /// The widest scope of any connection so far: what its peer has named of others is remembered longer than it lasts.
    widest: Option<Scope>,
    /// Peers that were once connected on the LAN or this machine, the oldest first.
    neighbours: HashMap<PeerId, Scope>,
    by_age: VecDeque<PeerId>,
}

impl Scopes {
    pub(super) fn connected(&mut self, peer: PeerId, connection: ConnectionId, endpoint: &ConnectedPoint) {
        let scope = scope_of_connection(endpoint);
        self.peers.entry(peer).or_default().insert(connection, scope);
        self.widest = Some(self.widest.map_or(scope, |widest| widest.min(scope)));
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

    pub(super) fn closed(&mut self, peer: PeerId, connection: ConnectionId) {
        let Some(connections) = self.peers.get_mut(&peer) else { return };
        connections.remove(&connection);
        if connections.is_empty() {
            self.peers.remove(&peer);
        }
    }

    /// That of all peers together: the widest of their connections, of which the last may have ended.
    pub(super) fn of_all(&self) -> Scope {
        self.widest.unwrap_or(Scope::Loopback)
    }

    /// For what a peer has said of itself.
    pub(super) fn of_peer(&self, peer: &PeerId) -> Scope {
        self.of_connected(peer).or_else(|| self.neighbours.get(peer).copied()).unwrap_or_else(|| self.of_all())
    }

    /// For what may have been said of a peer by any other: an earlier connection of the peer is no merit of theirs.
    pub(super) fn of_named(&self, peer: &PeerId) -> Scope {
        self.of_connected(peer).unwrap_or_else(|| self.of_all())
    }

    fn of_connected(&self, peer: &PeerId) -> Option<Scope> {
        self.peers.get(peer).and_then(|connections| connections.values().min().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(address: &str) -> ConnectedPoint {
        ConnectedPoint::Listener {
            local_addr: "/ip4/192.0.2.1/tcp/1".parse().unwrap(),
            send_back_addr: address.parse().unwrap(),
        }
    }

    #[test]
    fn who_is_near_names_what_is_near_even_after_its_connection_is_lost_and_for_others_only_if_nobody_was_ever_far() {
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
        assert_eq!(scopes.of_peer(&far), Scope::Public, "what it has named is still known");
        assert_eq!((scopes.of_peer(&near), scopes.of_peer(&unknown)), (Scope::Lan, Scope::Public));
        assert!(scopes.peers.is_empty());
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
