//! A relay: a machine that every peer can reach, for the peers that others cannot reach.
//!
//! It grants reservations and carries circuits, within bounds; tests whether peers are reachable from outside (AutoNAT
//! v2); and is a node for Kademlia, so that a newcomer that knows only a circuit of a relay finds the members of any
//! module. It belongs to no run, stores only provider records, and sees only encrypted traffic of others.

use std::collections::BTreeSet;

use futures::StreamExt;
use libp2p::allow_block_list::{self, AllowedPeers};
use libp2p::identity::Keypair;
use libp2p::kad::{self, InboundRequest};
use libp2p::metrics::Registry;
use libp2p::request_response::{self, Message};
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{
    Multiaddr, PeerId, Swarm, SwarmBuilder, autonat, connection_limits, identify, noise, ping, relay, tcp, yamux,
};
use tokio::sync::watch;

use crate::names::PeerKey;
use crate::network::connectivity::addresses::{full, in_order, is_loopback};
use crate::network::connectivity::providers::{ProviderRecords, Providers, learn, providers};
use crate::network::connectivity::scoped::Scoped;
use crate::network::identity::{Identity, peer_id};
use crate::network::limits::{
    COMING_BURST, COMING_PER_SECOND, CONNECT_TIMEOUT, INTERFACES_WITHIN, LISTEN_TIMEOUT, RELAY_CONNECTIONS, RELAY_IDLE,
    RELAY_PENDING, RELAY_PENDING_PER_IP, RESERVATION_LASTS, RESERVATIONS_PER_PEER,
};
use crate::network::protection::per_ip_limiter::{PerIpBounds, PerIpLimiter};
use crate::network::relay_shares::{RelayBounds, SharedRelay};
use crate::network::resolver;
use crate::network::rpc::{CONTROL_PROTOCOL, Control, control};
use crate::network::swarm::behaviour::{introduction, limits, pings};
use crate::network::swarm::build::{StartError, listen, not_built, settings};
use crate::network::swarm::families::{Listening, Wait, listen_on_all, silence};
use crate::network::traffic::bytes_of_connections;
use crate::protocol::wire::encoding;
use crate::protocol::wire::message::Response;

#[derive(Clone, Debug)]
pub struct RelayConfig {
    pub identity: Identity,
    pub listen: Vec<Multiaddr>,
    /// Further addresses at which others reach it.
    pub announce: Vec<Multiaddr>,
    /// The peers that may connect; nothing for all.
    pub allow: Option<Vec<PeerKey>>,
    pub bounds: RelayBounds,
}

/// Counts since the start of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RelayCounts {
    /// Peers that hold a reservation.
    pub reservations: u64,
    /// Open circuits.
    pub circuits: u64,
    /// Circuits since the start.
    pub circuits_ever: u64,
    /// Refused reservations and circuits since the start.
    pub refused: u64,
    /// Bytes in, of all connections.
    pub bytes_in: u64,
    pub bytes_out: u64,
}

#[derive(NetworkBehaviour)]
#[behaviour(prelude = "libp2p::swarm::derive_prelude")]
pub(crate) struct Server {
    limits: connection_limits::Behaviour,
    per_ip: PerIpLimiter,
    allowed: Toggle<allow_block_list::Behaviour<AllowedPeers>>,
    relay: SharedRelay,
    probes: Scoped<autonat::v2::server::Behaviour>,
    identify: Scoped<identify::Behaviour>,
    providers: Scoped<Providers>,
    control: Control,
    ping: ping::Behaviour,
}

impl Server {
    pub(crate) fn new(keypair: &Keypair, bounds: RelayBounds, allow: Option<&[PeerKey]>) -> Self {
        let me = keypair.public().to_peer_id();
        let limits = limits().with_max_established(Some(RELAY_CONNECTIONS));
        let allowed = allow.map(|allow| {
            let mut allowed = allow_block_list::Behaviour::default();
            for peer in allow.iter().copied().filter_map(peer_id) {
                allowed.allow_peer(peer);
            }
            allowed
        });
        Self {
            limits: connection_limits::Behaviour::new(limits.with_max_pending_incoming(Some(RELAY_PENDING))),
            per_ip: PerIpLimiter::new(PerIpBounds {
                pending: RELAY_PENDING_PER_IP,
                connections: bounds.connections_per_ip,
                coming: (COMING_PER_SECOND, COMING_BURST),
                own: true,
            }),
            allowed: allowed.into(),
            relay: SharedRelay::new(me, bounds, relay_config(bounds)),
            probes: Scoped::new(autonat::v2::server::Behaviour::default()),
            identify: Scoped::new(introduction(keypair)),
            providers: Scoped::new(providers(me)),
            control: control(),
            ping: pings(),
        }
    }
}

