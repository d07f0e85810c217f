//! Swarms of processes on loopback: how they begin, train, fail and end.
#![cfg(all(feature = "learning", feature = "network"))]

mod adapters;
mod alone;
mod amended;
mod asking;
mod continued;
mod costs;
mod devices;
mod dna;
mod failures;
mod invitations;
#[path = "../support/ledger.rs"]
mod ledger;
mod modes;
mod own_parameters;
mod resharding;
#[path = "../support/run.rs"]
mod run;
mod stages;
mod starts;
#[path = "../support/swarm.rs"]
mod swarm;
#[path = "../support/text.rs"]
mod text;
mod trainers;
