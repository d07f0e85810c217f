//! A run that its creator amends: peers that hear of it at any time, or only after a restart, all come to the new end.

use pathswarm::config::OuterMode;

use crate::scenarios::{SEEDS, drilled, scenario};

#[test]
fn a_run_that_is_amended_ends_with_its_new_phases_everywhere() {
    drilled(scenario("amended"), SEEDS / 2);
}

#[test]
fn so_does_an_asynchronous_run() {
    let mut amended = scenario("amended");
    amended.swarm.mode = OuterMode::Asynchronous;
    drilled(amended, SEEDS / 3);
}

#[test]
fn an_amendment_after_the_end_lets_a_swarm_go_on_in_which_all_were_done() {
    let mut amended = scenario("amended");
    amended.faults.clear();
    amended.swarm.phases = 2;
    drilled(amended, SEEDS / 3);
}
