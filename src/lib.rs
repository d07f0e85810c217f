//! pathswarm: people with one machine each train one modular language model together.

pub mod clock;
pub mod compress;
pub mod config;
pub mod grid;
pub mod names;
pub mod outer;
#[cfg(all(feature = "learning", feature = "network"))]
pub mod peer;
pub mod protocol;
#[cfg(feature = "learning")]
pub mod routing;
pub mod seed;
pub mod simulator;
#[cfg(feature = "learning")]
pub mod text;
