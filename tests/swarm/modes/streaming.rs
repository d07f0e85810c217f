//! Levels that are brought in step one after the other, by processes: inner steps go on, and all come to the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::run::{RUN, World, pathswarm};
use pathswarm::names::{PathId, Version};
use pathswarm::protocol::Record;
use pathswarm::protocol::wire::encoding;
use pathswarm::store::Journal;
use serde_json::Value;

const PHASES: u64 = 4;

#[test]
fn each_path_contributes_to_its_levels_in_turn_and_all_modules_agree() {
    let short =
        RUN.replace("inner_steps = 400", "inner_steps = 10").replace("phases = 12", &format!("phases = {PHASES}"));
    let world = World::of(&(short + "[outer]\nstreaming = true\n"), 9);
    let folder = world.name("simulated");
    let simulate = ["simulate", &world.config, "--peers", "3", "--corpus", &world.corpus, "--dir", &folder];
    let output = pathswarm(&[&simulate[..], &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let result: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(result["module_hashes_agree"], true, "{result}");

    // Of each path: the versions and levels that it contributed to, in each peer's journal one after the other. While a
    // path moves to a newcomer, two may train the same part.
    let mut parts: BTreeMap<PathId, BTreeSet<(Version, u16)>> = BTreeMap::new();
    for peer in 0..3 {
        let mut last: BTreeMap<PathId, (Version, u16)> = BTreeMap::new();
        let journal = world.path("simulated").join(format!("peer-{peer}/store/journal"));
        for record in Journal::read(&journal).unwrap() {
            let Record::Finished(finished) = encoding::decode(&record).unwrap() else { continue };
            let [(from, _)] = finished.offers[..] else { panic!("one level at a time: {finished:?}") };
            assert_eq!(finished.base_states.len(), 2);
            let part = (from.version, from.module.level);
            assert!(last.insert(finished.path, part).is_none_or(|before| before < part), "{part:?}");
            parts.entry(finished.path).or_default().insert(part);
        }
    }
    let in_turn: BTreeSet<_> = (0..PHASES).flat_map(|phase| [(Version(phase), 0), (Version(phase), 1)]).collect();
    assert_eq!(parts, (0..4).map(|path| (PathId(path), in_turn.clone())).collect());
}
