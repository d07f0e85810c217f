//! pathswarm: people with one machine each train one modular language model together.

pub mod cli;
pub mod clock;
pub mod compress;
pub mod config;
pub mod grid;
#[cfg(feature = "learning")]
pub mod model;
pub mod names;
pub mod observe;
pub mod seed;
#[cfg(feature = "network")]
pub mod network;
