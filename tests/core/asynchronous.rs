//! The asynchronous mode in the simulator: the same invariants under all faults, and less time where peers differ in
//! speed.

use std::sync::Arc;

use pathswarm::config::OuterMode;
use pathswarm::protocol::limits::VERSIONS_KEPT;
use pathswarm::simulator::{Scenario, run};

use super::scenarios::{SEEDS, drilled, scenario};

fn asynchronous(mut scenario: Scenario) -> Scenario {
    scenario.swarm.mode = OuterMode::Asynchronous;
    scenario
}

#[test]
fn what_a_quiet_asynchronous_swarm_has_not_counted_was_in_training_when_its_module_was_done() {
    let quiet = drilled(asynchronous(scenario("quiet")), 40);
    // At most three other paths through each of four modules, once.
    assert!(quiet.tally.uncounted <= 40 * 3 * 4 && quiet.tally.told + quiet.tally.given_up == 0, "{:?}", quiet.tally);
}

#[test]
fn the_asynchronous_invariants_hold_under_delay_crashes_departures_and_slow_peers() {
    for name in ["rough", "churn", "departure", "slow", "storm"] {
        drilled(asynchronous(scenario(name)), SEEDS / 2);
    }
}

#[test]
fn after_a_partition_asynchronous_chains_agree_and_all_contributions_count() {
    for name in ["split", "everything"] {
        let mut scenario = asynchronous(scenario(name));
        // Few enough rounds that no side gets further than contributions are kept.
        scenario.swarm.phases = 7;
        drilled(scenario, SEEDS / 2);
    }
}

/// Each mode runs with the best momentum of a few.
#[test]
fn asynchronous_peers_of_unequal_speed_reach_the_same_loss_in_six_tenths_of_the_time() {
    let not_waiting = scenario("unequal");
    let mut waiting = not_waiting.clone();
    (waiting.swarm.mode, waiting.swarm.phases) = (OuterMode::Synchronous, 16);
    let median_ms = |scenario: &Scenario, momentum: f32| {
        let mut scenario = scenario.clone();
        scenario.swarm.momentum = momentum;
        let mut reached_ms = drilled(scenario, 5).reached_ms;
        reached_ms.sort_unstable();
        // A seed that never reaches the loss takes infinite time.
        reached_ms.get(2).copied().unwrap_or(u64::MAX)
    };
    let best_ms = |scenario| [0.6, 0.65, 0.7].map(|momentum| median_ms(scenario, momentum)).into_iter().min().unwrap();
    let (waited_ms, not_ms) = (best_ms(&waiting), best_ms(&not_waiting));
    println!("{waited_ms} ms, not waiting {not_ms} ms");
    assert!(waited_ms < u64::MAX && 10 * not_ms < 6 * waited_ms, "{waited_ms} ms, not waiting {not_ms} ms");
}

#[test]
fn no_contribution_is_too_late_to_be_counted() {
    let mut brief = scenario("unequal");
    brief.swarm.phases = 3;
    drilled(brief, SEEDS);
    for seed in 0..5 {
        let outcome = run(&Arc::new(scenario("unequal")), seed).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(outcome.staleness_most < VERSIONS_KEPT, "{} versions late", outcome.staleness_most);
    }
}
