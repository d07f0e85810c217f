//! The addresses at which other peers see this one: they show which router lies between.

use std::collections::BTreeMap;
use std::net::IpAddr;

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

/// Peers whose word is kept: 64 x 200 bytes.
pub(crate) const SIGHTS: usize = 64;

/// Where another peer sees this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    pub at: Multiaddr,
    pub port: Option<u16>,
    /// Whether it sees the port at which this peer listens, or one that was chosen for the connection.
    pub from_listening_port: bool,
    /// Whether this machine has that address itself: no router is in between.
    pub is_own: bool,
    /// Whether the address means something only on this machine or its own network.
    pub is_local: bool,
}

/// This peer from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Whether others come in without a relay, as far as is known.
    pub is_reached: bool,
    pub reached_at: Vec<Multiaddr>,
    /// Where connected peers see this one.
    pub sights: Vec<Sight>,
}

/// The newest word of each peer.
pub(crate) type Sights = BTreeMap<PeerId, (Multiaddr, bool)>;

/// The machine and the port of an address.
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
