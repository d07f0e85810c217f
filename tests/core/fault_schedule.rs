//! A fault every 29 seconds, alternately a crash, a freeze and a partition, costs few of the inner steps. Whole runs of
//! many seeds are in docs/results/fault schedule.md.

use pathswarm::config::OuterMode;
use pathswarm::simulator::Scenario;

use super::scenarios::{drilled, scenario};

/// The accepted inner steps per second with faults, as a share of those without, over half a run.
fn share_of_inner_steps(mode: OuterMode, momentum: f32, seeds: u64) -> f64 {
    let mut fault_schedule = scenario("fault-schedule");
    (fault_schedule.swarm.mode, fault_schedule.swarm.momentum) = (mode, momentum);
    (fault_schedule.swarm.phases, fault_schedule.swarm.values) = (16, 64);
    fault_schedule.fault_schedule.as_mut().unwrap().until_ms = 900_000;
    let calm = Scenario { fault_schedule: None, ..fault_schedule.clone() };
    let [calm, fault_schedule] = [calm, fault_schedule].map(|scenario| drilled(scenario, seeds));
    assert!(["crash", "freeze", "split"].iter().all(|kind| fault_schedule.counts.faults[kind] >= seeds * 9));
    fault_schedule.pace() / calm.pace()
}

#[test]
fn a_fault_every_29_seconds_costs_few_inner_steps_in_the_synchronous_mode() {
    // A partition at the end of a phase costs a part of a phase. Few seeds show little of that.
    let share = share_of_inner_steps(OuterMode::Synchronous, 0.9, 24);
    assert!(share >= 0.977, "{share}");
}

#[test]
fn a_fault_every_29_seconds_costs_few_inner_steps_in_the_asynchronous_mode() {
    let share = share_of_inner_steps(OuterMode::Asynchronous, 0.5, 2);
    assert!(share >= 0.977, "{share}");
}
