//! Runs of adapters beside a model that stays as it is: everybody needs the whole of that model, and only adapters are sent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use pathswarm::store::StoreFolder;
use serde_json::Value;

use crate::run::{Peer, RUN, TIMEOUT, World, unhurried};
use crate::swarm::{modules, newest, summary};

const PHASES: u64 = 4;

/// A model of [`RUN`], and a run of adapters beside it.
fn beside_a_model(outer: &str) -> World {
    let brief = RUN
        .replace("inner_steps = 400", "inner_steps = 2")
        .replace("phases = 12", "phases = 1")
        .replace("warmup_steps = 10", "warmup_steps = 1");
    let world = World::of(&brief.replace("ancestor_steps = 30", "ancestor_steps = 0"), 4);
    world.simulated();
    let adapters = RUN
        .replace(
            "[[levels]]\nparts = [\"embedding\", \"block.0\"]",
            "[model.adapter]\nrank = 2\n[[levels]]\nparts = [\"adapter.0\"]",
        )
        .replace("[\"block.1\", \"final-norm\"]", "[\"adapter.1\"]")
        .replace("inner_steps = 400", "inner_steps = 100")
        .replace("phases = 12", &format!("phases = {PHASES}"))
        .replace("ancestor_steps = 30", "ancestor_steps = 0");
    std::fs::write(&world.config, adapters + outer).unwrap();
    world
}

/// The creator of a world's run, and the address at which it is joined.
fn creator(world: &World) -> (Peer, String) {
    let ancestor = world.name("run/model");
    let create = ["create", &world.config, "--ancestor", &ancestor, "--share-text", "--corpus", &world.corpus];
    let mut creator = Peer::start(&world.path("creator"), &unhurried(&create));
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    (creator, address)
}

/// Listens until all peers answer, and what they say satisfies the condition.
#[expect(clippy::disallowed_methods, reason = "patience has an end")]
fn until(peers: &mut [&mut Peer], holds: impl Fn(&[Value]) -> bool) {
    let began = Instant::now();
    loop {
        let statuses: Vec<Value> = peers.iter().filter_map(|peer| peer.status()).collect();
        if statuses.len() == peers.len() && holds(&statuses) {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "the last seen: {}", summary(&statuses));
        peers[0].catch_up();
        peers[1..].iter_mut().for_each(|peer| peer.pass_over());
    }
}

/// Whether everybody has ended, with the same bytes of each of the four modules.
fn have_ended_alike(statuses: &[Value]) -> bool {
    let mut states = BTreeMap::new();
    let all = || statuses.iter().flat_map(modules);
    let alike = all().all(|module| {
        let (name, state) = (module["module"].as_str(), module["state_hash"].as_str());
        state.is_some() && *states.entry(name).or_insert(state) == state
    });
    alike && states.len() == 4 && statuses.iter().all(|status| status["done"] == true)
}

/// Two peers, of which the one that came by address is killed in the middle and comes back.
fn trained_by_two(outer: &str) {
    let world = beside_a_model(outer);
    let (mut first, address) = creator(&world);
    let mut second = Peer::start(&world.path("second"), &unhurried(&["join", &address]));
    second.wait_for("step");
    until(&mut [&mut first, &mut second], |statuses| newest(statuses) >= 1);
    second.kill();
    let mut second = Peer::start(&world.path("second"), &unhurried(&["join", &address]));
    until(&mut [&mut first, &mut second], have_ended_alike);
}

#[test]
fn a_newcomer_trains_adapters_and_goes_on_when_it_was_killed() {
    trained_by_two("");
}

#[test]
fn adapters_are_brought_in_step_level_by_level() {
    trained_by_two("[outer]\nstreaming = true\n");
}

#[test]
fn paths_of_adapters_need_not_wait_for_each_other() {
    trained_by_two("[outer]\nmode = \"asynchronous\"\n");
}

/// Where a peer's ancestor lies.
fn ancestor_of(world: &World, peer: &str) -> PathBuf {
    let folder = world.path(peer);
    let (_, manifest, run) = pathswarm::peer::folder::read_manifest(&folder).unwrap().unwrap();
    let blobs = StoreFolder::open(&folder.join("store"), run).unwrap().blobs;
    assert!(blobs.has(manifest.ancestor.hash).unwrap());
    let name = manifest.ancestor.hash.to_string();
    folder.join("store/blobs").join(&name[..2]).join(name)
}

#[test]
fn a_rotten_ancestor_is_fetched_again() {
    let world = beside_a_model("");
    let (mut first, address) = creator(&world);
    let mut second = Peer::start(&world.path("second"), &unhurried(&["join", &address]));
    second.wait_for("step");
    second.kill();
    let ancestor = ancestor_of(&world, "second");
    let whole = std::fs::read(&ancestor).unwrap();
    let mut rotten = whole.clone();
    rotten[whole.len() / 2] ^= 1;
    // By its address, and from the peers that it knows.
    for command in [&["join", &address][..], &["join"]] {
        std::fs::write(&ancestor, &rotten).unwrap();
        let mut again = Peer::start(&world.path("second"), &unhurried(command));
        again.wait_for("step");
        again.kill();
        assert!(std::fs::read(&ancestor).unwrap() == whole);
    }
    first.kill();
}
