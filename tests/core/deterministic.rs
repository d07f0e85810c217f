//! Deterministic runs: the same result, whoever is early.

use std::sync::Arc;

use pathswarm::simulator::{Outcome, Scenario, run};

use crate::scenarios::{SEEDS, scenario};

fn outcomes(scenario: Scenario) -> Vec<Outcome> {
    let scenario = Arc::new(scenario);
    (0..SEEDS).map(|seed| run(&scenario, seed).unwrap_or_else(|failure| panic!("{failure}"))).collect()
}

#[test]
fn a_deterministic_run_has_one_result_under_faults_that_lose_no_contribution() {
    let all = outcomes(scenario("deterministic"));
    let results: Vec<u64> = all.iter().map(|outcome| outcome.loss.to_bits()).collect();
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    // Four paths through two modules each, in eight phases of 64 steps.
    assert!(all.iter().all(|outcome| outcome.accepted_steps == 4 * 2 * 8 * 64));
}

#[test]
fn the_same_faults_give_other_runs_many_results() {
    let mut others = scenario("deterministic");
    others.swarm.deterministic = false;
    let mut results: Vec<u64> = outcomes(others).iter().map(|outcome| outcome.loss.to_bits()).collect();
    results.sort_unstable();
    results.dedup();
    assert!(results.len() as u64 > SEEDS / 2, "{} results of {SEEDS} seeds", results.len());
}
