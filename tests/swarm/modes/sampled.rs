//! A run whose grid has more paths than are trained at a time: what is drawn is trained, whoever holds the slot, and all
//! modules of the grid come to their end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::run::{Peer, RUN, World, pathswarm};
use pathswarm::config::RunConfig;
use pathswarm::protocol::Record;
use pathswarm::protocol::journal::record::Finished;
use pathswarm::protocol::wire::encoding;
use pathswarm::store::Journal;
use serde_json::Value;

const PHASES: u64 = 5;

/// A 3×3 grid, of which four paths are trained at a time, others in each phase.
fn sampled() -> String {
    RUN.replace("experts = 2", "experts = 3")
        .replace("inner_steps = 400", "inner_steps = 4")
        .replace("phases = 12", &format!("phases = {PHASES}"))
        + "[sample]\npaths = 4\nhold_phases = 1\n"
}

/// The last line of a command that ends well.
fn last(arguments: &[&str]) -> Value {
    let output = pathswarm(&[arguments, &["--format", "json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// The peers' journals say what was trained: of each slot in each phase, the modules that it was drawn for.
#[track_caller]
fn assert_as_drawn(folders: impl IntoIterator<Item = impl AsRef<Path>>) {
    let slots = RunConfig::from_toml(&sampled()).unwrap().slots().unwrap();
    let (mut paths, mut modules) = (BTreeSet::new(), BTreeSet::new());
    for folder in folders {
        for record in Journal::read(&folder.as_ref().join("store/journal")).unwrap() {
            let Record::Finished(Finished { path: slot, phase, offers, .. }) = encoding::decode(&record).unwrap()
            else {
                continue;
            };
            let drawn = slots.modules(slot, phase);
            for (from, _) in offers {
                assert!(drawn.contains(&from.module), "slot {slot} in phase {phase}: {}", from.module);
                modules.insert(from.module);
            }
            paths.insert(slots.path(slot, phase));
        }
    }
    assert!(paths.len() > 4, "others are drawn: {paths:?}");
    assert_eq!(modules, slots.grid().modules().into_iter().collect());
}

#[test]
fn a_run_of_fewer_peers_than_slots_trains_what_is_drawn_and_is_scored_on_all_paths() {
    let world = World::of(&sampled(), 9);
    let folder = world.name("simulated");
    let result = last(&["simulate", &world.config, "--peers", "3", "--corpus", &world.corpus, "--dir", &folder]);
    assert_eq!(result["module_hashes_agree"], true, "{result}");
    assert_as_drawn((0..3).map(|peer| world.path("simulated").join(format!("peer-{peer}"))));
    let evaluated = last(&["evaluate", "--local", &format!("{folder}/model")]);
    assert_eq!((&evaluated["dipaco"], &evaluated["bytes"]), (&result["dipaco"], &result["test_bytes"]));
}

#[test]
fn peers_that_share_their_text_train_what_is_drawn_and_the_whole_grid_can_be_collected() {
    let world = World::of(&sampled(), 9);
    let found = ["found", &world.config, "--share-text", "--corpus", &world.corpus];
    let mut peers = vec![Peer::start(&world.path("a"), &found)];
    let address = peers[0].wait_for("join")["address"].as_str().unwrap().to_owned();
    peers.extend(["b", "c", "d"].map(|name| Peer::start(&world.path(name), &["join", &address])));
    for peer in &mut peers {
        peer.wait_for("result");
    }
    let mut hashes: BTreeMap<String, Value> = BTreeMap::new();
    for status in peers.iter().map(|peer| peer.status().unwrap()) {
        for module in status["modules"].as_array().unwrap().iter().filter(|module| module["version"] == PHASES) {
            let name = module["module"].as_str().unwrap();
            let hash = hashes.entry(name.to_owned()).or_insert_with(|| module["state_hash"].clone());
            assert_eq!(*hash, module["state_hash"], "module {name} differs between members");
        }
    }
    let model = world.name("model");
    let collected = last(&["collect", &model, "--from", &address]);
    for module in ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"] {
        let collected = &collected["modules"][module];
        assert_eq!((&collected["phase"], &collected["state_hash"]), (&Value::from(PHASES), &hashes[module]));
    }
    assert_eq!(collected["paths_without_text"], Value::Array(Vec::new()));
    let evaluated = last(&["evaluate", "--local", &model]);
    assert!(evaluated["dipaco"]["perplexity"].as_f64().unwrap() > 1.0);
    drop(peers);
    assert_as_drawn(["a", "b", "c", "d"].map(|name| world.path(name)));
}
