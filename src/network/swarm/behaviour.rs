//! The parts of libp2p that make up a peer.

use libp2p::allow_block_list::{self, BlockedPeers};
use libp2p::connection_limits::{self, ConnectionLimits};
use libp2p::identity::Keypair;
use libp2p::swarm::NetworkBehaviour;
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::{dcutr, identify, mdns, ping, relay, upnp};

use crate::network::connectivity::direct_only::DirectOnly;
use crate::network::connectivity::gossip_connection::Acquaintance;
use crate::network::connectivity::providers::{Providers, providers};
use crate::network::connectivity::reachability::{Prober, neighbours, prober, router};
use crate::network::connectivity::routes::Ways;
use crate::network::gossip::{Gossip, gossip};
use crate::network::limits::{
    CONNECTIONS, CONNECTIONS_PER_PEER, INCOMING_CONNECTIONS, PENDING_CONNECTIONS, PING_INTERVAL, PING_TIMEOUT,
};
use crate::network::protection::per_ip_limiter::Crowd;
use crate::network::rpc::{CONTROL_PROTOCOL, Control, control};

/// What refuses connections comes first: what it refuses, the others never see.
#[derive(NetworkBehaviour)]
#[behaviour(prelude = "libp2p::swarm::derive_prelude")]
pub(in crate::network) struct Behaviour {
    pub limits: connection_limits::Behaviour,
    pub crowd: Crowd,
    pub banned: allow_block_list::Behaviour<BlockedPeers>,
    pub ways: Ways,
    pub gossip: Acquaintance<Gossip>,
    pub control: Control,
    pub identify: identify::Behaviour,
    pub providers: Providers,
    pub ping: ping::Behaviour,
    pub streams: DirectOnly<libp2p_stream::Behaviour>,
    pub relay: relay::client::Behaviour,
    pub punching: dcutr::Behaviour,
    pub prober: Toggle<Prober>,
    pub router: Toggle<upnp::tokio::Behaviour>,
    pub neighbours: Toggle<mdns::tokio::Behaviour>,
}

/// What a machine may want or not.
#[derive(Clone, Copy)]
pub(in crate::network) struct Optional {
    /// Look for peers on the LAN.
    pub mdns: bool,
    /// Ask the router to open ports.
    pub upnp: bool,
}

impl Behaviour {
    /// # Errors
    /// Gossipsub does not like its settings.
    pub(in crate::network) fn new(
        keypair: &Keypair,
        relay: relay::client::Behaviour,
        optional: Optional,
    ) -> Result<Self, String> {
        let me = keypair.public().to_peer_id();
        let limits = limits().with_max_established_incoming(Some(INCOMING_CONNECTIONS));
        Ok(Self {
            limits: connection_limits::Behaviour::new(limits.with_max_established(Some(CONNECTIONS))),
            crowd: Crowd::default(),
            banned: allow_block_list::Behaviour::default(),
            ways: Ways::default(),
            gossip: Acquaintance::new(gossip(keypair)?),
            control: control(),
            identify: introduction(keypair),
            providers: providers(me),
            ping: pings(),
            streams: DirectOnly(libp2p_stream::Behaviour::new()),
            relay,
            punching: dcutr::Behaviour::new(me),
            prober: Some(prober()).into(),
            router: router(optional.upnp),
            neighbours: neighbours(keypair, optional.mdns),
        })
    }
}

/// What peers and relays bound alike.
pub(in crate::network) fn limits() -> ConnectionLimits {
    ConnectionLimits::default()
        .with_max_pending_incoming(Some(PENDING_CONNECTIONS))
        .with_max_pending_outgoing(Some(PENDING_CONNECTIONS))
        .with_max_established_per_peer(Some(CONNECTIONS_PER_PEER))
}

/// How peers and relays introduce themselves.
pub(in crate::network) fn introduction(keypair: &Keypair) -> identify::Behaviour {
    let config = identify::Config::new(CONTROL_PROTOCOL.to_string(), keypair.public())
        .with_agent_version(agent_version())
        .with_push_listen_addr_updates(true);
    identify::Behaviour::new(config)
}

/// How a dead connection is noticed.
pub(in crate::network) fn pings() -> ping::Behaviour {
    ping::Behaviour::new(ping::Config::new().with_interval(PING_INTERVAL).with_timeout(PING_TIMEOUT))
}

/// How a peer introduces itself.
pub(in crate::network) fn agent_version() -> String {
    format!("pathswarm/{}", env!("CARGO_PKG_VERSION"))
}
