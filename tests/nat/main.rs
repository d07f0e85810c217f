//! Peers behind routers: two houses, each with a router that lets nobody in, and relays on the internet between them, all
//! of it network namespaces on this machine; and machines whose addresses change, or with IPv6 alone.
//! Needs root, `ip` and `nft`; says so and does nothing where they are missing.
#![cfg(all(feature = "learning", feature = "network"))]

#[cfg(feature = "learning")]
mod addresses;
mod internet;
mod parts;
#[path = "../network/peers.rs"]
#[allow(dead_code, reason = "the network's own tests need more of it")]
mod peers;
#[cfg(feature = "learning")]
#[path = "../support/run.rs"]
mod run;
#[cfg(feature = "learning")]
#[path = "../support/text.rs"]
mod text;
#[cfg(feature = "learning")]
mod training;

use internet::{Internet, Router};

const FIRST: &str = "203.0.113.1";
const SECOND: &str = "203.0.113.2";
const OUTSIDE: &str = "203.0.113.3";

#[test]
fn two_behind_different_routers_are_connected_directly_through_a_hole_and_the_relay_carries_no_blob() {
    punches_a_hole(Router::KeepsPorts, Router::KeepsPorts);
}

#[test]
fn a_hole_is_punched_through_routers_that_have_ports_of_their_own_as_long_as_they_keep_to_them() {
    punches_a_hole(Router::HasItsOwnPort, Router::HasItsOwnPort);
}

fn punches_a_hole(first: Router, second: Router) {
    let Some(internet) = Internet::build(first, second) else { return };
    let relay = internet.relay(FIRST);
    let relays = relay.hear("address");
    let host = internet.first_house("host", &[("RELAYS", &relays)]);
    let address = host.hear("address");
    assert!(address.contains("/p2p-circuit/"), "{address}");
    let guest = internet.second_house("guest", &[("ADDRESSES", &address)]);
    assert_eq!(guest.hear("asked"), "hello");
    assert_eq!(guest.hear("fetched"), "3000000 bytes");
    assert_eq!(guest.hear("heard"), "from the host");
    let carried: u64 = relay.hear("circuit gone, bytes").parse().unwrap();
    assert!(carried < 1_000_000, "{carried} bytes through the relay");
    println!("directly: 3000000 bytes fetched, {carried} bytes through the relay in all");
}

#[test]
fn a_peer_that_has_dialled_another_through_a_relay_is_itself_reached_through_a_hole() {
    let Some(internet) = Internet::build(Router::KeepsPorts, Router::KeepsPorts) else { return };
    let relay = internet.relay(FIRST);
    let relays = relay.hear("address");
    let other = internet.second_house("host", &[("RELAYS", &relays), ("PORT", "4002")]);
    let host = internet.first_house("host", &[("RELAYS", &relays), ("ADDRESSES", &other.hear("address"))]);
    let address = host.hear("address");
    // The other has told the host how it sees it: by a peer id, which is no address.
    assert_eq!(host.hear("joined"), "yes");
    let guest = internet.second_house("guest", &[("ADDRESSES", &address)]);
    assert_eq!(guest.hear("asked"), "hello");
    assert_eq!(guest.hear("fetched"), "3000000 bytes");
}

#[test]
fn two_on_one_lan_that_meet_through_a_relay_find_each_other_there() {
    let Some(internet) = Internet::build(Router::KeepsPorts, Router::KeepsPorts) else { return };
    let relay = internet.relay(FIRST);
    let host = internet.first_house("host", &[("RELAYS", &relay.hear("address")), ("MDNS", "yes")]);
    let address = host.hear("address");
    // Their router sends nothing back to where it came from, so that no hole can be punched.
    let guest = internet.first_house("guest", &[("ADDRESSES", &address), ("PORT", "4002"), ("MDNS", "yes")]);
    assert_eq!(guest.hear("asked"), "hello");
    assert_eq!(guest.hear("fetched"), "3000000 bytes");
}

