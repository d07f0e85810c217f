//! A peer that reaches no other peer reports what it tried, what went wrong and what to do. It starts no swarm of its
//! own.

use crate::run::{Peer, RUN, World};

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
