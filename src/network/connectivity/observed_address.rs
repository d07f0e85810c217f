//! The addresses at which other peers observe this one. They reveal the kind of NAT.

use std::collections::BTreeMap;
use std::net::IpAddr;

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

/// Limit of peers whose reports are kept: 64 x 200 bytes.
pub(crate) const SIGHTS: usize = 64;

/// An observed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    pub at: Multiaddr,
    pub port: Option<u16>,
    /// Whether the connection was dialled from this peer's listening port.
    pub from_listening_port: bool,
    /// Whether the machine itself has this address, so that there is no NAT.
    pub is_own: bool,
    /// Whether the address is meaningful only on this machine or its network.
    pub is_local: bool,
}

/// This peer as seen from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Whether other peers are known to connect without a relay.
    pub is_reached: bool,
    pub reached_at: Vec<Multiaddr>,
    /// Addresses at which connected peers observe this one.
    pub sights: Vec<Sight>,
}

/// The newest report of each peer.
pub(crate) type Sights = BTreeMap<PeerId, (Multiaddr, bool)>;

/// The IP address and the port of an address.
pub(crate) fn ip_and_port(address: &Multiaddr) -> (Option<IpAddr>, Option<u16>) {
    let ip = address.iter().find_map(|part| match part {
        Protocol::Ip4(ip) => Some(IpAddr::from(ip)),
        Protocol::Ip6(ip) => Some(IpAddr::from(ip)),
        _ => None,
    });
    let port = address.iter().find_map(|part| match part {
        Protocol::Tcp(port) | Protocol::Udp(port) => Some(port),
        _ => None,
    });
    (ip, port)
}
