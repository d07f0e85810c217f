//! A run among houses: trained together through a hole in two routers, while a relay dies and the creator goes for good.

use std::time::Instant;

use serde_json::Value;

use crate::internet::{Internet, Router};
use crate::run::{Peer, RUN, TIMEOUT, World, unhurried};
use crate::{FIRST, OUTSIDE, SECOND};

pub const LISTEN: &str = "/ip4/0.0.0.0/udp/4001/quic-v1";

/// A relay, and the line by which it is named.
fn relay(internet: &Internet, world: &World, ip: &str) -> (Peer, String) {
    let listen = format!("/ip4/{ip}/udp/4001/quic-v1");
    let arguments = ["relay", "--every", "1"];
    let mut relay = Peer::start_at(&listen, internet.program_outside(), &world.path(ip), &arguments);
    let address = relay.wait_for("relay")["address"].as_str().unwrap().to_owned();
    (relay, address)
}

/// Waits until the peer's status is so.
#[expect(clippy::disallowed_methods, reason = "patience has an end")]
pub fn until(peer: &mut Peer, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        peer.catch_up();
        if let Some(status) = peer.status().filter(&holds) {
            let (after_s, phases) = (began.elapsed().as_secs(), &status["phases_trained"]);
            println!("{} {what} after {after_s} s, with {phases} phases trained", peer.folder.display());
            return status;
        }
        assert!(began.elapsed() < TIMEOUT, "{} never {what}", peer.folder.display());
    }
}

fn address_through(status: &Value, ip: &str) -> Option<String> {
    let addresses = status["addresses"].as_array()?.iter().filter_map(Value::as_str);
    let mut through = addresses.filter(|address| address.contains(ip) && address.contains("/p2p-circuit/"));
    through.next().map(str::to_owned)
}

pub fn trains_one_of_several(status: &Value) -> bool {
    status["phases_trained"].as_u64() >= Some(1)
}

#[test]
fn two_houses_train_together_though_a_relay_dies_and_the_creator_goes_for_good_and_a_third_joins() {
    let Some(internet) = Internet::build(Router::KeepsPorts, Router::KeepsPorts) else { return };
    let run = RUN.replace("inner_steps = 400", "inner_steps = 100").replace("phases = 12", "phases = 24");
    let world = World::of(&run, 4);
    let (first_relay, first) = relay(&internet, &world, FIRST);
    let (mut second_relay, second) = relay(&internet, &world, SECOND);
    let relays = ["--relay", &first, "--relay", &second];

    let found = [&["found", &world.config, "--share-text", "--corpus", &world.corpus][..], &relays].concat();
    let found = unhurried(&found);
    let mut creator = Peer::start_at(LISTEN, internet.program_in_house(0), &world.path("creator"), &found);
    let status = until(&mut creator, "has places on both relays", |status| {
        address_through(status, FIRST).is_some() && address_through(status, SECOND).is_some()
    });
    let address = address_through(&status, FIRST).unwrap();

    let join = unhurried(&[&["join", &address][..], &relays].concat());
    let mut member = Peer::start_at(LISTEN, internet.program_in_house(1), &world.path("member"), &join);
    until(&mut member, "trains", trains_one_of_several);
    // The members have found each other: nothing of theirs depends on this relay any more.
    drop(first_relay);
    let before = member.status().unwrap()["phases_trained"].as_u64();
    until(&mut member, "trains on without the relay", |status| status["phases_trained"].as_u64() > before);
    let status =
        until(&mut member, "has a place on the other relay", |status| address_through(status, SECOND).is_some());

    // Nor of the creator: all of the text is here.
    until(&mut member, "has all of the text", |status| {
        status["text"]["of"].as_u64() == Some(4) && status["text"]["here"] == status["text"]["of"]
    });
    // The creator leaves, and a newcomer takes its place in the house, by the address of the member.
    creator.signal("INT");
    let code = creator.ended();
    assert!(
        [Some(130), Some(0)].contains(&code),
        "{code:?}: it leaves in order, in the midst of the run or at its end"
    );
    let address = address_through(&status, SECOND).unwrap();
    let join = unhurried(&["join", &address, "--relay", &second]);
    let mut newcomer = Peer::start_at(LISTEN, internet.program_in_house(0), &world.path("newcomer"), &join);
    for peer in [&mut member, &mut newcomer] {
        peer.wait_for("result");
    }
    let (member, newcomer) = (member.status().unwrap(), newcomer.status().unwrap());
    let hashes = |status: &Value| status["parameter_hashes"].as_object().unwrap().clone();
    let (ours, theirs) = (hashes(&member), hashes(&newcomer));
    let both: Vec<_> = ours.iter().filter(|(module, _)| theirs.contains_key(*module)).collect();
    assert!(!both.is_empty() && both.iter().all(|(module, hash)| theirs[*module] == **hash), "{ours:?} {theirs:?}");

    let carried = second_relay.wait_for("carries")["counts"].clone();
    let blobs = newcomer["traffic"]["blob_bytes_received"].as_u64().unwrap();
    println!("the newcomer fetched {blobs} bytes of blobs directly; the relay: {carried}");
    assert!(blobs > 100_000, "{blobs}");
}

#[test]
fn two_houses_whose_routers_change_ports_train_together_with_one_member_outside() {
    let Some(internet) = Internet::build(Router::ChangesPorts, Router::ChangesPorts) else { return };
    let run = RUN.replace("inner_steps = 400", "inner_steps = 100").replace("phases = 12", "phases = 6");
    let world = World::of(&run, 4);
    let (_relay, relay) = relay(&internet, &world, FIRST);
    let listen = format!("/ip4/{OUTSIDE}/udp/4003/quic-v1");
    let found = unhurried(&["found", &world.config, "--share-text", "--corpus", &world.corpus]);
    let mut creator = Peer::start_at(&listen, internet.program_outside(), &world.path("creator"), &found);
    let is_there = |status: &Value| status["addresses"].as_array().is_some_and(|all| !all.is_empty());
    let status = until(&mut creator, "has an address", is_there);
    let address = status["addresses"][0].as_str().unwrap().to_owned();
    let join = unhurried(&["join", &address, "--relay", &relay]);
    let houses = [0, 1].map(|house| (house, world.path(&format!("house{house}"))));
    let mut members =
        houses.map(|(house, folder)| Peer::start_at(LISTEN, internet.program_in_house(house), &folder, &join));
    for member in &mut members {
        until(member, "trains", trains_one_of_several);
    }
    for member in &mut members {
        member.wait_for("result");
    }
    creator.wait_for("result");
    let hashes = |member: &mut Peer| member.status().unwrap()["parameter_hashes"].as_object().unwrap().clone();
    let [one, other] = members.each_mut().map(hashes);
    let both: Vec<_> = one.iter().filter(|(module, _)| other.contains_key(*module)).collect();
    assert!(!both.is_empty() && both.iter().all(|(module, hash)| other[*module] == **hash), "{one:?} {other:?}");
    let forwarded = creator.status().unwrap()["traffic"]["blob_bytes_forwarded"].as_u64().unwrap();
    println!("{forwarded} bytes of blobs went through the member outside");
    assert!(forwarded > 10_000, "more than a few contributions: {forwarded}");
}
