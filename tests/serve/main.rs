//! `pathswarm serve`, asked as its clients ask it: over HTTP, and by the programs that know OpenAI's API.
#![cfg(all(feature = "learning", feature = "network"))]

mod chat;
mod client;
mod clients;
mod completions;
mod hostile;
mod installed;
mod limits;
mod model;
mod openapi;
mod peer;
#[path = "../support/run.rs"]
mod run;
mod swarm;
#[path = "../support/swarm.rs"]
mod swarm_of;
#[path = "../support/text.rs"]
mod text;