/// Without what [`SharedRelay`] adds. libp2p refuses the request after the one that exceeds the limit, hence one less.
fn relay_config(bounds: RelayBounds) -> relay::Config {
    relay::Config {
        max_reservations_per_peer: RESERVATIONS_PER_PEER - 1,
        reservation_duration: RESERVATION_LASTS,
        max_circuit_duration: bounds.circuit_lasts,
        max_circuit_bytes: bounds.circuit_bytes,
        ..relay::Config::default()
    }
}

/// The transports of a peer without relaying; bytes are counted.
fn build_relay(config: &RelayConfig) -> Result<(Swarm<Server>, Registry), StartError> {
    let mut metrics = Registry::default();
    let (servers, options) = resolver::system();
    let swarm = SwarmBuilder::with_existing_identity(config.identity.keypair())
        .with_tokio()
        .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, yamux::Config::default)
        .map_err(not_built("TCP"))?
        .with_quic()
        .with_dns_config(servers, options)
        .with_bandwidth_metrics(&mut metrics)
        .with_behaviour(|keypair| Server::new(keypair, config.bounds, config.allow.as_deref()))
        .map_err(not_built("the relay"))?
        .with_swarm_config(|config| settings(config, RELAY_IDLE))
        .with_connection_timeout(CONNECT_TIMEOUT)
        .build();
    Ok((swarm, metrics))
}

/// A running relay. It stops when dropped.
pub struct Relay {
    addresses: Vec<Multiaddr>,
    counts: watch::Receiver<RelayCounts>,
    metrics: Registry,
}

impl Relay {
    /// Starts a relay, and returns once it listens on all addresses. Must be called within a tokio runtime.
    pub async fn start(config: RelayConfig) -> Result<Self, StartError> {
        let (mut swarm, metrics) = build_relay(&config)?;
        for address in &config.announce {
            swarm.add_external_address(address.clone());
        }
        let (told, counts) = watch::channel(RelayCounts::default());
        let announced = !config.announce.is_empty();
        let mut task = Task {
            swarm,
            announced,
            provider_records: ProviderRecords::default(),
            reserved: BTreeSet::new(),
            counts: told,
        };
        listen_on_all(&mut task, &config.listen).await?;
        let addresses = task.addresses().await;
        tokio::spawn(task.run());
        Ok(Self { addresses, counts, metrics })
    }

    /// Its full addresses, for `relays` in a machine's profile.
    pub fn addresses(&self) -> &[Multiaddr] {
        &self.addresses
    }

    pub fn counts(&self) -> RelayCounts {
        let (bytes_in, bytes_out) = bytes_of_connections(&self.metrics);
        RelayCounts { bytes_in, bytes_out, ..*self.counts.borrow() }
    }

    /// Waits until the counts, except bytes, are as wanted.
    pub async fn wait_until(&self, mut wanted: impl FnMut(&RelayCounts) -> bool) {
        // The task ends only after this relay is dropped.
        let _ = self.counts.clone().wait_for(|counts| wanted(counts)).await;
    }
}

/// The task that owns the relay's swarm.
struct Task {
    swarm: Swarm<Server>,
    /// Whether its configuration announces addresses.
    announced: bool,
    provider_records: ProviderRecords,
    reserved: BTreeSet<PeerId>,
    counts: watch::Sender<RelayCounts>,
}

impl Listening for Task {
    async fn open(&mut self, address: &Multiaddr, wait: Wait) -> Result<(), StartError> {
        match wait {
            Wait::UntilUp => self.open_and_wait(address).await,
            Wait::No => listen(&mut self.swarm, address).map(drop),
        }
    }
}

impl Task {
    async fn open_and_wait(&mut self, address: &Multiaddr) -> Result<(), StartError> {
        let listener = listen(&mut self.swarm, address)?;
        let up = async {
            loop {
                let event = self.swarm.select_next_some().await;
                let failed = match &event {
                    SwarmEvent::NewListenAddr { listener_id, .. } if *listener_id == listener => Some(None),
                    SwarmEvent::ListenerClosed { listener_id, reason: Err(error), .. } if *listener_id == listener => {
                        Some(Some(error.to_string()))
                    }
                    _ => None,
                };
                self.on_event(event);
                if let Some(failed) = failed {
                    return failed.map_or(Ok(()), Err);
                }
            }
        };
        let up = tokio::time::timeout(LISTEN_TIMEOUT, up).await.unwrap_or_else(|_| Err(silence(address)));
        up.map_err(|reason| StartError::NotListening { address: address.clone(), reason })
    }

