//! Whether others reach this peer from outside without a relay, and what helps them to.
//!
//! Three things make an address one that others reach: it was announced by whoever runs the machine; the router opened a
//! port for it (UPnP); or a relay that was asked to try it came through (AutoNAT v2). Without any, the peer holds places
//! on relays. Peers on the same LAN are found by mDNS: their addresses are tried when such a peer is wanted, and nobody
//! is dialled for having been found.

use libp2p::identity::{Keypair, ed25519};
use libp2p::swarm::ConnectionId;
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::{Multiaddr, PeerId, autonat, identify, mdns, relay, upnp};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::network::connectivity::addresses::{full, is_loopback, is_private, is_relayed};
use crate::network::connectivity::providers::learn;
use crate::network::limits::{MDNS_ADDRESSES, PROBE_INTERVAL, PROBES_AT_ONCE, SEEN_ADDRESSES};
use crate::network::swarm::actor::Actor;

/// Asks relays to try our addresses.
pub(in crate::network) type Prober = autonat::v2::client::Behaviour<ChaCha20Rng>;

/// What it draws must not be guessed: who could, might make us believe in an address. So its seed is a new secret key.
pub(in crate::network) fn prober() -> Prober {
    let secret = ed25519::Keypair::generate().secret();
    let dice = ChaCha20Rng::from_seed(*blake3::hash(secret.as_ref()).as_bytes());
    let config =
        autonat::v2::client::Config::default().with_max_candidates(PROBES_AT_ONCE).with_probe_interval(PROBE_INTERVAL);
    Prober::new(dice, config)
}

/// Finds peers on the LAN, where it is wanted and the system lets us.
pub(in crate::network) fn neighbours(keypair: &Keypair, wanted: bool) -> Toggle<mdns::tokio::Behaviour> {
    let begin = || mdns::tokio::Behaviour::new(mdns::Config::default(), keypair.public().to_peer_id());
    let begun = wanted.then(begin).transpose().inspect_err(|error| {
        tracing::warn!(%error, "peers on this LAN are not looked for: mDNS does not start");
    });
    begun.ok().flatten().into()
}

/// Asks the router to open our ports.
pub(in crate::network) fn router(wanted: bool) -> Toggle<upnp::tokio::Behaviour> {
    wanted.then(upnp::tokio::Behaviour::default).into()
}

/// Whether this is an address at which anybody in the world may come without a relay.
fn is_public(address: &Multiaddr) -> bool {
    !is_relayed(address) && !is_loopback(address) && !is_private(address)
}

impl Actor {
    /// Whether others come without a relay, as far as is known.
    pub(in crate::network) fn is_reachable(&self) -> bool {
        !self.announced.is_empty() || self.swarm.external_addresses().any(is_public)
    }

    /// One more address of ours that others reach.
    pub(in crate::network) fn on_confirmed(&mut self, address: &Multiaddr) {
        tracing::info!(%address, "others reach this peer here");
        self.queues.listening(full(address, *self.swarm.local_peer_id()));
    }

    /// One less.
    pub(in crate::network) fn on_lost(&mut self, address: &Multiaddr) {
        tracing::info!(%address, "others reach this peer here no longer");
        self.queues.not_listening(full(address, *self.swarm.local_peer_id()));
    }

    /// Somebody says that it sees us there. That costs it nothing, so it is counted.
    pub(in crate::network) fn on_candidate(&mut self, address: Multiaddr) {
        if self.seen.len() < SEEN_ADDRESSES {
            self.seen.insert(address);
            return;
        }
        let prober = &mut self.swarm.behaviour_mut().prober;
        if !self.seen.contains(&address) && prober.is_enabled() {
            tracing::warn!("others see this peer at more than {SEEN_ADDRESSES} addresses: no more are tried (AutoNAT)");
            *prober = None.into();
        }
    }

    pub(in crate::network) fn on_probed(event: &autonat::v2::client::Event) {
        let autonat::v2::client::Event { tested_addr, server, result, .. } = event;
        match result {
            Ok(()) => tracing::debug!(address = %tested_addr, relay = %server, "a relay came through to us"),
            Err(error) => tracing::debug!(address = %tested_addr, relay = %server, %error, "nobody reaches us there"),
        }
    }

    pub(in crate::network) fn on_router(event: &upnp::Event) {
        match event {
            upnp::Event::NewExternalAddr { external_addr, .. } => {
                tracing::info!(address = %external_addr, "the router has opened a port for us (UPnP)");
            }
            upnp::Event::ExpiredExternalAddr { external_addr, .. } => {
                tracing::info!(address = %external_addr, "the router has closed the port again (UPnP)");
            }
            upnp::Event::GatewayNotFound => tracing::debug!("no router that opens ports (UPnP)"),
            upnp::Event::NonRoutableGateway => {
                tracing::debug!("the router is behind another one: an open port would help nobody (UPnP)");
            }
        }
    }

    pub(in crate::network) fn on_neighbours(&mut self, event: &mdns::Event) {
        let mdns::Event::Discovered(found) = event else { return };
        tracing::debug!(addresses = found.len(), "peers on this LAN (mDNS)");
        let neighbours = &mut self.swarm.behaviour_mut().neighbours;
        if neighbours.as_ref().is_some_and(|mdns| mdns.discovered_nodes().len() > MDNS_ADDRESSES) {
            tracing::warn!("more than {MDNS_ADDRESSES} addresses on this LAN: no more are listened for (mDNS)");
            *neighbours = None.into();
        }
    }

    /// How our listening port looks from outside, where we connected from it: what a hole is punched with, and what relays
    /// are asked to try. identify puts our own port in its place, which is wrong behind a router that changes ports.
    pub(in crate::network) fn on_seen(&mut self, peer: &PeerId, connection: ConnectionId, info: &identify::Info) {
        let from_listening_port = self.swarm.behaviour().ways.is_from_listening_port(peer, connection);
        self.note_sight(*peer, &info.observed_addr, from_listening_port);
        let ways = &mut self.swarm.behaviour_mut().ways;
        if from_listening_port && is_public(&info.observed_addr) {
            ways.seen_at(info.observed_addr.clone());
        }
    }

    /// A peer that is a relay, of which we may have known nothing but the name.
    pub(in crate::network) fn on_relay(&mut self, peer: PeerId, addresses: Vec<Multiaddr>) {
        let direct = addresses.into_iter().filter(|address| !is_relayed(address)).collect::<Vec<_>>();
        learn(&mut self.swarm.behaviour_mut().providers, peer, direct.clone());
        self.relaying.learn(peer, direct);
        if self.relaying.is_relay(&peer) {
            self.swarm.behaviour_mut().gossip.is_relay(peer);
        }
    }
}

/// Whether a peer that introduces itself is a relay.
pub(in crate::network) fn is_relay(info: &identify::Info) -> bool {
    info.protocols.contains(&relay::HOP_PROTOCOL_NAME)
}
