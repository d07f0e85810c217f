//! Drills of modules through which more paths go than an update can list itself.

use pathswarm::grid::Sharing;
use pathswarm::simulator::Scenario;

use super::scenarios::{drilled, scenario};

/// Peers with eight paths each of a grid, all of which share a level.
fn sharing(first: u32, second: u32) -> Scenario {
    let mut scenario = scenario("shared-by-many");
    scenario.swarm.levels = vec![Sharing::Experts(first), Sharing::Experts(second), Sharing::Shared];
    (scenario.swarm.peers, scenario.swarm.paths_each) = ((first * second / 8) as usize, 8);
    scenario
}

#[test]
fn every_contribution_of_128_and_of_256_paths_through_one_module_is_counted_in_time() {
    for (first, second) in [(8, 16), (16, 16)] {
        let many = drilled(sharing(first, second), 1);
        let contributions = (first * second) as usize * 3 * 2;
        assert_eq!((many.tally.counted, many.counts.late), (contributions, 0));
        assert_eq!(many.tally.uncounted + many.tally.told + many.tally.given_up + many.tally.gone, 0);
    }
}

#[test]
fn every_contribution_of_a_thousand_paths_through_one_module_is_counted_in_time() {
    let mut thousand = scenario("shared-by-many");
    thousand.swarm.phases = 1;
    let thousand = drilled(thousand, 1);
    assert_eq!((thousand.tally.counted, thousand.counts.late), (1_000 * 3, 0));
}

#[test]
fn lists_survive_crashes_and_newcomers_catch_up_with_them() {
    let lists = drilled(scenario("lists"), 4);
    assert!(lists.counts.faults["crash"] > 8, "{:?}", lists.counts.faults);
    assert_eq!(lists.tally.gone + lists.tally.given_up, 0);
    assert!(lists.tally.counted > 100 * 3 * 4 * 5, "{:?}", lists.tally);
}
