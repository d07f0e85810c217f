//! The scope of an address, and who may name it.
//!
//! Other peers name addresses, and this peer dials them. So anybody could make it connect to the machines of its own
//! network. A peer may therefore name only addresses that are as wide as the one at which it is connected itself: a peer on
//! this machine any, a peer on the LAN those of the LAN and public ones, all others public ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libp2p::Multiaddr;
use libp2p::core::ConnectedPoint;
use libp2p::multiaddr::Protocol;

/// Where an address means the same machine to everybody. The widest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Everywhere.
    Public,
    /// On a local network.
    Lan,
    /// On one machine.
    Loopback,
}

impl Scope {
    /// Whether a peer that is connected at an address of this scope may name this address.
    pub fn may_name(self, address: &Multiaddr) -> bool {
        scope_of(address).is_some_and(|scope| scope <= self)
    }
}

/// The scope of an address, for a circuit that of its relay; `None` if nobody can be connected there.
///
/// A name counts as public, whatever it stands for: see the known limits.
pub fn scope_of(address: &Multiaddr) -> Option<Scope> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => scope_of_v4(ip),
        Protocol::Ip6(ip) => scope_of_v6(ip),
        Protocol::Dns(name) | Protocol::Dns4(name) | Protocol::Dns6(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let local = name == "localhost" || name.ends_with(".localhost");
            Some(if local { Scope::Loopback } else { Scope::Public })
        }
        _ => None,
    }
}

/// The scope of a connection: that of the address of the other peer, or of the relay through which it comes.
pub(crate) fn scope_of_connection(endpoint: &ConnectedPoint) -> Scope {
    let address = match endpoint {
        ConnectedPoint::Listener { local_addr, .. } if endpoint.is_relayed() => local_addr,
        _ => endpoint.get_remote_address(),
    };
    scope_of(address).unwrap_or(Scope::Public)
}

fn scope_of_v4(ip: Ipv4Addr) -> Option<Scope> {
    match ip.octets() {
        [0, ..] | [224..=255, ..] => None,
        [127, ..] => Some(Scope::Loopback),
        // 100.64.0.0/10 is between a provider's customers.
        [100, 64..128, ..] => Some(Scope::Lan),
        _ if ip.is_private() || ip.is_link_local() => Some(Scope::Lan),
        _ => Some(Scope::Public),
    }
}

fn scope_of_v6(ip: Ipv6Addr) -> Option<Scope> {
    // An IPv4 address in another form: mapped, or behind a translator (NAT64).
    let embedded = match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some((high, low)),
        // 6to4.
        [0x2002, high, low, ..] => Some((high, low)),
        _ => None,
    };
    if let Some((high, low)) = embedded {
        return scope_of_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    }
    match ip {
        _ if ip.is_unspecified() || ip.is_multicast() => None,
        _ if ip.is_loopback() => Some(Scope::Loopback),
        _ if ip.is_unique_local() || ip.is_unicast_link_local() => Some(Scope::Lan),
        _ => Some(Scope::Public),
    }
}

/// The IP address of the other side of a direct connection, of which an IPv6 network of 64 bits counts as one.
pub(crate) fn origin_of(remote: &Multiaddr) -> Option<IpAddr> {
    match remote.iter().next()? {
        Protocol::Ip4(ip) => Some(IpAddr::V4(ip)),
        Protocol::Ip6(ip) => Some(match ip.to_ipv4_mapped() {
            Some(ip) => IpAddr::V4(ip),
            None if ip.is_loopback() => IpAddr::V6(ip),
            None => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELAY: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

    #[test]
    fn a_peer_names_only_addresses_as_wide_as_its_own() {
        use Scope::{Lan, Loopback, Public};
        let behind = |relay: &str| format!("{relay}/p2p/{RELAY}/p2p-circuit");
        let (near, far) = (behind("/ip4/192.168.1.1/tcp/1"), behind("/ip4/203.0.113.7/tcp/1"));
        // An address, and the scopes of connections over which a peer may name it.
        let rule: [(&str, &[Scope]); 26] = [
            ("/ip4/203.0.113.7/udp/4001/quic-v1", &[Public, Lan, Loopback]),
            ("/ip6/2001:db8::1/tcp/4001", &[Public, Lan, Loopback]),
            ("/dns4/peer.example.org/tcp/4001", &[Public, Lan, Loopback]),
            (&far, &[Public, Lan, Loopback]),
            ("/ip4/10.0.0.1/tcp/22", &[Lan, Loopback]),
            ("/ip4/172.16.0.1/tcp/80", &[Lan, Loopback]),
            ("/ip4/192.168.1.1/tcp/80", &[Lan, Loopback]),
            ("/ip4/169.254.169.254/tcp/80", &[Lan, Loopback]),
            ("/ip4/100.64.0.1/tcp/80", &[Lan, Loopback]),
            ("/ip6/fc00::1/tcp/80", &[Lan, Loopback]),
            ("/ip6/fe80::1/tcp/80", &[Lan, Loopback]),
            ("/ip6/::ffff:192.168.1.1/tcp/80", &[Lan, Loopback]),
            ("/ip6/64:ff9b::c0a8:101/tcp/80", &[Lan, Loopback]),
            ("/ip6/2002:c0a8:101::1/tcp/80", &[Lan, Loopback]),
            (&near, &[Lan, Loopback]),
            ("/ip4/127.0.0.1/tcp/80", &[Loopback]),
            ("/ip4/127.9.9.9/udp/1/quic-v1", &[Loopback]),
            ("/ip6/::1/tcp/80", &[Loopback]),
            ("/ip6/::ffff:127.0.0.1/tcp/80", &[Loopback]),
            ("/dns/localhost/tcp/80", &[Loopback]),
            ("/dns4/a.LOCALHOST./tcp/80", &[Loopback]),
            ("/ip4/0.0.0.0/tcp/80", &[]),
            ("/ip4/224.0.0.251/udp/5353/quic-v1", &[]),
            ("/ip4/255.255.255.255/udp/1/quic-v1", &[]),
            ("/ip6/::/tcp/80", &[]),
            ("/ip6/ff02::fb/udp/5353/quic-v1", &[]),
        ];
        for (address, may) in rule {
            let parsed = address.parse().unwrap();
            for scope in [Public, Lan, Loopback] {
                assert_eq!(scope.may_name(&parsed), may.contains(&scope), "{scope:?} {address}");
            }
        }
    }

    #[test]
    fn who_comes_through_a_relay_is_where_the_relay_is() {
        let comes = |local: &str, remote: &str| {
            let (local_addr, send_back_addr) = (local.parse().unwrap(), remote.parse().unwrap());
            scope_of_connection(&ConnectedPoint::Listener { local_addr, send_back_addr })
        };
        let own = "/ip4/192.168.1.5/tcp/1";
        assert_eq!(comes(own, "/ip4/127.0.0.1/tcp/1"), Scope::Loopback);
        assert_eq!(comes(own, "/ip4/192.168.1.7/tcp/1"), Scope::Lan);
        assert_eq!(comes(own, "/ip4/203.0.113.7/tcp/1"), Scope::Public);
        let through = |relay: &str| format!("{relay}/p2p/{RELAY}/p2p-circuit");
        let peer = format!("/p2p/{RELAY}");
        assert_eq!(comes(&through("/ip4/203.0.113.7/tcp/1"), &peer), Scope::Public);
        assert_eq!(comes(&through("/ip4/192.168.1.1/tcp/1"), &peer), Scope::Lan);
    }
}
