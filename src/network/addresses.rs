//! Multiaddresses: which peer one names, and which are worth passing on.

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

use super::identity::peer_id;
use super::limits::ADDRESSES_PER_PEER;
use crate::names::PeerKey;

/// The peer that an address ends with (`/p2p/…`).
pub(super) fn named_peer(address: &Multiaddr) -> Option<PeerId> {
    match address.iter().last() {
        Some(Protocol::P2p(peer)) => Some(peer),
        _ => None,
    }
}

/// The address with `/p2p/<peer>` at its end: what somebody else needs to join. As it was, if the key is no key.
pub fn with_peer(address: &Multiaddr, peer: PeerKey) -> Multiaddr {
    match peer_id(peer) {
        Some(peer) => full(address, peer),
        None => address.clone(),
    }
}

pub(super) fn full(address: &Multiaddr, peer: PeerId) -> Multiaddr {
    match named_peer(address) {
        Some(_) => address.clone(),
        None => address.clone().with(Protocol::P2p(peer)),
    }
}

/// Whether we can dial it: a machine by number or name, then TCP or QUIC.
pub(super) fn dialable(address: &Multiaddr) -> bool {
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
    machine && transport && matches!(parts.next(), None | Some(Protocol::P2p(_))) && parts.next().is_none()
}

/// Those that others should try first come first: public before private, loopback last, QUIC before TCP.
pub(super) fn in_order(mut addresses: Vec<Multiaddr>) -> Vec<Multiaddr> {
    let is_tcp = |address: &Multiaddr| address.iter().any(|part| matches!(part, Protocol::Tcp(_)));
    addresses.sort_by_cached_key(|address| {
        (is_loopback(address), is_private(address), is_tcp(address), address.to_string())
    });
    addresses.dedup();
    addresses
}

fn is_private(address: &Multiaddr) -> bool {
    match address.iter().next() {
        Some(Protocol::Ip4(ip)) => ip.is_private() || ip.is_link_local(),
        Some(Protocol::Ip6(ip)) => ip.is_unique_local() || ip.is_unicast_link_local(),
        _ => false,
    }
}

/// At most [`ADDRESSES_PER_PEER`] of those that can be dialled and name this peer or nobody, without repetition, in
/// their order.
pub(super) fn usable(addresses: Vec<Multiaddr>, peer: PeerId) -> Vec<Multiaddr> {
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

/// The same addresses, with the ports of others in place of "any port".
pub fn with_ports_of(others: &[Multiaddr], listen: &[Multiaddr]) -> Vec<Multiaddr> {
    let other = |any: &Protocol<'_>| others.iter().flat_map(Multiaddr::iter).find(|part| part.tag() == any.tag());
    let chosen = |part: Protocol<'_>| match part {
        Protocol::Tcp(0) | Protocol::Udp(0) => other(&part).unwrap_or(part).acquire(),
        part => part.acquire(),
    };
    listen.iter().map(|address| address.iter().map(chosen).collect()).collect()
}

/// Whether two addresses differ at most in saying who is there.
pub(super) fn same_place(one: &Multiaddr, other: &Multiaddr) -> bool {
    let bare = |address: &Multiaddr| {
        let mut address = address.clone();
        if named_peer(&address).is_some() {
            address.pop();
        }
        address
    };
    bare(one) == bare(other)
}

/// Whether an address means "this machine", whoever reads it.
pub(super) fn is_loopback(address: &Multiaddr) -> bool {
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
    }

    #[test]
    fn public_quic_addresses_come_first_and_loopback_last() {
        let order = ["/ip4/10.0.0.1/udp/1/quic-v1", "/ip4/10.0.0.1/tcp/1", "/ip4/127.0.0.1/udp/1/quic-v1"];
        let addresses = order.map(|address| address.parse().unwrap()).to_vec();
        assert_eq!(in_order(addresses.iter().rev().cloned().collect()), addresses);
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
    fn public_addresses_come_before_private_ones_and_loopback_last() {
        let told =
            ["/ip4/127.0.0.1/tcp/1", "/ip4/172.17.0.1/tcp/1", "/ip4/203.0.113.7/tcp/1", "/ip4/192.168.1.5/tcp/1"];
        let sorted = in_order(told.iter().map(|text| text.parse().unwrap()).collect());
        let sorted: Vec<String> = sorted.iter().map(ToString::to_string).collect();
        assert_eq!(sorted, [told[2], told[1], told[3], told[0]]);
    }
}
