//! The core in the simulator: drills, planted bugs, and numbers that hold on every platform. No feature is needed:
//! `cargo test --release --no-default-features --test core` builds in a minute.

mod amended;
mod asynchronous;
mod byzantine;
mod deterministic;
mod devices;
mod drills;
mod fault_schedule;
mod frames;
mod many_contributions;
mod mutants;
mod nesterov;
mod scenarios;
mod traces;
mod trainers;
