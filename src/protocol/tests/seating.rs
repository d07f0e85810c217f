//! Where seats are, in runs that draw paths anew.

use super::*;
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
