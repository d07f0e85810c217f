//! Results of experiments: scores, claims, tables and plots.

pub mod claims;
pub mod communication;
pub mod outcome;
pub mod plots;
pub mod report;
pub mod scoring;
pub mod spread;
pub mod traffic;
pub mod wall_clock;
