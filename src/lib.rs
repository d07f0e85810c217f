//! pathswarm: people with one machine each train one modular language model together.
//!
//! The modules, in the order in which data passes through them:
//!
//! 1. [`config`] describes a run and a machine. [`grid`] derives modules and paths from it, and [`sampling`] which path each
//!    worker slot trains in each phase. [`names`], [`clock`] and [`seed`] define identifiers, time and random numbers. At
//!    [`failpoints`] tests make threads panic, and what goes on after that is in `survival`; [`sizes`] has bytes in words.
//! 2. `images` prepares and augments images; `text` reads documents, trains a tokenizer and cuts sequences; `routing`
//!    assigns each document to a path.
//! 3. `model` is the network of a path; `training` has its inner steps and its outer gradient.
//! 4. [`compress`] compresses outer gradients; [`outer`] sums them exactly and takes the outer step.
//! 5. [`protocol`] is the core: a state machine without input or output that decides which peer does what. [`access`] has
//!    the rules of runs by invitation, [`query`] the queries about text.
//! 6. `store` has what must survive a crash; `network` carries messages and blobs, cut into [`pieces`].
//! 7. `peer` carries out the core's actions with all of these. [`simulator`] runs the same core in virtual time, and
//!    `experiment` compares runs in one process.
//! 8. `inspect` analyses a trained path. `serve` has OpenAI's API before a run.
//! 9. [`observe`] has logs, metrics and progress; `http` is what servers of pages stand on. `telemetry` keeps
//!    what viewers are shown, and `console` is the page that shows it. `report` writes a page of runs that were trained.
//!    [`cli`] has the commands.

pub mod access;
pub mod cli;
pub mod clock;
pub mod compress;
pub mod config;
#[cfg(all(feature = "learning", feature = "network"))]
pub mod console;
#[cfg(all(feature = "learning", feature = "network"))]
pub mod experiment;
pub mod failpoints;
pub mod grid;
#[cfg(feature = "network")]
pub mod http;
#[cfg(feature = "learning")]
pub mod images;
#[cfg(feature = "learning")]
pub mod inspect;
#[cfg(feature = "learning")]
pub mod model;
pub mod names;
#[cfg(feature = "network")]
pub mod network;
pub mod observe;
pub mod outer;
#[cfg(all(feature = "learning", feature = "network"))]
pub mod peer;
pub mod pieces;
pub mod protocol;
pub mod query;
#[cfg(all(feature = "learning", feature = "network"))]
pub mod report;
pub mod routing;
pub mod sampling;
pub mod seed;
#[cfg(all(feature = "learning", feature = "network"))]
pub mod serve;
pub mod simulator;
pub mod sizes;
#[cfg(feature = "network")]
pub mod store;
#[cfg(feature = "network")]
pub mod survival;
#[cfg(all(feature = "learning", feature = "network"))]
pub mod telemetry;
#[cfg(feature = "learning")]
pub mod text;
#[cfg(feature = "learning")]
pub mod training;
