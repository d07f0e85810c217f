//! Runs of adapters beside a model that stays as it is: everybody needs the whole of that model, and only adapters are sent.

use std::path::PathBuf;

use pathswarm::store::StoreFolder;
use serde_json::Value;

use crate::run::{RUN, World};
use crate::swarm::{Swarm, agree, newest};

/// A small model, and two peers that train adapters beside it, in a run that a test does not see the end of.
fn beside_a_model(outer: &str) -> Swarm {
    let of = |run: &str, steps, phases, ancestor| {
        run.replace("inner_steps = 400", &format!("inner_steps = {steps}"))
            .replace("phases = 12", &format!("phases = {phases}"))
            .replace("warmup_steps = 10", "warmup_steps = 1")
            .replace("ancestor_steps = 30", &format!("ancestor_steps = {ancestor}"))
    };
    let world = World::of(&of(RUN, 2, 1, 2), 2);
    world.simulated();
    let adapters = of(RUN, 50, 1000, 0)
        .replace("[[levels]]\nparts = [\"embedding\", \"block.0\"]", "[[levels]]\nparts = [\"adapter.0\"]")
        .replace("[\"block.1\", \"final-norm\"]", "[\"adapter.1\"]");
    std::fs::write(&world.config, format!("{adapters}\n[model.adapter]\nrank = 2\n{outer}")).unwrap();
    let model = world.name("run/model");
    Swarm::start_beside(world, model, 2)
}

/// Whether a peer has made inner steps since it started.
fn trains(status: &Value) -> bool {
    status["activity"]["trained_s"].as_f64() > Some(0.0)
}

/// The file of a dead peer that has the model.
fn model_of(swarm: &Swarm, peer: usize) -> PathBuf {
    let folder = swarm.folder(peer);
    let (_, manifest, run) = pathswarm::peer::folder::read_manifest(&folder).unwrap().unwrap();
    let blobs = StoreFolder::open(&folder.join("store"), run).unwrap().blobs;
    assert!(blobs.has(manifest.ancestor.hash).unwrap());
    let name = manifest.ancestor.hash.to_string();
    folder.join("store/blobs").join(&name[..2]).join(name)
}

/// Two peers train together. The one that came by address is killed in the middle, and goes on.
fn two_train_and_one_comes_back(outer: &str) {
    let mut swarm = beside_a_model(outer);
    let both = |statuses: &[Value]| statuses.len() == 2 && statuses.iter().all(trains);
    let statuses = swarm.until("both train", |statuses| both(statuses) && newest(statuses) >= 2);
    let before = newest(&statuses);
    swarm.kill(1);
    swarm.restart(1);
    swarm.until("both train again", |statuses| both(statuses) && newest(statuses) >= before + 2);
    swarm.until("agreement", |statuses| statuses.len() == 2 && agree(statuses));
}

#[test]
fn a_newcomer_fetches_the_model_trains_adapters_and_goes_on_when_it_was_killed() {
    two_train_and_one_comes_back("");
}

#[test]
fn adapters_are_synchronised_level_by_level() {
    two_train_and_one_comes_back("[outer]\nstreaming = true\n");
}

#[test]
fn paths_of_adapters_need_not_wait_for_each_other() {
    two_train_and_one_comes_back("[outer]\nmode = \"asynchronous\"\n");
}

#[test]
fn a_damaged_model_is_fetched_again_from_the_peers_that_have_it() {
    let mut swarm = beside_a_model("");
    swarm.until("both train", |statuses| statuses.len() == 2 && statuses.iter().all(trains));
    swarm.kill(1);
    let model = model_of(&swarm, 1);
    let whole = std::fs::read(&model).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&model, &damaged).unwrap();
    swarm.restart(1);
    swarm.until("both train again", |statuses| statuses.len() == 2 && statuses.iter().all(trains));
    assert!(std::fs::read(&model).unwrap() == whole);
}
