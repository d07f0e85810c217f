//! The parts of libp2p that make up a peer.

use libp2p::connection_limits::{self, ConnectionLimits};
use libp2p::identity::Keypair;
use libp2p::swarm::NetworkBehaviour;
use libp2p::{identify, ping};

use super::acquaintance::Acquaintance;
use super::control::{CONTROL_PROTOCOL, Control, control};
use super::gossip::{Gossip, gossip};
use super::limits::{
    CONNECTIONS, CONNECTIONS_PER_PEER, INCOMING_CONNECTIONS, PENDING_CONNECTIONS, PING_INTERVAL, PING_TIMEOUT,
};
use super::providers::{Providers, providers};

/// The limits come first: what they refuse, the others never see.
#[derive(NetworkBehaviour)]
#[behaviour(prelude = "libp2p::swarm::derive_prelude")]
pub(super) struct Behaviour {
    pub limits: connection_limits::Behaviour,
    pub gossip: Acquaintance<Gossip>,
    pub control: Control,
    pub identify: identify::Behaviour,
    pub providers: Providers,
    pub ping: ping::Behaviour,
    pub streams: libp2p_stream::Behaviour,
}

impl Behaviour {
    /// # Errors
    /// Gossipsub does not like its settings.
    pub(super) fn new(keypair: &Keypair) -> Result<Self, String> {
        let limits = ConnectionLimits::default()
            .with_max_pending_incoming(Some(PENDING_CONNECTIONS))
            .with_max_pending_outgoing(Some(PENDING_CONNECTIONS))
            .with_max_established_incoming(Some(INCOMING_CONNECTIONS))
            .with_max_established_per_peer(Some(CONNECTIONS_PER_PEER))
            .with_max_established(Some(CONNECTIONS));
        let identify = identify::Config::new(CONTROL_PROTOCOL.to_string(), keypair.public())
            .with_agent_version(agent_version())
            .with_push_listen_addr_updates(true);
        let ping = ping::Config::new().with_interval(PING_INTERVAL).with_timeout(PING_TIMEOUT);
        Ok(Self {
            limits: connection_limits::Behaviour::new(limits),
            gossip: Acquaintance::new(gossip(keypair)?),
            control: control(),
            identify: identify::Behaviour::new(identify),
            providers: providers(keypair.public().to_peer_id()),
            ping: ping::Behaviour::new(ping),
            streams: libp2p_stream::Behaviour::new(),
        })
    }
}

/// How a peer introduces itself.
pub(super) fn agent_version() -> String {
    format!("pathswarm/{}", env!("CARGO_PKG_VERSION"))
}
