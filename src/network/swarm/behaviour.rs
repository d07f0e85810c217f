//! The libp2p behaviours of a peer.

use std::sync::Arc;

use libp2p::allow_block_list::{self, BlockedPeers};
use libp2p::connection_limits::{self, ConnectionLimits};
use libp2p::identity::Keypair;
use libp2p::swarm::NetworkBehaviour;
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::{dcutr, identify, mdns, ping, relay, upnp};

use crate::network::connectivity::direct_only::DirectOnly;
use crate::network::connectivity::gossip_connection::GossipConnection;
use crate::network::connectivity::providers::{Providers, providers};
use crate::network::connectivity::reachability::{Prober, neighbours, prober, router};
use crate::network::connectivity::routes::Routes;
use crate::network::connectivity::scoped::Scoped;
use crate::network::gossip::{Gossip, gossip};
use crate::network::identity::agent_version;
use crate::network::limits::{
    CONNECTIONS_PER_PEER, PENDING_CONNECTIONS, PENDING_INCOMING, PING_INTERVAL, PING_TIMEOUT,
};
use crate::network::protection::connection_places::ConnectionPlaces;
use crate::network::protection::per_ip_limiter::PerIpLimiter;
use crate::network::rpc::{CONTROL_PROTOCOL, Control, control};
use crate::network::standing::PeerAccess;

/// Behaviours that refuse connections come first, so that the others never see those. The last of them is `places`: what
/// is refused for another reason takes nobody's place.
#[derive(NetworkBehaviour)]
#[behaviour(prelude = "libp2p::swarm::derive_prelude")]
pub(crate) struct Behaviour {
    pub limits: connection_limits::Behaviour,
    pub per_ip: PerIpLimiter,
    pub banned: allow_block_list::Behaviour<BlockedPeers>,
    pub routes: Routes,
    pub places: ConnectionPlaces,
    pub gossip: GossipConnection<Gossip>,
    pub control: Control,
    pub identify: Scoped<identify::Behaviour>,
    pub providers: Scoped<Providers>,
    pub ping: ping::Behaviour,
    pub streams: DirectOnly<libp2p_stream::Behaviour>,
    pub relay: relay::client::Behaviour,
    pub punching: Scoped<dcutr::Behaviour>,
    pub prober: Toggle<Prober>,
    pub router: Toggle<upnp::tokio::Behaviour>,
    pub neighbours: Toggle<mdns::tokio::Behaviour>,
}

/// Behaviours that a machine's profile can switch off.
#[derive(Clone, Copy)]
pub(crate) struct Optional {
    /// Discover peers on the LAN.
    pub mdns: bool,
    /// Ask the router to open ports.
    pub upnp: bool,
}

impl Behaviour {
    pub(crate) fn new(
        keypair: &Keypair,
        relay: relay::client::Behaviour,
        optional: Optional,
        access: Arc<dyn PeerAccess>,
    ) -> Result<Self, String> {
        let me = keypair.public().to_peer_id();
        Ok(Self {
            limits: connection_limits::Behaviour::new(limits()),
            per_ip: PerIpLimiter::default(),
            banned: allow_block_list::Behaviour::default(),
            routes: Routes::default(),
            places: ConnectionPlaces::new(access.clone()),
            gossip: GossipConnection::new(gossip(keypair)?, access),
            control: control(),
            identify: Scoped::new(introduction(keypair)),
            providers: Scoped::new(providers(me)),
            ping: pings(),
            streams: DirectOnly(libp2p_stream::Behaviour::new()),
            relay,
            punching: Scoped::new(dcutr::Behaviour::new(me)),
            prober: Some(prober()).into(),
            router: router(optional.upnp),
            neighbours: neighbours(keypair, optional.mdns),
        })
    }
}

/// Limits of both peers and relays.
pub(crate) fn limits() -> ConnectionLimits {
    ConnectionLimits::default()
        .with_max_pending_incoming(Some(PENDING_INCOMING))
        .with_max_pending_outgoing(Some(PENDING_CONNECTIONS))
        .with_max_established_per_peer(Some(CONNECTIONS_PER_PEER))
}

/// identify, for peers and relays.
pub(crate) fn introduction(keypair: &Keypair) -> identify::Behaviour {
    let config = identify::Config::new(CONTROL_PROTOCOL.to_string(), keypair.public())
        .with_agent_version(agent_version())
        .with_push_listen_addr_updates(true)
        // Of what a peer names, Kademlia remembers what it may name.
        .with_cache_size(0);
    identify::Behaviour::new(config)
}

/// Detects dead connections.
pub(crate) fn pings() -> ping::Behaviour {
    ping::Behaviour::new(ping::Config::new().with_interval(PING_INTERVAL).with_timeout(PING_TIMEOUT))
}
