//! The core in the simulator: drills, planted bugs, and numbers that hold on every platform.
//!
//! Run without the default features: all of it is the core's, and the full build would only repeat it.
#![cfg(not(feature = "network"))]

mod asynchronous;
mod drills;
mod fault_schedule;
mod mutants;
mod nesterov;
