//! pathswarm: people with one machine each train one modular language model together.

pub mod clock;
pub mod config;
pub mod grid;
pub mod names;
#[cfg(feature = "network")]
pub mod network;
pub mod seed;
