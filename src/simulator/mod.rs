//! A swarm in one thread and in virtual time: the real protocol core, outer arithmetic and compression; everything else
//! is simulated from a seed. A failure repeats with the same seed.
//!
//! In the order of a drill:
//!
//! 1. [`scenario`] is the file: the swarm, its links and clocks, faults and Byzantine peers.
//! 2. [`rng`] draws from the seed; the fault schedule of a seed is drawn first.
//! 3. `peer` is one peer: its core, its disk, and a trainer whose steps a [`peer::learner`] makes.
//! 4. [`world`] runs all peers: an event queue, a network, the actions of each core, crashes and restarts.
//! 5. [`invariants`] are checked after every event and at the end; [`counts`] has the measurements.
//! 6. [`drill`] runs many seeds on all cores; [`trace`] hashes or prints the events of one.

pub mod counts;
pub mod drill;
pub mod invariants;
mod peer;
pub mod rng;
pub mod scenario;
pub mod trace;
pub mod world;

use std::sync::Arc;

pub use scenario::Scenario;
pub use trace::Trace;

/// A violation, with everything needed to reproduce it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}: {invariant} at {at_ms} ms: {detail}")]
pub struct Failure {
    pub seed: u64,
    pub invariant: &'static str,
    pub at_ms: u64,
    pub detail: String,
}

/// The result of a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Virtual time at which every path was done.
    pub finished_ms: u64,
    /// BLAKE3 over all events and actions, if they were hashed: equal for equal seeds.
    pub trace: Option<crate::names::BlobHash>,
    pub counts: counts::Counts,
    /// The mean over all paths of ½‖θ − target‖² per value, by weight, at the end.
    pub loss: f64,
    /// The time at which the loss reached the scenario's `given_loss`; `None` if it did not, or none is given.
    pub reached_ms: Option<u64>,
    /// The largest lateness of a contribution, in versions.
    pub staleness_most: u64,
    /// Inner steps counted in the final chains, summed over their contributions.
    pub accepted_steps: u64,
    /// The fates of all contributions.
    pub tally: invariants::none_lost::Tally,
}

/// Runs one seed of a scenario.
pub fn run(scenario: &Arc<Scenario>, seed: u64) -> Result<Outcome, Failure> {
    world::World::new(scenario.clone(), seed).run()
}

/// The same, with a trace.
pub fn run_traced(scenario: &Arc<Scenario>, seed: u64, trace: Trace) -> Result<Outcome, Failure> {
    world::World::new(scenario.clone(), seed).traced(trace).run()
}
