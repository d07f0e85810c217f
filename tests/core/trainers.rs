//! Drills of paths with several trainers.

use pathswarm::config::{OuterMode, SampleConfig, Streaming};
use pathswarm::grid::Sharing;
use pathswarm::simulator::Scenario;
use pathswarm::simulator::drill::Summary;

use super::scenarios::{SEEDS, drilled, scenario};

/// A 2×2 grid in peace, with so many peers.
fn in_peace(peers: usize) -> Scenario {
    let mut scenario = scenario("trainers");
    scenario.faults.clear();
    (scenario.swarm.peers, scenario.swarm.phases) = (peers, 20);
    // Where phases are as short as here, what is not training would count for too much.
    scenario.swarm.phase_ms = [6_000, 7_000].into();
    scenario
}

#[test]
fn eight_peers_of_four_paths_train_nearly_twice_as_much_as_four_and_all_of_it_counts() {
    let [four, eight] = [4, 8].map(|peers| drilled(in_peace(peers), 20));
    assert!(eight.pace() >= 1.9 * four.pace(), "{} and {} steps a second", four.pace(), eight.pace());
    // Two levels, 20 phases, 20 seeds.
    // A peer that joins late may miss the first phase.
    let most = 2 * four.tally.counted;
    assert_eq!(four.tally.counted, 4 * 2 * 20 * 20);
    assert!((most * 98 / 100..=most).contains(&eight.tally.counted), "{:?}", eight.tally);
    assert_eq!(eight.tally.uncounted + eight.tally.told + eight.tally.given_up + eight.tally.gone, 0);
    let times = |summary: &Summary| summary.slowest_ms;
    assert!(times(&eight) < times(&four) * 11 / 10, "a round does not take longer: {} ms", times(&eight));
}

#[test]
fn trainers_of_a_path_that_crash_leave_or_join_lose_nothing() {
    let trainers = drilled(scenario("trainers"), SEEDS);
    assert_eq!(trainers.counts.unheld, 0);
    let not = trainers.tally.uncounted + trainers.tally.told + trainers.tally.given_up + trainers.tally.gone;
    assert!(not * 50 < trainers.tally.counted, "{:?}", trainers.tally);
}

#[test]
fn paths_have_several_trainers_in_every_mode_and_under_all_faults() {
    let with = |change: fn(&mut Scenario)| {
        let mut scenario = scenario("trainers");
        change(&mut scenario);
        drilled(scenario, SEEDS / 3)
    };
    with(|scenario| scenario.swarm.streaming = Some(Streaming::default()));
    with(|scenario| (scenario.swarm.mode, scenario.swarm.momentum) = (OuterMode::Asynchronous, 0.5));
    with(|scenario| {
        scenario.swarm.levels = vec![Sharing::Experts(3); 2];
        scenario.swarm.sample = Some(SampleConfig { paths: 4, hold_phases: 2 });
    });
    let mut everything = scenario("everything");
    (everything.swarm.peers, everything.swarm.trainers_per_path, everything.swarm.noise) = (10, 3, 0.5);
    drilled(everything, SEEDS / 3);
}
