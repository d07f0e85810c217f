//! What the application shows of connections. It is gathered from what happens anyway: nothing is sent for it.

use std::time::Duration;

use libp2p::PeerId;

use crate::network::connectivity::addresses::is_loopback;
use crate::network::connectivity::links::{Links, Reachability};
use crate::network::identity::peer_key;
use crate::network::swarm::actor::Actor;

impl Actor {
    /// A ping of a connected peer was answered.
    pub(crate) fn on_round_trip(&mut self, peer: PeerId, took: Duration) {
        if self.swarm.is_connected(&peer) {
            self.round_trips.insert(peer, took);
        }
    }

    /// Shows the connections, if anything has changed.
    pub(crate) fn show_links(&self) {
        let routes = &self.swarm.behaviour().routes;
        let peers = || self.identified.iter().filter_map(|peer| Some((peer, peer_key(peer)?)));
        // A tenth of a millisecond is less than two pings differ by.
        let tenths = |took: Duration| (took.as_secs_f64() * 1e4).round() / 1e1;
        let round_trip = |(peer, key)| Some((key, tenths(*self.round_trips.get(peer)?)));
        let links = Links {
            connected: self.identified.len(),
            reachability: self.reachability(),
            round_trip_ms: peers().filter_map(round_trip).collect(),
            relayed: peers().filter(|(peer, _)| routes.relayed_since(peer).is_some()).map(|(_, key)| key).collect(),
        };
        self.links.send_if_modified(|shown| {
            let is_new = *shown != links;
            *shown = links;
            is_new
        });
    }

    fn reachability(&self) -> Reachability {
        let mut listeners = self.swarm.listeners().peekable();
        let local = listeners.peek().is_some() && listeners.all(is_loopback);
        match self.is_reachable() {
            true => Reachability::Public,
            false if local || self.was_not_reached => Reachability::Private,
            false => Reachability::Unknown,
        }
    }
}