#[test]
fn where_a_router_changes_ports_what_is_small_goes_through_a_relay_and_through_another_when_that_dies() {
    let Some(internet) = Internet::build(Router::KeepsPorts, Router::ChangesPorts) else { return };
    let relays = [internet.relay(FIRST), internet.relay(SECOND)];
    let both = relays.each_ref().map(|relay| relay.hear("address")).join(" ");
    let host = internet.first_house("host", &[("RELAYS", &both)]);
    let mut addresses = Vec::new();
    let through = |addresses: &[String], ip: &str| addresses.iter().find(|address| address.contains(ip)).cloned();
    let (first, second) = loop {
        addresses.push(host.hear("address"));
        if let (Some(first), Some(second)) = (through(&addresses, FIRST), through(&addresses, SECOND)) {
            break (first, second);
        }
    };
    let guest = internet.second_house("guest", &[("ADDRESSES", &format!("{first} {second}"))]);
    assert_eq!(guest.hear("asked"), "hello");
    let refused = guest.hear("not fetched");
    assert!(refused.contains("only through a relay, which carries no blobs"), "{refused}");
    assert_eq!(guest.hear("heard"), "from the host");
    let [gone, _stays] = relays;
    drop(gone);
    assert!(host.hear("lost").contains(FIRST));
    assert_eq!(guest.hear("asked again"), "hello");
    println!("through the relay: asked and heard; {refused}; through the other relay: asked again");
}

#[test]
fn a_newcomer_comes_in_through_a_relay_and_a_member_when_the_creator_has_gone_for_good() {
    let Some(internet) = Internet::build(Router::KeepsPorts, Router::KeepsPorts) else { return };
    let relay = internet.relay(FIRST);
    let relays = relay.hear("address");
    let creator = internet.first_house("host", &[("RELAYS", &relays)]);
    let address = creator.hear("address");
    let member = internet.second_house("host", &[("RELAYS", &relays), ("ADDRESSES", &address), ("PORT", "4002")]);
    let member_address = member.hear("address");
    assert_eq!(member.hear("joined"), "yes");
    drop(creator);
    let newcomer = internet.first_house("seeker", &[("ADDRESSES", &relays)]);
    let found = newcomer.hear("found");
    assert!(found.contains(member_address.rsplit_once("/p2p/").unwrap().1), "{found}");
    assert_eq!(newcomer.hear("asked"), "hello");
    println!("the creator is gone; found through the relay: {found}");
}

#[test]
fn a_relay_tells_a_peer_that_others_reach_it_and_one_behind_a_router_that_they_do_not() {
    let Some(internet) = Internet::build(Router::KeepsPorts, Router::KeepsPorts) else { return };
    let relay = internet.relay(FIRST);
    let relays = relay.hear("address");
    let public = internet.outside("host", &[("RELAYS", &relays), ("LISTEN", "203.0.113.3"), ("PORT", "4003")]);
    let inside = internet.first_house("host", &[("RELAYS", &relays)]);
    inside.hear("address");
    assert!(public.hear("reached at").contains("203.0.113.3"));
    assert!(inside.outlook().contains("no peer has reached this peer from outside yet"));
}

#[test]
fn a_peer_on_the_internet_makes_nobody_in_a_house_dial_addresses_there() {
    let Some(internet) = Internet::build(Router::KeepsPorts, Router::KeepsPorts) else { return };
    let (door, socket) = ("/ip4/192.168.1.2/tcp/9000", "192.168.1.2:9000");
    let settings = [("LISTEN", "203.0.113.3"), ("PORT", "4003"), ("ANNOUNCE", door)];
    let host = internet.outside("host", &settings);
    let addresses = [(); 3].map(|()| host.hear("direct address"));
    let address = addresses.iter().find(|address| address.contains("203.0.113.3/udp")).unwrap();
    assert!(addresses.iter().any(|address| address.contains(door)), "{addresses:?}");
    let settings = [("ADDRESSES", &**address), ("DOOR", door), ("DOOR_SOCKET", socket)];
    let resident = internet.first_house("resident", &settings);
    assert_eq!(resident.hear("asked"), "hello");
    assert_eq!(resident.hear("asked again"), "hello");
    assert_eq!(resident.hear("knocked for the host"), "false");
    assert_eq!(resident.hear("dialled by the user"), "false");
    assert_eq!(resident.hear("knocked for the user"), "true", "a door at which one can knock");
}
