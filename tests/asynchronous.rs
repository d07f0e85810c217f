//! The asynchronous mode in the simulator: the same promises whatever goes wrong, and less time where peers differ.

use std::path::Path;
use std::sync::Arc;

use pathswarm::config::OuterMode;
use pathswarm::grid::Sharing;
use pathswarm::protocol::limits::VERSIONS_KEPT;
use pathswarm::simulator::drill::{Summary, drill};
use pathswarm::simulator::{Scenario, run};

fn scenario(name: &str) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/drills").join(name).with_extension("toml");
    Scenario::from_toml(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn asynchronous(mut scenario: Scenario) -> Scenario {
    scenario.swarm.mode = OuterMode::Asynchronous;
    scenario
}

fn drilled(scenario: Scenario, seeds: u64) -> Summary {
    drill(&Arc::new(scenario), 0..seeds, |_| {}).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn what_a_quiet_swarm_has_not_counted_was_in_training_when_its_module_was_done() {
    let quiet = drilled(asynchronous(scenario("quiet")), 40);
    // Three other paths at most through each of four modules, once.
    assert!(quiet.tally.uncounted <= 40 * 3 * 4 && quiet.tally.told == 0, "{:?}", quiet.tally);
}

#[test]
fn delay_crashes_departures_and_slow_peers_change_no_promise() {
    for name in ["rough", "churn", "departure", "slow", "storm"] {
        drilled(asynchronous(scenario(name)), 40);
    }
}

#[test]
fn parts_that_meet_again_agree_and_count_what_all_have_done() {
    for name in ["split", "everything"] {
        let mut scenario = asynchronous(scenario(name));
        // So few rounds that no part gets further than contributions are kept.
        scenario.swarm.phases = 7;
        drilled(scenario, 40);
    }
}

/// Sooner, at this momentum. It is not so at each, nor twice as soon with each mode at its best: docs/architecture.md.
#[test]
fn peers_of_unequal_speed_reach_a_loss_sooner_at_a_momentum_of_a_half() {
    let mut waiting = scenario("quiet");
    waiting.swarm.levels = vec![Sharing::Experts(4), Sharing::Experts(2)];
    waiting.swarm.peers = 8;
    waiting.swarm.slowness = vec![1, 2, 3, 8, 4, 6, 1, 5];
    waiting.swarm.phase_ms = (19_000..=21_000).into();
    waiting.swarm.values = 300;
    waiting.swarm.momentum = 0.5;
    waiting.swarm.likeness = 0.9;
    // Of 0.137 at the start, and 0.001 at the best.
    waiting.swarm.given_loss = 0.002;
    waiting.swarm.phases = 12;
    waiting.swarm.deadline_ms = 6_000_000;
    for seed in 0..10 {
        let [waited, not] = [waiting.clone(), asynchronous(waiting.clone())]
            .map(|scenario| run(&Arc::new(scenario), seed).unwrap_or_else(|failure| panic!("{failure}")));
        // One that ends above it has never reached it, whatever its time.
        assert!(not.loss < waiting.swarm.given_loss && waited.loss < waiting.swarm.given_loss, "{not:?} {waited:?}");
        assert!(not.below_ms < waited.below_ms, "seed {seed}: {} ms, not {} ms", not.below_ms, waited.below_ms);
        assert!(not.staleness_most < VERSIONS_KEPT, "{} versions late", not.staleness_most);
    }
}
