//! Multiaddresses: the peer that one names, and which ones to pass on.

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

use crate::names::PeerKey;
use crate::network::identity::{peer_id, peer_key};
use crate::network::limits::{ADDRESSES_PER_PEER, RELAYED_ADDRESSES, RELAYS_AT_ONCE};

/// The peer at the end of an address (`/p2p/…`).
pub(crate) fn named_peer(address: &Multiaddr) -> Option<PeerId> {
    match address.iter().last() {
        Some(Protocol::P2p(peer)) => Some(peer),
        _ => None,
    }
}

/// The peer of a full address, if its key is ed25519.
pub fn peer_at(address: &Multiaddr) -> Option<PeerKey> {
    peer_key(&named_peer(address)?)
}

/// The address with `/p2p/<peer>` at its end, as another peer needs it to join; unchanged if the key is invalid.
pub fn with_peer(address: &Multiaddr, peer: PeerKey) -> Multiaddr {
    match peer_id(peer) {
        Some(peer) => full(address, peer),
        None => address.clone(),
    }
}

pub(crate) fn full(address: &Multiaddr, peer: PeerId) -> Multiaddr {
    match named_peer(address) {
        Some(_) => address.clone(),
        None => address.clone().with(Protocol::P2p(peer)),
    }
}

/// Whether this program can dial it: an IP address or name, then TCP or QUIC; or a relay with such an address, and a
/// circuit.
pub(crate) fn dialable(address: &Multiaddr) -> bool {
    let mut parts = address.iter();
    let machine = matches!(
        parts.next(),
        Some(Protocol::Ip4(_) | Protocol::Ip6(_) | Protocol::Dns(_) | Protocol::Dns4(_) | Protocol::Dns6(_))
    );
    let transport = match parts.next() {
        Some(Protocol::Tcp(_)) => true,
        Some(Protocol::Udp(_)) => matches!(parts.next(), Some(Protocol::QuicV1)),
        _ => false,
    };
    let rest: Vec<_> = parts.collect();
    use Protocol::{P2p, P2pCircuit};
    machine && transport && matches!(rest[..], [] | [P2p(_)] | [P2p(_), P2pCircuit] | [P2p(_), P2pCircuit, P2p(_)])
}

/// Whether it leads through a relay.
pub fn is_relayed(address: &Multiaddr) -> bool {
    address.iter().any(|part| matches!(part, Protocol::P2pCircuit))
}

/// The peer id and the address of a relay; `None` if it cannot be dialled directly.
pub(crate) fn relay_and_address(address: &Multiaddr) -> Option<(PeerId, Multiaddr)> {
    let relay = named_peer(address).filter(|_| dialable(address) && !is_relayed(address))?;
    Some((relay, without_peer(address)))
}

/// Whether a relay can be asked for a reservation at this address: it is dialled directly, and ends with the relay's
/// peer id.
pub fn is_relay_address(address: &Multiaddr) -> bool {
    relay_and_address(address).is_some()
}

/// In the order in which others should try them: public before relayed before private, loopback last, QUIC before TCP.
pub(crate) fn in_order(mut addresses: Vec<Multiaddr>) -> Vec<Multiaddr> {
    addresses.sort_by_cached_key(|address| {
        let nearness = match address {
            _ if is_loopback(address) => 3,
            _ if is_private(address) => 2,
            _ if is_relayed(address) => 1,
            _ => 0,
        };
        (nearness, is_relayed(address), is_tcp(address), address.to_string())
    });
    addresses.dedup();
    addresses
}

/// A peer's own addresses to tell others: in the order in which they should try them, without duplicates, at most
/// `most`. At most [`RELAYED_ADDRESSES`] lead through relays, shared equally among the relays.
pub fn worth_telling(addresses: Vec<Multiaddr>, most: usize) -> Vec<Multiaddr> {
    let relay_of =
        |address: &Multiaddr| address.iter().find(|part| matches!(part, Protocol::P2p(_))).map(Protocol::acquire);
    let mut told: Vec<Multiaddr> = Vec::new();
    for address in in_order(addresses) {
        let (mut of_all, mut of_this) = (0, 0);
        for other in told.iter().filter(|other| is_relayed(other)) {
            of_all += 1;
            of_this += usize::from(relay_of(other) == relay_of(&address));
        }
        let one_too_many = of_all >= RELAYED_ADDRESSES || of_this >= RELAYED_ADDRESSES / RELAYS_AT_ONCE;
        if told.len() < most && !(is_relayed(&address) && one_too_many) {
            told.push(address);
        }
    }
    told
}

fn is_tcp(address: &Multiaddr) -> bool {
    address.iter().any(|part| matches!(part, Protocol::Tcp(_)))
}

