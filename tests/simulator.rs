//! The swarm under delay, loss, reordering and crashes, by seed.

use pathswarm::simulator::{Outcome, Scenario, run};

fn seeds(scenario: &Scenario, seeds: std::ops::Range<u64>) -> Vec<Outcome> {
    let outcome = |seed| run(scenario, seed).unwrap_or_else(|failure| panic!("{failure}"));
    seeds.map(outcome).collect()
}

#[test]
fn a_quiet_swarm_finishes_with_the_same_state_everywhere() {
    for outcome in seeds(&Scenario::quiet(), 0..20) {
        assert!(outcome.finished_ms < 60_000, "took {} ms", outcome.finished_ms);
    }
}

#[test]
fn delay_loss_and_reordering_change_no_promise() {
    seeds(&Scenario::rough(), 0..100);
}

#[test]
fn peers_that_crash_and_come_back_lose_nothing() {
    let outcomes = seeds(&Scenario::churn(), 0..100);
    assert!(outcomes.iter().any(|outcome| outcome.ownership_changes > 20));
}

#[test]
fn a_seed_replays_to_the_same_trace() {
    let scenario = Scenario::churn();
    assert_eq!(run(&scenario, 3), run(&scenario, 3));
    assert_ne!(run(&scenario, 3).unwrap().trace, run(&scenario, 4).unwrap().trace);
}
