//! A peer that reaches no other peer reports what it tried, what went wrong and what to do. It starts no swarm of its
//! own.

use crate::run::{Peer, RUN, World, mistake};

#[test]
fn a_peer_that_comes_back_to_nobody_says_what_it_tried() {
    let world = World::of(RUN, 4);
    let creator = ["found", &world.config, "--share-text", "--corpus", &world.corpus];
    let mut first = Peer::start(&world.path("creator"), &creator);
    let address = first.wait_for("join")["address"].as_str().unwrap().to_owned();
    let mut second = Peer::start(&world.path("second"), &["join", &address]);
    second.wait_for("peer");
    second.signal("KILL");
    second.ended();
    first.signal("KILL");
    first.ended();
    let mut alone = Peer::start(&world.path("second"), &["join", &address]);
    let said = loop {
        let said = alone.wait_for("note")["text"].as_str().unwrap().to_owned();
        if said.contains("alone for 20 s") {
            break said;
        }
    };
    assert!(said.contains(&format!("tried: {address}")) && said.contains("nobody answered at"), "{said}");
    assert!(said.contains("without starting a swarm of its own") && said.contains("pathswarm doctor"), "{said}");
}

#[test]
fn a_folder_is_not_resumed_for_the_address_of_another_run_and_needs_no_address_to_be_resumed() {
    let world = World::of(RUN, 4);
    let create =
        |name| Peer::start(&world.path(name), &["create", &world.config, "--share-text", "--corpus", &world.corpus]);
    let address = |peer: &mut Peer| peer.wait_for("join")["address"].as_str().unwrap().to_owned();
    let mut first = create("first");
    let join = address(&mut first);
    let mut second = Peer::start(&world.path("second"), &["join", &join]);
    let run = second.wait_for("joining")["run"].clone();
    second.wait_for("peer");
    second.signal("KILL");
    second.ended();
    let mut other = create("other");
    let elsewhere = address(&mut other);
    other.signal("KILL");
    other.ended();

    let listen = ["--listen", "/ip4/127.0.0.1/udp/0/quic-v1"];
    let said = mistake(&[&["join", &elsewhere, "--dir", &world.name("second")][..], &listen].concat());
    assert!(said.contains(&format!("has never had a peer at {elsewhere}")), "{said}");
    assert!(said.contains("leave the address out to resume that run"), "{said}");
    let said = mistake(&[&["join", "--dir", &world.name("nobody")][..], &listen].concat());
    assert!(said.contains("holds no run to resume"), "{said}");

    let mut resumed = Peer::start(&world.path("second"), &["join"]);
    assert_eq!(resumed.wait_for("joining")["run"], run);
    resumed.wait_for("peer");
}
