//! Observed addresses of this peer, and whether others reach it without a relay.

use std::net::IpAddr;

use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId, autonat, identify, mdns, upnp};

use crate::network::connectivity::addresses::{full, is_loopback, is_private, is_relayed};
use crate::network::connectivity::observed_address::{Outside, SIGHTS, Sight, ip_and_port};
use crate::network::connectivity::providers::learn;
use crate::network::connectivity::reachability::is_public;
use crate::network::limits::{MDNS_ADDRESSES, SEEN_ADDRESSES};
use crate::network::swarm::actor::Actor;

impl Actor {
    /// Whether others are known to connect without a relay.
    pub(crate) fn is_reachable(&self) -> bool {
        !self.announced.is_empty() || self.swarm.external_addresses().any(is_public)
    }

    /// An address of ours was confirmed as reachable.
    pub(crate) fn on_confirmed(&mut self, address: &Multiaddr) {
        tracing::info!(%address, "other peers reach this peer at this address");
        self.queues.listening(full(address, *self.swarm.local_peer_id()));
    }

    /// An address of ours is no longer reachable.
    pub(crate) fn on_lost(&mut self, address: &Multiaddr) {
        tracing::info!(%address, "other peers no longer reach this peer at this address");
        self.queues.not_listening(full(address, *self.swarm.local_peer_id()));
    }

    /// A peer claims to observe us at an address. Such claims are free, so they are counted.
    pub(crate) fn on_candidate(&mut self, address: Multiaddr) {
        if self.seen.len() < SEEN_ADDRESSES {
            self.seen.insert(address);
            return;
        }
        let prober = &mut self.swarm.behaviour_mut().prober;
        if !self.seen.contains(&address) && prober.is_enabled() {
            tracing::warn!(
                "other peers see this peer at more than {SEEN_ADDRESSES} addresses: further ones are not tested \
                 (AutoNAT)"
            );
            *prober = None.into();
        }
    }

    pub(crate) fn on_probed(&mut self, event: &autonat::v2::client::Event) {
        let autonat::v2::client::Event { tested_addr, server, result, .. } = event;
        self.was_not_reached = result.is_err();
        match result {
            Ok(()) => tracing::debug!(address = %tested_addr, relay = %server, "a relay reached this peer"),
            Err(error) => {
                tracing::debug!(address = %tested_addr, relay = %server, %error, "this peer is not reachable \
                at this address")
            }
        }
    }

    pub(crate) fn on_router(event: &upnp::Event) {
        match event {
            upnp::Event::NewExternalAddr { external_addr, .. } => {
                tracing::info!(address = %external_addr, "the router has opened a port for this peer (UPnP)");
            }
            upnp::Event::ExpiredExternalAddr { external_addr, .. } => {
                tracing::info!(address = %external_addr, "the router has closed the port again (UPnP)");
            }
            upnp::Event::GatewayNotFound => tracing::debug!("no router that opens ports (UPnP)"),
            upnp::Event::NonRoutableGateway => {
                tracing::debug!("the router is behind another router: an open port would be useless (UPnP)");
            }
        }
    }

    pub(crate) fn on_neighbours(&mut self, event: &mdns::Event) {
        let mdns::Event::Discovered(found) = event else { return };
        tracing::debug!(addresses = found.len(), "peers on this LAN (mDNS)");
        let neighbours = &mut self.swarm.behaviour_mut().neighbours;
        if neighbours.as_ref().is_some_and(|mdns| mdns.discovered_nodes().len() > MDNS_ADDRESSES) {
            tracing::warn!("more than {MDNS_ADDRESSES} addresses on this LAN: further ones are ignored (mDNS)");
            *neighbours = None.into();
        }
    }

    /// The observed address of our listening port, for connections dialled from it. It is used for hole punching and
    /// tested by relays. identify reports our own port instead, which is wrong behind a NAT that changes ports.
    pub(crate) fn on_seen(&mut self, peer: &PeerId, connection: ConnectionId, info: &identify::Info) {
        let from_listening_port = self.swarm.behaviour().routes.is_from_listening_port(peer, connection);
        self.note_sight(*peer, &info.observed_addr, from_listening_port);
        let routes = &mut self.swarm.behaviour_mut().routes;
        if from_listening_port && is_public(&info.observed_addr) {
            routes.seen_at(info.observed_addr.clone());
        }
    }

    /// A relay has identified itself; so far, perhaps only its peer id was known.
    pub(crate) fn on_relay(&mut self, peer: PeerId, addresses: Vec<Multiaddr>) {
        let scope = self.swarm.behaviour().providers.scope_of(&peer);
        let named = |address: &Multiaddr| !is_relayed(address) && scope.may_name(address);
        let direct = addresses.into_iter().filter(named).collect::<Vec<_>>();
        learn(&mut self.swarm.behaviour_mut().providers, peer, direct.clone());
        if let Some(gone) = self.relays.learn(peer, direct) {
            self.swarm.behaviour_mut().gossip.is_no_relay(&gone);
        }
        if self.relays.is_relay(&peer) {
            self.swarm.behaviour_mut().gossip.is_relay(peer);
        }
    }

    /// A peer reports the address at which it observes us.
    pub(crate) fn note_sight(&mut self, peer: PeerId, at: &Multiaddr, from_listening_port: bool) {
        let space = self.sights.len() < SIGHTS || self.sights.contains_key(&peer);
        if space && !is_relayed(at) {
            self.sights.insert(peer, (at.clone(), from_listening_port));
        }
    }

    pub(crate) fn outside(&self) -> Outside {
        let own: Vec<IpAddr> = self.swarm.listeners().filter_map(|address| ip_and_port(address).0).collect();
        let sight = |(at, from_listening_port): &(Multiaddr, bool)| {
            let (ip, port) = ip_and_port(at);
            let is_own = ip.is_some_and(|ip| own.contains(&ip)) && !is_loopback(at);
            let is_local = is_loopback(at) || is_private(at);
            Sight { at: at.clone(), port, from_listening_port: *from_listening_port, is_own, is_local }
        };
        let confirmed = self.swarm.external_addresses().filter(|address| !is_relayed(address));
        Outside {
            is_reached: self.is_reachable(),
            reached_at: self.announced.iter().chain(confirmed).cloned().collect(),
            sights: self.sights.values().map(sight).collect(),
        }
    }
}