/// Whether it is meaningful only on the local network.
pub(crate) fn is_private(address: &Multiaddr) -> bool {
    match address.iter().next() {
        Some(Protocol::Ip4(ip)) => ip.is_private() || ip.is_link_local(),
        Some(Protocol::Ip6(ip)) => ip.is_unique_local() || ip.is_unicast_link_local(),
        _ => false,
    }
}

/// At most [`ADDRESSES_PER_PEER`] addresses that can be dialled and name this peer or none, without duplicates, in
/// order.
pub(crate) fn usable(addresses: Vec<Multiaddr>, peer: PeerId) -> Vec<Multiaddr> {
    let mut usable = Vec::new();
    for address in addresses {
        let fits = dialable(&address) && named_peer(&address).is_none_or(|named| named == peer);
        let address = full(&address, peer);
        if fits && !usable.contains(&address) {
            usable.push(address);
        }
        if usable.len() == ADDRESSES_PER_PEER {
            break;
        }
    }
    usable
}

/// The same addresses, with "any port" replaced by the ports of `others`. A relay's port stays.
pub fn with_ports_of(others: &[Multiaddr], listen: &[Multiaddr]) -> Vec<Multiaddr> {
    let own = |address: &&Multiaddr| !is_relayed(address);
    let other =
        |any: &Protocol<'_>| others.iter().filter(own).flat_map(Multiaddr::iter).find(|part| part.tag() == any.tag());
    let chosen = |part: Protocol<'_>| match part {
        Protocol::Tcp(0) | Protocol::Udp(0) => other(&part).unwrap_or(part).acquire(),
        part => part.acquire(),
    };
    listen.iter().map(|address| address.iter().map(chosen).collect()).collect()
}

/// Whether two addresses are equal except for the peer that they name.
pub(crate) fn same_place(one: &Multiaddr, other: &Multiaddr) -> bool {
    without_peer(one) == without_peer(other)
}

pub(crate) fn without_peer(address: &Multiaddr) -> Multiaddr {
    let mut address = address.clone();
    if named_peer(&address).is_some() {
        address.pop();
    }
    address
}

