//! Whoever created a run may go for good: its text is elsewhere, too.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::run::{Peer, RUN, TIMEOUT, World, unhurried};
use serde_json::Value;

/// Whether all of the run's text and all modules are here.
fn has_all(status: &Value) -> bool {
    let text = &status["text"];
    let states = status["modules"].as_array().unwrap().iter().filter(|module| module["state_hash"].is_string());
    text["of"].as_u64() == Some(4) && text["here"] == text["of"] && states.count() == 4
}

/// Those that a result or a status names.
fn paths(said: &Value) -> Vec<u64> {
    said["paths"].as_array().unwrap().iter().map(|path| path["path"].as_u64().unwrap()).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "patience has an end")]
fn a_run_whose_creator_was_killed_is_trained_to_its_end_on_all_of_its_text() {
    let world =
        World::of(&RUN.replace("inner_steps = 400", "inner_steps = 100").replace("phases = 12", "phases = 30"), 4);
    let found = unhurried(&["found", &world.config, "--share-text", "--corpus", &world.corpus]);
    let mut creator = Peer::start(&world.path("creator"), &found);
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let mut member = Peer::start(&world.path("member"), &unhurried(&["join", &address]));
    let status = loop {
        member.catch_up();
        if let Some(status) = member.status().filter(has_all) {
            break status;
        }
    };
    creator.kill();
    let address = status["addresses"][0].as_str().unwrap();
    let newcomer = Peer::start(&world.path("newcomer"), &unhurried(&["join", address]));
    let mut peers = [member, newcomer];
    let mut scored: BTreeSet<u64> = peers.iter_mut().flat_map(|peer| paths(&peer.wait_for("result"))).collect();
    // Who was done with its own path before it took up one of the creator's says so once more.
    let began = Instant::now();
    while let Some(missing) = (0..4).find(|path| !scored.contains(path)) {
        assert!(began.elapsed() < TIMEOUT, "path {missing} is scored by nobody");
        let holds = |peer: &&mut Peer| peer.status().is_some_and(|status| paths(&status).contains(&missing));
        if let Some(holder) = peers.iter_mut().find(holds) {
            scored.extend(paths(&holder.wait_for("result")));
        }
    }
}
