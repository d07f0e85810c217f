//! Where seats are, in runs that draw paths anew.

use super::*;
use crate::protocol::record::InnerCheckpoint;
use crate::sampling::{Sample, Seats};

#[test]
fn after_the_last_phase_a_seat_stays_where_the_last_has_put_it() {
    let grid = Grid::new(vec![Sharing::Experts(3); 2]).unwrap();
    let seats = Seats::sampled(grid, Sample { seats: 4, hold_phases: 1, seed: 7 }).unwrap();
    let plan = RunPlan { seats, phases: 2, ..plan() };
    let (last, done) = (Phase(1), Phase(2));
    let moves = |seat: &PathId| plan.seats.path(*seat, last) != plan.seats.path(*seat, done);
    let seat = plan.seats.all().find(moves).expect("a further draw would move a seat");
    assert_eq!(plan.path_at(seat, done), plan.seats.path(seat, last));
    // What its checkpoint is scored with.
    assert_eq!(plan.modules_at(seat, done), plan.seats.modules(seat, last));
    for module in plan.seats.grid().modules() {
        let drawn = plan.seats.goes_through(seat, last, module);
        assert_eq!([last, done].map(|phase| plan.needs(seat, phase, module)), [drawn; 2], "{module}");
    }
}

#[test]
fn a_phase_in_the_middle_keeps_its_modules_wherever_its_seat_is_drawn_to_meanwhile() {
    let grid = Grid::new(vec![Sharing::Experts(3); 2]).unwrap();
    let seats = Seats::sampled(grid, Sample { seats: 4, hold_phases: 1, seed: 7 }).unwrap();
    let plan = RunPlan { seats, phases: 9, ..plan() };
    let goes = |seat: PathId, phase| plan.modules_at(seat, Phase(phase))[1];
    let moves = |seat: &PathId| (2..8).find(|at| ![goes(*seat, *at), goes(*seat, at + 1)].contains(&goes(*seat, 0)));
    let (seat, later) = plan.seats.all().find_map(|seat| Some((seat, moves(&seat)?))).expect("a draw moves a seat");
    let left = goes(seat, 0);
    let from = StartedFrom { module: left, version: Version(0), update: genesis().update };
    let middle = InnerCheckpoint {
        path: seat,
        phase: Phase(0),
        start: vec![(from, state(0))],
        steps: 5,
        blob: BlobRef::of(b"middle"),
    };
    let lease = Record::Lease { path: seat, held: true, standby: false };
    let needs = |records: Vec<Record>| {
        let mut node = Node::restore(ME, plan.clone(), records);
        node.held.get_mut(&seat).unwrap().near = Phase(later);
        node.needed_modules().contains(&left)
    };
    assert!(!needs(vec![lease.clone()]) && needs(vec![lease, Record::Checkpoint(middle)]));
}
