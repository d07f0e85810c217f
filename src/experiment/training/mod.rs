//! Training the arms of an experiment in one process.

pub mod assignment;
pub mod every_step;
pub mod features;
pub mod lockstep;
pub mod rerouting;
pub mod trained_arm;
pub mod worker_pool;
