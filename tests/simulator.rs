//! The swarm under delay, loss, reordering, crashes, departures and splits, by seed. Whatever the faults, every seed
//! ends with the same state everywhere, nothing counted twice and no contribution lost silently; `run` sees to that.

use std::ops::Range;

use pathswarm::simulator::{Outcome, Scenario, run};

fn seeds(scenario: &Scenario, seeds: Range<u64>) -> Vec<Outcome> {
    let outcome = |seed| run(scenario, seed).unwrap_or_else(|failure| panic!("{failure}"));
    seeds.map(outcome).collect()
}

fn sum(outcomes: &[Outcome], what: impl Fn(&Outcome) -> u64) -> u64 {
    outcomes.iter().map(what).sum()
}

/// Contributions that ended in no update, in percent of all.
fn uncounted_percent(outcomes: &[Outcome]) -> u64 {
    let counted = sum(outcomes, |outcome| outcome.tally.counted as u64);
    let not = sum(outcomes, |outcome| (outcome.tally.uncounted + outcome.tally.told + outcome.tally.gone) as u64);
    100 * not / (counted + not)
}

#[test]
fn a_quiet_swarm_finishes_with_the_same_state_everywhere_and_counts_everything() {
    for outcome in seeds(&Scenario::quiet(), 0..20) {
        assert!(outcome.finished_ms < 60_000, "took {} ms", outcome.finished_ms);
        // Four paths through two modules each, in four phases; and what was trained twice as paths changed hands.
        assert!(outcome.tally.counted >= 4 * 2 * 4, "{:?}", outcome.tally);
        assert_eq!((outcome.tally.uncounted, outcome.tally.told, outcome.tally.gone), (0, 0, 0));
    }
}

#[test]
fn one_peer_trains_all_paths_in_turn() {
    for outcome in seeds(&Scenario::quiet().with_peers(1), 0..10) {
        assert_eq!(outcome.tally.counted, 4 * 2 * 4);
        assert_eq!((outcome.tally.uncounted, outcome.unheld), (0, 0));
    }
}

#[test]
fn delay_loss_and_reordering_change_no_promise() {
    assert!(uncounted_percent(&seeds(&Scenario::rough(), 0..80)) < 2);
}

#[test]
fn a_shared_level_and_one_of_each_path_s_own_change_no_promise() {
    assert!(uncounted_percent(&seeds(&Scenario::rough().shared_and_own(), 0..30)) < 2);
    seeds(&Scenario::churn().shared_and_own(), 0..20);
}

#[test]
fn peers_that_crash_and_come_back_lose_nothing() {
    let outcomes = seeds(&Scenario::churn(), 0..80);
    assert!(outcomes.iter().any(|outcome| outcome.ownership_changes > 20));
    assert_eq!(sum(&outcomes, |outcome| outcome.unheld as u64), 0);
}

#[test]
fn peers_to_spare_stand_by_and_step_in() {
    seeds(&Scenario::churn().with_peers(6), 0..30);
    let outcomes = seeds(&Scenario::departure().with_peers(6), 0..20);
    assert_eq!(sum(&outcomes, |outcome| outcome.unheld as u64), 0);
}

#[test]
fn the_path_of_a_peer_that_never_comes_back_is_trained_by_another() {
    let outcomes = seeds(&Scenario::departure(), 0..40);
    assert_eq!(sum(&outcomes, |outcome| outcome.unheld as u64), 0);
    assert!(sum(&outcomes, |outcome| outcome.tally.gone as u64) > 0, "somebody has gone with what it had");
}

#[test]
fn two_halves_that_meet_again_agree_and_count_what_both_have_done() {
    let outcomes = seeds(&Scenario::split(), 0..60);
    assert!(sum(&outcomes, |outcome| outcome.switches) > 60, "chains have forked and met");
    assert!(uncounted_percent(&outcomes) < 10);
}

#[test]
fn splits_and_crashes_at_once_change_no_promise() {
    seeds(&Scenario::everything(), 0..30);
    seeds(&Scenario::everything().with_peers(6), 0..15);
}

#[test]
fn a_seed_replays_to_the_same_trace() {
    let scenario = Scenario::everything();
    assert_eq!(run(&scenario, 3), run(&scenario, 3));
    assert_ne!(run(&scenario, 3).unwrap().trace, run(&scenario, 4).unwrap().trace);
}
