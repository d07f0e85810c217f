//! The drills of configs/drills, by seed. Whatever the faults, every seed ends with the same state everywhere, nothing
//! counted twice and no contribution lost silently: `drill` sees to that. Here is what else they promise, and that they
//! do drill what they say.

use std::path::Path;
use std::sync::Arc;

use pathswarm::simulator::drill::{Summary, drill};
use pathswarm::simulator::{Scenario, Trace, run_traced};

/// Of each scenario; thousands are for `pathswarm drill`.
const SEEDS: u64 = 200;

fn scenario(name: &str) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/drills").join(name).with_extension("toml");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    Scenario::from_toml(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn drilled(scenario: Scenario, seeds: u64) -> Summary {
    drill(&Arc::new(scenario), 0..seeds, |_| {}).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Contributions that ended in no update, in percent of all.
fn uncounted_percent(summary: &Summary) -> usize {
    let not = summary.tally.uncounted + summary.tally.told + summary.tally.gone;
    100 * not / (summary.tally.counted + not)
}

#[test]
fn every_scenario_of_the_folder_is_drilled_here() {
    let source = include_str!("drills.rs");
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/drills")).unwrap() {
        let name = file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        assert!(source.contains(&format!("drilled(scenario(\"{name}\")")), "{name} is not drilled");
    }
}

#[test]
fn a_quiet_swarm_counts_everything() {
    let quiet = drilled(scenario("quiet"), SEEDS);
    assert!(quiet.slowest_ms < 60_000, "took {} ms", quiet.slowest_ms);
    // Four paths through two modules each, in four phases; and what was trained twice as paths changed hands.
    assert!(quiet.tally.counted >= 4 * 2 * 4 * SEEDS as usize, "{:?}", quiet.tally);
    assert_eq!((quiet.tally.uncounted, quiet.tally.told, quiet.tally.gone), (0, 0, 0));
}

#[test]
fn one_peer_trains_all_paths_in_turn() {
    let mut alone = scenario("quiet");
    alone.swarm.peers = 1;
    let alone = drilled(alone, 10);
    assert_eq!((alone.tally.counted, alone.tally.uncounted, alone.counts.unheld), (10 * 4 * 2 * 4, 0, 0));
}

#[test]
fn delay_loss_and_reordering_change_no_promise() {
    assert!(uncounted_percent(&drilled(scenario("rough"), SEEDS)) < 2);
}

#[test]
fn peers_that_crash_and_come_back_lose_nothing() {
    let churn = drilled(scenario("churn"), SEEDS);
    assert!(churn.counts.takeovers_ms.len() as u64 > SEEDS);
    assert_eq!(churn.counts.unheld, 0);
}

#[test]
fn the_paths_of_those_that_go_are_trained_by_others() {
    let departure = drilled(scenario("departure"), SEEDS);
    assert!(departure.counts.faults["gone"] > 0 && departure.counts.faults["leave"] > 0);
    assert_eq!(departure.counts.unheld, 0);
}

#[test]
fn every_module_has_a_second_holder_so_the_founder_may_go_for_good() {
    let replica = drilled(scenario("replica"), SEEDS);
    // One that alone had a module would not be let go.
    assert_eq!(replica.counts.faults["gone"], SEEDS);
    assert_eq!(replica.counts.unheld, 0);
}

#[test]
fn parts_that_meet_again_agree_and_count_what_all_have_done() {
    let split = drilled(scenario("split"), SEEDS);
    assert!(split.counts.switches > SEEDS, "chains have forked and met");
    assert!(uncounted_percent(&split) < 10, "{:?}", split.tally);
}

#[test]
fn slow_and_frozen_peers_and_drifting_clocks_change_no_promise() {
    drilled(scenario("slow"), SEEDS);
}

#[test]
fn newcomers_all_at_once_find_their_places() {
    drilled(scenario("storm"), SEEDS);
}

#[test]
fn honest_peers_go_on_among_liars() {
    let liars = drilled(scenario("liars"), SEEDS);
    assert_eq!(liars.counts.faults["lie: wrong hashes"], SEEDS);
}

#[test]
fn everything_at_once_changes_no_promise() {
    drilled(scenario("everything"), SEEDS);
}

#[test]
fn a_seed_replays_to_the_same_trace() {
    let everything = Arc::new(scenario("everything"));
    let traced = |seed| run_traced(&everything, seed, Trace::hashed()).unwrap();
    assert_eq!(traced(3), traced(3));
    assert_ne!(traced(3).trace, traced(4).trace);
}
