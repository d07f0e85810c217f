//! Building the swarm and opening its listening addresses.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use libp2p::core::transport::{ListenerId, TransportError};
use libp2p::multiaddr::Protocol;
use libp2p::swarm::NetworkBehaviour;
use libp2p::{Multiaddr, Swarm, SwarmBuilder, noise, tcp, yamux};
use socket2::{Domain, Socket, Type};

use crate::config::Link;
use crate::network::connectivity::dial_error::system_error;
use crate::network::identity::Identity;
use crate::network::limits::{CONNECT_TIMEOUT, IDLE_CONNECTION, NEGOTIATING_STREAMS};
use crate::network::link_emulation::shaped_tcp;
use crate::network::resolver;
use crate::network::standing::PeerAccess;
use crate::network::swarm::behaviour::{Behaviour, Optional};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{part} could not be set up: {reason}")]
    NotBuilt { part: &'static str, reason: String },
    #[error("cannot listen on {0}: the port is in use, perhaps by another peer; stop that peer or choose another port")]
    PortTaken(Multiaddr),
    #[error("cannot listen on {0}: give an address such as /ip4/0.0.0.0/udp/4001/quic-v1 or /ip4/0.0.0.0/tcp/4001")]
    NotAnAddress(Multiaddr),
    #[error("{0} is not the address of a relay: copy the whole address that `pathswarm relay` printed, with /p2p/")]
    NotARelay(Multiaddr),
    #[error("cannot listen on {address}: {reason}")]
    NotListening { address: Multiaddr, reason: String },
}

/// TCP (noise, yamux) and QUIC, both with DNS; and circuits through relays, secured like TCP.
pub(crate) fn build(
    identity: &Identity,
    optional: Optional,
    link: Option<Link>,
    access: Arc<dyn PeerAccess>,
) -> Result<Swarm<Behaviour>, StartError> {
    if let Some(link) = link {
        return build_shaped(identity, optional, link, access);
    }
    let (servers, options) = resolver::system();
    let swarm = SwarmBuilder::with_existing_identity(identity.keypair())
        .with_tokio()
        .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, yamux::Config::default)
        .map_err(not_built("TCP"))?
        .with_quic()
        .with_dns_config(servers, options)
        .with_relay_client(noise::Config::new, yamux::Config::default)
        .map_err(not_built("relays"))?
        .with_behaviour(|keypair, relay| Behaviour::new(keypair, relay, optional, access).map_err(Into::into))
        .map_err(not_built("gossip"))?
        .with_swarm_config(|config| settings(config, IDLE_CONNECTION))
        .with_connection_timeout(CONNECT_TIMEOUT)
        .build();
    Ok(swarm)
}

/// Only TCP, over an emulated link.
fn build_shaped(
    identity: &Identity,
    optional: Optional,
    link: Link,
    access: Arc<dyn PeerAccess>,
) -> Result<Swarm<Behaviour>, StartError> {
    let swarm = SwarmBuilder::with_existing_identity(identity.keypair())
        .with_tokio()
        .with_other_transport(|keypair| shaped_tcp(keypair, link).map_err(Into::into))
        .map_err(not_built("the link"))?
        .with_relay_client(noise::Config::new, yamux::Config::default)
        .map_err(not_built("relays"))?
        .with_behaviour(|keypair, relay| Behaviour::new(keypair, relay, optional, access).map_err(Into::into))
        .map_err(not_built("gossip"))?
        .with_swarm_config(|config| settings(config, IDLE_CONNECTION))
        .with_connection_timeout(CONNECT_TIMEOUT)
        .build();
    Ok(swarm)
}

pub(crate) fn not_built<E: std::fmt::Display>(part: &'static str) -> impl FnOnce(E) -> StartError {
    move |error| StartError::NotBuilt { part, reason: error.to_string() }
}

pub(crate) fn settings(config: libp2p::swarm::Config, idle: Duration) -> libp2p::swarm::Config {
    config.with_idle_connection_timeout(idle).with_max_negotiating_inbound_streams(NEGOTIATING_STREAMS)
}

/// Listens on an address.
pub(crate) fn listen<B: NetworkBehaviour>(swarm: &mut Swarm<B>, address: &Multiaddr) -> Result<ListenerId, StartError> {
    let failed = |error: io::Error| match system_error(&error.to_string()) {
        Some(io::ErrorKind::AddrInUse) => StartError::PortTaken(address.clone()),
        _ => StartError::NotListening { address: address.clone(), reason: error.to_string() },
    };
    // libp2p shares its TCP port (SO_REUSEPORT): two peers on one port would take turns instead of failing. So a socket
    // that does not share first tests whether the port is free.
    if let Some(socket) = tcp_socket(address)
        && !is_ours(swarm, socket)
    {
        probe(socket).map_err(failed)?;
    }
    swarm.listen_on(address.clone()).map_err(|error| match error {
        TransportError::MultiaddrNotSupported(address) => StartError::NotAnAddress(address),
        TransportError::Other(error) => failed(error),
    })
}

/// Whether this swarm listens on the port, in the same family of addresses.
fn is_ours<B: NetworkBehaviour>(swarm: &Swarm<B>, wanted: SocketAddr) -> bool {
    let same = |own: SocketAddr| own.port() == wanted.port() && own.is_ipv4() == wanted.is_ipv4();
    swarm.listeners().filter_map(tcp_socket).any(same)
}

/// Listens there for a moment, in its own family alone: as libp2p does, which may have the same port in the other.
fn probe(wanted: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(wanted), Type::STREAM, None)?;
    if wanted.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // The connections of a peer that has just ended do not keep its port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&wanted.into())?;
    socket.listen(1)
}

/// The socket of a plain TCP address with a fixed port.
fn tcp_socket(address: &Multiaddr) -> Option<SocketAddr> {
    let mut parts = address.iter();
    let ip = match parts.next()? {
        Protocol::Ip4(ip) => ip.into(),
        Protocol::Ip6(ip) => ip.into(),
        _ => return None,
    };
    match parts.next()? {
        Protocol::Tcp(port) if port != 0 => Some(SocketAddr::new(ip, port)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tcp_with_a_port_is_asked_for_first() {
        let socket = |address: &str| tcp_socket(&address.parse().unwrap());
        assert_eq!(socket("/ip4/127.0.0.1/tcp/4001"), Some("127.0.0.1:4001".parse().unwrap()));
        assert_eq!(socket("/ip6/::1/tcp/4001"), Some("[::1]:4001".parse().unwrap()));
        assert_eq!(socket("/ip4/127.0.0.1/tcp/0"), None);
        assert_eq!(socket("/ip4/127.0.0.1/udp/4001/quic-v1"), None);
    }
}
