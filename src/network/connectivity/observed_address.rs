//! What others say of where they see this peer, for whoever wonders what lies in between.

use std::collections::BTreeMap;
use std::net::IpAddr;

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

use crate::network::connectivity::addresses::{is_loopback, is_private, is_relayed};
use crate::network::swarm::actor::Actor;

/// Peers whose word is kept: 64 x 200 bytes.
const SIGHTS: usize = 64;

/// Where another peer sees this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Where.
    pub at: Multiaddr,
    /// Its port.
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
    /// Where.
    pub reached_at: Vec<Multiaddr>,
    /// Where connected peers see this one.
    pub sights: Vec<Sight>,
}

/// The newest word of each peer.
pub(in crate::network) type Sights = BTreeMap<PeerId, (Multiaddr, bool)>;

fn ip_and_port(address: &Multiaddr) -> (Option<IpAddr>, Option<u16>) {
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

impl Actor {
    /// A peer says where it sees us.
    pub(in crate::network) fn note_sight(&mut self, peer: PeerId, at: &Multiaddr, from_listening_port: bool) {
        let room = self.sights.len() < SIGHTS || self.sights.contains_key(&peer);
        if room && !is_relayed(at) {
            self.sights.insert(peer, (at.clone(), from_listening_port));
        }
    }

    pub(in crate::network) fn outside(&self) -> Outside {
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
