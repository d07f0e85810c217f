//! Addresses as machines have them: one that changes, and those of IPv6 alone.

use std::process::Command;

use serde_json::Value;

use crate::OUTSIDE;
use crate::internet::{Internet, Namespace, Router, run};
use crate::run::{Peer, RUN, World, unhurried};
use crate::training::{LISTEN, trains_one_of_several, until};

fn address_with(status: &Value, part: &str) -> Option<String> {
    let mut with = status["addresses"].as_array()?.iter().filter_map(Value::as_str).filter(|one| one.contains(part));
    with.next().map(str::to_owned)
}

#[test]
fn a_peer_whose_machine_gets_another_address_tells_it_trains_on_and_is_joined_there() {
    let Some(internet) = Internet::build(Router::KeepsPorts, Router::KeepsPorts) else { return };
    let world =
        World::of(&RUN.replace("inner_steps = 400", "inner_steps = 40").replace("phases = 12", "phases = 900"), 4);
    let found = unhurried(&["create", &world.config, "--share-text", "--corpus", &world.corpus]);
    let listen = format!("/ip4/{OUTSIDE}/udp/4003/quic-v1");
    let mut creator = Peer::start_at(&listen, internet.program_outside(), &world.path("creator"), &found);
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let join = unhurried(&["join", &address]);
    let mut member = Peer::start_at(LISTEN, internet.program_in_house(0), &world.path("member"), &join);
    let status = until(&mut member, "trains", trains_one_of_several);
    assert!(address_with(&status, "/192.168.1.2/").is_some(), "{}", status["addresses"]);

    internet.readdress_first_house("192.168.1.3");
    let status = until(&mut member, "tells its new address", |status| {
        address_with(status, "/192.168.1.3/").is_some() && address_with(status, "/192.168.1.2/").is_none()
    });
    let before = status["phases_trained"].as_u64();
    // One may have been almost over: the next needs what others send to the new address.
    until(&mut member, "trains on", |status| status["phases_trained"].as_u64() >= before.map(|phases| phases + 2));
    let new_address = address_with(&status, "/192.168.1.3/").unwrap();
    let join = unhurried(&["join", &new_address]);
    let elsewhere = "/ip4/0.0.0.0/udp/4002/quic-v1";
    let mut newcomer = Peer::start_at(elsewhere, internet.program_in_house(0), &world.path("newcomer"), &join);
    until(&mut newcomer, "trains, too", trains_one_of_several);
}

#[test]
fn machines_with_ipv6_alone_train_together_and_are_told_where_only_ipv4_is_asked_for() {
    let Some(machine) = Namespace::add("six") else { return };
    run(&format!("ip -n {} address del 127.0.0.1/8 dev lo", machine.name()));
    let world = World::of(&RUN.replace("inner_steps = 400", "inner_steps = 40"), 4);
    // As by default, all of IPv4 first; and with a port of its own, which IPv4 does not take from IPv6.
    let begin = |name: &str, port: u16, arguments: &[&str]| {
        let [four, six] = ["/ip4/0.0.0.0", "/ip6/::"].map(|ip| format!("{ip}/tcp/{port}"));
        let arguments = unhurried(&[arguments, &["--listen", &four]].concat());
        Peer::start_at(&six, machine.program(), &world.path(name), &arguments)
    };
    let mut creator = begin("creator", 4001, &["create", &world.config, "--share-text", "--corpus", &world.corpus]);
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    assert!(address.starts_with("/ip6/::1/"), "{address}");
    let mut member = begin("member", 4002, &["join", &address]);
    until(&mut member, "trains", trains_one_of_several);

    let mut command: Command = machine.program();
    let four = ["--listen", "/ip4/0.0.0.0/udp/0/quic-v1"];
    let refused = command.args(["join", &address, "--dir"]).arg(world.path("four")).args(four).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("no interface of this machine got an IPv4 address") && said.contains("/ip6/::/"), "{said}");
}
