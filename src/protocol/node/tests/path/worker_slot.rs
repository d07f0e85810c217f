//! Tests of worker slots, in runs that sample paths anew.

use crate::protocol::node::tests::*;
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;
use crate::sampling::{Sample, WorkerSlots};

#[test]
fn after_the_last_phase_a_slot_keeps_its_path() {
    let grid = Grid::new(vec![Sharing::Experts(3); 2]).unwrap();
    let slots = WorkerSlots::sampled(grid, Sample { slots: 4, hold_phases: 1, seed: 7 }).unwrap();
    let plan = RunPlan { slots, phases: 2, ..plan() };
    let (last, done) = (Phase(1), Phase(2));
    let moves = |slot: &PathId| plan.slots.path(*slot, last) != plan.slots.path(*slot, done);
    let slot = plan.slots.first_trainers().find(moves).expect("a further sample would move a slot");
    assert_eq!(plan.path_at(slot, done), plan.slots.path(slot, last));
    // The modules with which its checkpoint is scored.
    assert_eq!(plan.modules_at(slot, done), plan.slots.modules(slot, last));
    for module in plan.slots.grid().modules() {
        let drawn = plan.slots.goes_through(slot, last, module);
        assert_eq!([last, done].map(|phase| plan.needs(slot, phase, module)), [drawn; 2], "{module}");
    }
}

#[test]
fn an_interrupted_phase_keeps_its_modules_when_its_slot_moves() {
    let grid = Grid::new(vec![Sharing::Experts(3); 2]).unwrap();
    let slots = WorkerSlots::sampled(grid, Sample { slots: 4, hold_phases: 1, seed: 7 }).unwrap();
    let plan = RunPlan { slots, phases: 9, ..plan() };
    let goes = |slot: PathId, phase| plan.modules_at(slot, Phase(phase))[1];
    let moves = |slot: &PathId| (2..8).find(|at| ![goes(*slot, *at), goes(*slot, at + 1)].contains(&goes(*slot, 0)));
    let (slot, later) =
        plan.slots.first_trainers().find_map(|slot| Some((slot, moves(&slot)?))).expect("a sample moves a slot");
    let left = goes(slot, 0);
    let from = BaseVersion { module: left, version: Version(0), update: genesis().update };
    let middle = InnerCheckpoint {
        path: slot,
        phase: Phase(0),
        start: vec![(from, state(0))],
        steps: 5,
        blob: BlobRef::of(b"middle"),
    };
    let lease = Record::Lease { path: slot, held: true, standby: false };
    let needs = |records: Vec<Record>| {
        let mut node = Node::restore(ME, plan.clone(), records);
        node.paths.set_near(slot, Phase(later));
        node.needed_modules().contains(&left)
    };
    assert!(!needs(vec![lease.clone()]) && needs(vec![lease, Record::Checkpoint(middle)]));
}
