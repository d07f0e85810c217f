//! Places on relays, asked for and lost; and where this peer is to be found.

use std::time::Instant;

use libp2p::core::transport::ListenerId;
use libp2p::{Multiaddr, PeerId, relay};

use crate::network::connectivity::addresses::{full, in_order};
use crate::network::connectivity::connect::Unreachable;
use crate::network::connectivity::providers::learn;
use crate::network::limits::FAILURES;
use crate::network::swarm::actor::Actor;

impl Actor {
    /// The relays of the profile are neighbours for Kademlia, whether this peer needs a place on them or not.
    pub(in crate::network) fn meet_relays(&mut self) {
        let behaviour = self.swarm.behaviour_mut();
        for (relay, places) in self.relaying.relays() {
            behaviour.gossip.is_relay(relay);
            learn(&mut behaviour.providers, relay, places.to_vec());
        }
    }

    /// What there is to do from time to time.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(in crate::network) fn look_after(&mut self) {
        let now = Instant::now();
        self.give_up_joining(now);
        self.give_up_punching(now);
        self.give_up_meeting(now);
        self.swarm.behaviour_mut().ways.close_detours(now);
        self.seek_places(now);
        self.end_bans();
    }

    /// Asks relays for the places that are still missing.
    pub(in crate::network) fn seek_places(&mut self, now: Instant) {
        while let Some((relay, address)) = self.relaying.due(now, self.is_reachable()) {
            match self.swarm.listen_on(address.clone()) {
                Ok(listener) => self.relaying.asked(listener, relay),
                Err(error) => {
                    tracing::warn!(%address, %error, "a relay cannot be asked for a place");
                    self.relaying.failed(relay, now);
                }
            }
        }
    }

    pub(in crate::network) fn on_relay_client(&mut self, event: &relay::client::Event) {
        match event {
            relay::client::Event::ReservationReqAccepted { relay_peer_id: relay, renewal, .. } => {
                if !renewal {
                    tracing::info!(%relay, "others reach this peer through a relay");
                }
                self.relaying.granted(*relay);
            }
            relay::client::Event::OutboundCircuitEstablished { relay_peer_id: relay, .. } => {
                tracing::debug!(%relay, "a circuit to a peer");
            }
            relay::client::Event::InboundCircuitEstablished { src_peer_id: peer, .. } => {
                tracing::debug!(%peer, "a peer came through a relay");
            }
        }
    }

    /// One of our own listeners, or a place on a relay, is no more.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(in crate::network) fn on_listener_closed(
        &mut self,
        listener: ListenerId,
        addresses: Vec<Multiaddr>,
        why: &str,
    ) {
        match self.relaying.ended(listener, Instant::now()) {
            Some((relay, true)) => tracing::warn!(%relay, why, "the place on a relay is lost; another one is sought"),
            Some((relay, false)) => tracing::info!(%relay, why, "a relay gave no place"),
            None => tracing::warn!(?addresses, why, "no longer listening"),
        }
        for address in addresses {
            self.queues.not_listening(full(&address, *self.swarm.local_peer_id()));
        }
    }

    /// Where this peer is to be found: what was announced first, since somebody chose it.
    pub(in crate::network) fn addresses(&self) -> Vec<Multiaddr> {
        let mut addresses = self.announced.clone();
        let known = self.swarm.listeners().chain(self.swarm.external_addresses()).cloned();
        for address in in_order(known.collect()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }

    /// The newest failure of each peer is kept, for whoever wonders why this one is alone.
    pub(in crate::network) fn note_failure(&mut self, peer: PeerId, error: &Unreachable) {
        self.failures.retain(|(other, _)| *other != peer);
        let tried: Vec<String> = error.tried.iter().map(ToString::to_string).collect();
        let place = if tried.is_empty() { peer.to_string() } else { tried.join(", ") };
        self.failures.push_back((peer, format!("{place}: {}", error.reason)));
        if self.failures.len() > FAILURES {
            self.failures.pop_front();
        }
    }

    /// For a peer that hears nobody: what it has tried, and what it knows of ways out and in.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long something on the network took or has waited")]
    pub(in crate::network) fn outlook(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.failures.iter().map(|(_, failure)| failure.clone()).collect();
        let relays = self.relaying.in_words(Instant::now());
        if relays.is_empty() {
            lines.push("no relay is known".to_owned());
        }
        lines.extend(relays);
        lines.push(match self.swarm.behaviour().neighbours.as_ref() {
            Some(mdns) => format!("{} peers of any kind on this LAN (mDNS)", mdns.discovered_nodes().len()),
            None => "peers on this LAN are not looked for (mDNS is off)".to_owned(),
        });
        lines.push(match self.is_reachable() {
            true => "others reach this peer from outside".to_owned(),
            false => "nobody has reached this peer from outside yet".to_owned(),
        });
        lines
    }
}
