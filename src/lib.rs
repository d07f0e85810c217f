//! pathswarm: people with one machine each train one modular language model together.
//!
//! The modules, in the order in which data flows through them:
//!
//! 1. [`config`]: what a run is and what a machine brings; [`grid`] makes modules and paths of it, [`sampling`] says
//!    which of them are trained when. [`names`], [`clock`] and [`seed`] are what everything else counts, times and draws
//!    with.
//! 2. `images` prepares images and changes them; `text` reads documents, trains a tokenizer and cuts sequences; `routing` sends each document to its path.
//! 3. `model` is the network of a path, `training` its inner steps and its outer gradient.
//! 4. [`compress`] makes outer gradients small, [`outer`] sums them exactly and takes the outer step.
//! 5. [`protocol`] decides who does what and when, without doing any of it. [`access`] has the rules of runs by
//!    invitation, [`query`] what peers ask each other about text.
//! 6. `store` keeps what must survive, `network` carries messages and blobs, cut into [`pieces`].
//! 7. `peer` puts them together; [`simulator`] runs the same protocol in virtual time; `experiment` trains many runs in
//!    one process, to compare them.
//! 8. `inspect` looks inside a trained path while it reads.
//! 9. [`observe`] shows what happens; [`cli`] is how people and programs start it all.

pub mod access;
pub mod cli;
pub mod clock;
pub mod compress;
pub mod config;
#[cfg(all(feature = "learning", feature = "network"))]
pub mod experiment;
pub mod grid;
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
pub mod routing;
pub mod sampling;
pub mod seed;
pub mod simulator;
#[cfg(feature = "network")]
pub mod store;
#[cfg(feature = "learning")]
pub mod text;
#[cfg(feature = "learning")]
pub mod training;
