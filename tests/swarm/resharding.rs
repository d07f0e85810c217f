//! A swarm that shares its text out anew while it trains, by which path predicts it best: the router is a module like any
//! other, and its owner may be killed in the middle of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::run::{RUN, World, pathswarm};
use crate::swarm::{Swarm, holders, modules};
use pathswarm::peer::Collected;
use serde_json::Value;

/// The level above the model's two.
const ROUTER: &str = "2.0";

/// Paths begin with text by chance; before the third phase it is shared out anew, and before the fifth again.
fn run() -> String {
    RUN.replace("phases = 12", "phases = 5").replace("[routing]", "[routing]\nmethod = \"random\"\nreshard = [2, 4]")
}

fn router(status: &Value) -> Option<&Value> {
    modules(status).iter().find(|module| module["module"] == ROUTER)
}

fn version(status: &Value) -> u64 {
    router(status).and_then(|module| module["version"].as_u64()).unwrap_or(0)
}

/// Of each version of the router that somebody has, what it is; the same on every peer.
fn look(known: &mut BTreeMap<u64, Value>, statuses: &[Value]) {
    for status in statuses {
        let Some(module) = router(status).filter(|module| module["state_hash"].is_string()) else { continue };
        let known = known.entry(version(status)).or_insert_with(|| module["state_hash"].clone());
        assert_eq!(*known, module["state_hash"], "version {}", version(status));
    }
}

#[test]
fn the_text_is_shared_out_anew_though_the_routers_owner_is_killed_meanwhile() {
    let mut swarm = Swarm::start_on(World::of(&run(), 6), 4);
    let mut known = BTreeMap::new();
    // Before the third phase or, where a slow machine has missed that, before the fifth.
    let in_hand = |statuses: &[Value]| {
        let versions: BTreeSet<u64> = statuses.iter().map(version).collect();
        let one = versions.first().filter(|version| versions.len() == 1 && [1, 3].contains(*version));
        holders(statuses).len() == 4 && statuses.len() == 4 && one.is_some()
    };
    let statuses = swarm.until("all paths train a phase whose scores make the next router", in_hand);
    let before = version(&statuses[0]);
    look(&mut known, &statuses);
    let owner = router(&statuses[0]).unwrap()["owner"].clone();
    let victim = (0..4).find(|number| swarm.key(*number).map(Value::from) == Some(owner.clone())).unwrap();
    swarm.kill(victim);

    let shared_out = |statuses: &[Value]| {
        let owned = |status: &Value| router(status).is_some_and(|module| module["owner"] != owner);
        statuses.iter().all(|status| version(status) > before && owned(status))
    };
    let statuses = swarm.until("the router's next version, by another owner", shared_out);
    look(&mut known, &statuses);
    swarm.restart(victim);
    let done = |statuses: &[Value]| {
        let all_done = |status: &Value| modules(status).iter().all(|module| module["version"] == 5);
        statuses.len() == 4 && statuses.iter().all(|status| status["done"] == true && all_done(status))
    };
    let statuses = swarm.until("all modules at their last version everywhere", done);
    look(&mut known, &statuses);
    assert!(known.contains_key(&5), "{known:?}");

    // What is collected has the router of the end, and the text goes where it says.
    let folder = swarm.world.name("model");
    let address = statuses[0]["addresses"][0].as_str().unwrap();
    let collect = pathswarm(&["collect", &folder, "--from", address]);
    assert!(collect.status.success(), "{}", String::from_utf8_lossy(&collect.stderr));
    let collected = Collected::open(folder.as_ref()).unwrap();
    assert!(collected.router.needs_features(), "the run was created with a router that looks at none");
    assert_eq!(collected.router.ancestor(), Some(collected.manifest.ancestor.hash));
    let documents = |whom: &[&str]| -> Vec<Value> {
        let output = pathswarm(&[&["evaluate"], whom, &["--format", "json", "--set", "threads=1"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["path"].is_number()).map(|line| line["documents"].clone()).collect()
    };
    assert_eq!(documents(&["--local", &folder]), documents(&[address]), "the swarm routes by it, too");
}