/// Whether it is a loopback address.
pub fn is_loopback(address: &Multiaddr) -> bool {
    address.iter().any(|part| match part {
        Protocol::Ip4(ip) => ip.is_loopback(),
        Protocol::Ip6(ip) => ip.is_loopback(),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Identity;

    #[test]
    fn a_full_address_names_its_peer_once() {
        let key = Identity::generate().key();
        let bare: Multiaddr = "/ip4/127.0.0.1/udp/4001/quic-v1".parse().unwrap();
        let once = with_peer(&bare, key);
        assert_eq!(with_peer(&once, key), once);
        assert_eq!(named_peer(&once), peer_id(key));
        assert_eq!(named_peer(&bare), None);
    }

    #[test]
    fn addresses_of_other_peers_and_floods_are_left_out() {
        let peer = peer_id(Identity::generate().key()).unwrap();
        let stranger = peer_id(Identity::generate().key()).unwrap();
        let tcp = |port: u16| -> Multiaddr { format!("/ip4/10.0.0.1/tcp/{port}").parse().unwrap() };
        let mut addresses = vec![full(&tcp(1), stranger), tcp(2), full(&tcp(2), peer)];
        assert_eq!(usable(addresses.clone(), peer), [full(&tcp(2), peer)]);
        addresses.extend((0..500).map(tcp));
        assert_eq!(usable(addresses, peer).len(), ADDRESSES_PER_PEER);
    }

    #[test]
    fn what_cannot_be_dialled_is_known_before_it_is_tried() {
        let can = |address: &str| dialable(&address.parse().unwrap());
        assert!(can("/ip4/10.0.0.1/tcp/1") && can("/ip6/::1/udp/1/quic-v1") && can("/dns4/example.org/tcp/1"));
        assert!(!can("/ip4/10.0.0.1/udp/1") && !can("/ip4/10.0.0.1") && !can("/ip4/10.0.0.1/tcp/1/ws"));
        let [relay, peer] = [(), ()].map(|()| peer_id(Identity::generate().key()).unwrap());
        assert!(can(&format!("/ip4/10.0.0.1/tcp/1/p2p/{relay}/p2p-circuit/p2p/{peer}")));
        assert!(!can(&format!("/ip4/10.0.0.1/tcp/1/p2p-circuit/p2p/{peer}")), "through which relay?");
        assert!(!can(&format!("/p2p/{relay}/p2p-circuit/p2p/{peer}")), "where is the relay?");
        assert!(!can(&format!("/ip4/10.0.0.1/tcp/1/p2p/{relay}/p2p-circuit/p2p/{peer}/p2p-circuit/p2p/{relay}")));
    }

    #[test]
    fn a_relayed_address_names_who_is_at_its_end() {
        let [relay, peer] = [(), ()].map(|()| peer_id(Identity::generate().key()).unwrap());
        let circuit: Multiaddr = format!("/ip4/203.0.113.7/tcp/1/p2p/{relay}/p2p-circuit").parse().unwrap();
        assert_eq!(named_peer(&full(&circuit, peer)), Some(peer));
        assert_eq!(usable(vec![full(&circuit, peer)], peer), [full(&circuit, peer)]);
        assert_eq!(usable(vec![full(&circuit, relay)], peer), [], "somebody else");
        assert_eq!(relay_and_address(&full(&circuit, peer)), None, "a relay is not behind another");
        let place: Multiaddr = "/ip4/203.0.113.7/tcp/1".parse().unwrap();
        assert_eq!(relay_and_address(&full(&place, relay)), Some((relay, place.clone())));
        assert_eq!(relay_and_address(&place), None);
    }

    #[test]
    fn the_longest_address_through_a_relay_is_passed_on() {
        let [relay, peer] = [(), ()].map(|()| peer_id(Identity::generate().key()).unwrap());
        let name = "x".repeat(63);
        let longest: Multiaddr =
            format!("/dns4/{name}/udp/65535/quic-v1/p2p/{relay}/p2p-circuit/p2p/{peer}").parse().unwrap();
        assert!(longest.len() <= crate::network::limits::KAD_ADDRESS_BYTES, "{}", longest.len());
        assert!(longest.to_string().len() <= crate::protocol::limits::MAX_ADDRESS_BYTES, "{longest}");
    }

    #[test]
    fn others_are_told_of_two_relays_and_still_of_the_address_on_the_lan() {
        let relays = [1, 2, 3].map(|_| peer_id(Identity::generate().key()).unwrap());
        let peer = peer_id(Identity::generate().key()).unwrap();
        let circuits = relays.iter().zip(1..).flat_map(|(relay, place)| {
            let ports = 1..=4;
            ports.map(move |port| format!("/ip4/203.0.113.{place}/tcp/{port}/p2p/{relay}/p2p-circuit/p2p/{peer}"))
        });
        let direct = ["/ip4/192.168.1.5/udp/1/quic-v1", "/ip4/127.0.0.1/udp/1/quic-v1", "/ip4/198.51.100.1/tcp/1"];
        let all = circuits.chain(direct.map(str::to_owned)).map(|text| text.parse().unwrap()).collect();
        let told: Vec<String> = worth_telling(all, 6).iter().map(ToString::to_string).collect();
        assert_eq!(told[0], direct[2]);
        assert_eq!(told[5], direct[0]);
        let through = |relay: &PeerId| told.iter().filter(|text| text.contains(&relay.to_string())).count();
        let mut each = relays.each_ref().map(through);
        each.sort_unstable();
        assert_eq!(each, [0, 2, 2]);
    }

    #[test]
    fn loopback_is_known_in_both_families() {
        assert!(is_loopback(&"/ip4/127.0.0.1/tcp/1".parse().unwrap()));
        assert!(is_loopback(&"/ip6/::1/udp/1/quic-v1".parse().unwrap()));
        assert!(!is_loopback(&"/ip4/192.168.1.2/tcp/1".parse().unwrap()));
    }

    #[test]
    fn only_any_port_becomes_that_of_another_address() {
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Multiaddr>>();
        let any = addresses(&["/ip4/0.0.0.0/udp/0/quic-v1", "/ip4/0.0.0.0/tcp/0", "/ip4/0.0.0.0/tcp/4001"]);
        assert_eq!(with_ports_of(&[], &any), any);
        let others = addresses(&["/ip4/192.168.1.5/udp/5000/quic-v1", "/ip4/192.168.1.5/tcp/6000"]);
        let expected = ["/ip4/0.0.0.0/udp/5000/quic-v1", "/ip4/0.0.0.0/tcp/6000", "/ip4/0.0.0.0/tcp/4001"];
        assert_eq!(with_ports_of(&others, &any), addresses(&expected));
    }

    #[test]
    fn public_addresses_come_before_private_ones_quic_before_tcp_and_loopback_last() {
        let order = [
            "/ip4/203.0.113.7/udp/1/quic-v1",
            "/ip4/203.0.113.7/tcp/1",
            "/ip4/172.17.0.1/tcp/1",
            "/ip4/192.168.1.5/tcp/1",
            "/ip4/127.0.0.1/udp/1/quic-v1",
        ];
        let addresses = order.map(|address| address.parse().unwrap()).to_vec();
        assert_eq!(in_order(addresses.iter().rev().cloned().collect()), addresses);
    }
}