    /// Its full addresses. A listener on all interfaces reports one after the other.
    async fn addresses(&mut self) -> Vec<Multiaddr> {
        let told = async {
            while let Ok(event) = tokio::time::timeout(INTERFACES_WITHIN, self.swarm.select_next_some()).await {
                self.on_event(event);
            }
        };
        // A peer that connects at once must not extend the wait forever.
        let _ = tokio::time::timeout(LISTEN_TIMEOUT, told).await;
        if self.swarm.external_addresses().next().is_none() {
            for address in self.swarm.listeners().cloned().collect::<Vec<_>>() {
                self.swarm.add_external_address(address);
            }
        }
        let addresses = in_order(self.swarm.external_addresses().cloned().collect());
        addresses.iter().map(|address| full(address, *self.swarm.local_peer_id())).collect()
    }

    /// Until the relay is dropped.
    async fn run(mut self) {
        loop {
            tokio::select! {
                () = self.counts.closed() => return,
                event = self.swarm.select_next_some() => self.on_event(event),
            }
        }
    }

    fn on_event(&mut self, event: SwarmEvent<ServerEvent>) {
        match event {
            SwarmEvent::Behaviour(ServerEvent::Relay(event)) => self.on_relay(&event),
            SwarmEvent::Behaviour(ServerEvent::Identify(event)) => self.on_identify(event),
            SwarmEvent::Behaviour(ServerEvent::Providers(kad::Event::InboundRequest {
                request: InboundRequest::AddProvider { record: Some(record) },
            })) => self.provider_records.keep(&mut self.swarm.behaviour_mut().providers, record),
            SwarmEvent::Behaviour(ServerEvent::Control(event)) => self.on_control(event),
            SwarmEvent::Behaviour(ServerEvent::Ping(ping::Event { connection, result: Err(error), .. }))
                if !matches!(error, ping::Failure::Unsupported) =>
            {
                self.swarm.close_connection(connection);
            }
            // Without an address, a relay grants no reservations. Without announced addresses, its own are used, since
            // it is a public machine.
            SwarmEvent::NewListenAddr { address, .. } if !self.announced && !is_loopback(&address) => {
                self.swarm.add_external_address(address);
            }
            SwarmEvent::ConnectionClosed { peer_id, num_established: 0, .. } => {
                self.reserved.remove(&peer_id);
                self.count(|_| {});
            }
            _ => {}
        }
    }

    fn on_relay(&mut self, event: &relay::Event) {
        tracing::debug!(?event, "as a relay");
        match event {
            relay::Event::ReservationReqAccepted { src_peer_id, .. } => {
                self.reserved.insert(*src_peer_id);
                self.count(|_| {});
            }
            relay::Event::ReservationTimedOut { src_peer_id } => {
                self.reserved.remove(src_peer_id);
                self.count(|_| {});
            }
            relay::Event::CircuitReqAccepted { .. } => self.count(|counts| {
                counts.circuits += 1;
                counts.circuits_ever += 1;
            }),
            relay::Event::CircuitClosed { .. } => self.count(|counts| counts.circuits -= 1),
            relay::Event::ReservationReqDenied { .. } | relay::Event::CircuitReqDenied { .. } => {
                self.count(|counts| counts.refused += 1);
            }
            _ => {}
        }
    }

    fn count(&self, change: impl FnOnce(&mut RelayCounts)) {
        let reservations = self.reserved.len() as u64;
        self.counts.send_modify(|counts| {
            change(counts);
            counts.reservations = reservations;
        });
    }

    fn on_identify(&mut self, event: identify::Event) {
        let identify::Event::Received { peer_id, info, .. } = event else { return };
        if !info.protocols.contains(&CONTROL_PROTOCOL) {
            tracing::debug!(peer = %peer_id, agent = info.agent_version, "a peer has another protocol version");
            let _ = self.swarm.disconnect_peer_id(peer_id);
            return;
        }
        learn(&mut self.swarm.behaviour_mut().providers, peer_id, info.listen_addrs);
    }

    /// A peer took it for a peer of a run.
    fn on_control(&mut self, event: request_response::Event<Vec<u8>, Vec<u8>>) {
        let request_response::Event::Message { message: Message::Request { channel, .. }, .. } = event else { return };
        let reason = "this is a relay, which belongs to no run: give the address of a peer; it may lead through this \
            relay";
        if let Ok(bytes) = encoding::encode(&Response::Refused(reason.to_owned())) {
            let _ = self.swarm.behaviour_mut().control.send_response(channel, bytes);
        }
    }
}
