//! pathswarm: people with one machine each train one modular language model together.

pub mod clock;
pub mod compress;
pub mod config;
pub mod grid;
pub mod names;
pub mod outer;
pub mod seed;
#[cfg(feature = "network")]
pub mod store;
