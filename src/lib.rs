//! pathswarm: people with one machine each train one modular language model together.

#![warn(missing_docs, clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

pub mod cli;
pub mod clock;
pub mod config;
pub mod grid;
pub mod names;
pub mod observe;
pub mod seed;
