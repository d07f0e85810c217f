//! Reservations on relays, and the addresses at which this peer can be found.

use std::time::Instant;

use libp2p::core::transport::ListenerId;
use libp2p::{Multiaddr, PeerId, relay};

use crate::network::connectivity::addresses::{full, in_order};
use crate::network::connectivity::connect::Unreachable;
use crate::network::connectivity::providers::learn;
use crate::network::limits::FAILURES;
use crate::network::swarm::actor::Actor;

impl Actor {
    /// The relays of the profile are nodes for Kademlia, whether this peer needs a reservation on them or not.
    pub(crate) fn register_relays(&mut self) {
        let behaviour = self.swarm.behaviour_mut();
        for (relay, addresses) in self.relays.relays() {
            behaviour.gossip.is_relay(relay);
            learn(&mut behaviour.providers, relay, addresses.to_vec());
        }
    }

    /// Periodic work.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(crate) fn look_after(&mut self) {
        let now = Instant::now();
        self.give_up_joining(now);
        self.give_up_punching(now);
        self.give_up_relays(now);
        self.swarm.behaviour_mut().routes.close_detours(now);
        self.request_reservations(now);
        self.end_bans();
        self.show_links();
    }

    /// Requests the reservations that are still missing.
    pub(crate) fn request_reservations(&mut self, now: Instant) {
        while let Some((relay, address)) = self.relays.due(now, self.is_reachable()) {
            match self.swarm.listen_on(address.clone()) {
                Ok(listener) => self.relays.asked(listener, relay),
                Err(error) => {
                    tracing::warn!(%address, %error, "a relay cannot be asked for a reservation");
                    self.relays.failed(relay, now);
                }
            }
        }
    }

    pub(crate) fn on_relay_client(&mut self, event: &relay::client::Event) {
        match event {
            relay::client::Event::ReservationReqAccepted { relay_peer_id: relay, renewal, .. } => {
                if !renewal {
                    tracing::info!(%relay, "others reach this peer through a relay");
                }
                self.relays.granted(*relay);
            }
            relay::client::Event::OutboundCircuitEstablished { relay_peer_id: relay, .. } => {
                tracing::debug!(%relay, "a circuit to a peer");
            }
            relay::client::Event::InboundCircuitEstablished { src_peer_id: peer, .. } => {
                tracing::debug!(%peer, "a peer came through a relay");
            }
        }
    }

    /// One of our own listeners has closed, or a reservation on a relay has ended.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(crate) fn on_listener_closed(&mut self, listener: ListenerId, addresses: Vec<Multiaddr>, why: &str) {
        match self.relays.ended(listener, Instant::now()) {
            Some((relay, true)) => {
                tracing::warn!(%relay, why, "the reservation on a relay is lost; requesting another one")
            }
            Some((relay, false)) => tracing::info!(%relay, why, "a relay granted no reservation"),
            None => tracing::warn!(?addresses, why, "no longer listening"),
        }
        for address in addresses {
            self.queues.not_listening(full(&address, *self.swarm.local_peer_id()));
        }
    }

    /// Where this peer can be found: announced addresses first, since the user chose them.
    pub(crate) fn addresses(&self) -> Vec<Multiaddr> {
        let mut addresses = self.announced.clone();
        let known = self.swarm.listeners().chain(self.swarm.external_addresses()).cloned();
        for address in in_order(known.collect()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }

    /// Keeps the newest failure of each peer, for the report of a peer that is alone.
    pub(crate) fn note_failure(&mut self, peer: PeerId, error: &Unreachable) {
        self.failures.retain(|(other, _)| *other != peer);
        let tried: Vec<String> = error.tried.iter().map(ToString::to_string).collect();
        let address = if tried.is_empty() { peer.to_string() } else { tried.join(", ") };
        self.failures.push_back((peer, format!("{address}: {}", error.reason)));
        if self.failures.len() > FAILURES {
            self.failures.pop_front();
        }
    }

    /// The report of a peer that is alone: what it has tried, and what it knows of relays, its LAN and its reachability.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(crate) fn outlook(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.failures.iter().map(|(_, failure)| failure.clone()).collect();
        let relays = self.relays.in_words(Instant::now());
        if relays.is_empty() {
            lines.push("no relay is known".to_owned());
        }
        lines.extend(relays);
        lines.push(match self.swarm.behaviour().neighbours.as_ref() {
            Some(mdns) => format!("{} peers found on this LAN (mDNS)", mdns.discovered_nodes().len()),
            None => "peers on this LAN are not looked for (mDNS is off)".to_owned(),
        });
        lines.push(match self.is_reachable() {
            true => "others reach this peer from outside".to_owned(),
            false => "no peer has reached this peer from outside yet".to_owned(),
        });
        lines
    }
}
