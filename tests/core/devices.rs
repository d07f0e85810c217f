//! Drills of peers with several trainers.

use pathswarm::simulator::scenario::faults::Kind;

use super::scenarios::{SEEDS, drilled, scenario};

#[test]
fn two_peers_with_two_devices_each_train_all_paths_at_once_and_count_every_contribution() {
    let mut quiet = scenario("quiet");
    (quiet.swarm.peers, quiet.swarm.devices) = (2, vec![2]);
    let phase_ms = quiet.swarm.phase_ms;
    let two = drilled(quiet.clone(), SEEDS);
    assert_eq!(two.tally.counted, 4 * 2 * 4 * SEEDS as usize);
    assert_eq!((two.tally.uncounted, two.tally.told, two.tally.given_up, two.tally.gone), (0, 0, 0, 0));
    let percent = two.counts.trained_percent();
    assert!(percent > 120.0, "{percent}: with one trainer it is at most 100, in phases of {phase_ms:?} ms");

    quiet.swarm.devices = vec![1];
    let one = drilled(quiet, SEEDS);
    assert!(one.counts.trained_percent() <= 100.0);
    assert!(two.slowest_ms < one.slowest_ms, "{} and {} ms", two.slowest_ms, one.slowest_ms);
}

#[test]
fn a_peer_with_four_devices_needs_no_other() {
    let mut alone = scenario("quiet");
    (alone.swarm.peers, alone.swarm.devices) = (1, vec![4]);
    let alone = drilled(alone, 20);
    assert_eq!((alone.tally.counted, alone.tally.uncounted, alone.counts.unheld), (20 * 4 * 2 * 4, 0, 0));
    assert!(alone.counts.trained_percent() > 200.0, "{}", alone.counts.trained_percent());
}

#[test]
fn the_invariants_hold_among_peers_with_one_two_and_three_devices() {
    for name in ["churn", "crashes", "departure", "everything", "sampled", "streaming", "trainers", "unequal"] {
        let mut several = scenario(name);
        several.swarm.devices = vec![2, 1, 3];
        let several = drilled(several, SEEDS / 10);
        assert_eq!(several.counts.unheld, 0, "{name}");
    }
}

#[test]
fn of_two_trainers_one_hangs_or_dies_and_the_other_goes_on() {
    let mut slow = scenario("everything");
    slow.swarm.devices = vec![2];
    slow.faults.retain(|fault| matches!(fault.kind, Kind::Hang | Kind::TrainerDies | Kind::Crash));
    let drilled = drilled(slow, SEEDS / 4);
    let [hangs, dies] = ["hang", "trainer-dies"].map(|kind| drilled.counts.faults[kind]);
    assert!(hangs > SEEDS / 8 && dies > SEEDS / 8, "{:?}", drilled.counts.faults);
}
