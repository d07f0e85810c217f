//! pathswarm: people with one machine each train one modular language model together.

pub mod clock;
pub mod config;
pub mod grid;
pub mod names;
#[cfg(feature = "learning")]
pub mod routing;
pub mod seed;
#[cfg(feature = "learning")]
pub mod text;
