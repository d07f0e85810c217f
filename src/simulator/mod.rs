//! A swarm in one thread and in virtual time: the real node, the real outer arithmetic and compression, everything
//! else made up from a seed. What fails here fails again with the same seed.
//!
//! [`links`] carry messages with delay, loss and reordering; a [`disk`] keeps what was synced and nothing else; a
//! [`learner`] stands in for training: each path pulls its modules towards targets of its own; [`faults`] says who
//! crashes when and who is cut off; [`world`] runs it all, with `carry_out` in the place of a peer's driver and workers
//! and `post` in that of the network; `judge` looks at the [`invariants`] after every event and at the end.

mod carry_out;
pub mod disk;
pub mod faults;
pub mod invariants;
mod judge;
pub mod learner;
pub mod links;
mod post;
pub mod world;

use crate::grid::Sharing;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The grid's levels.
    pub levels: Vec<Sharing>,
    /// How many peers; the first founds, the others join.
    pub peers: usize,
    /// Outer steps.
    pub phases: u64,
    /// Values in each module.
    pub values: usize,
    /// How long a path's phase takes to train.
    pub phase_ms: std::ops::Range<u64>,
    /// How messages travel.
    pub links: links::Links,
    /// How often peers crash.
    pub faults: faults::Faults,
    /// Virtual time by which everything must be done.
    pub deadline_ms: u64,
}

impl Scenario {
    /// Two by two, four peers, a quiet network.
    pub fn quiet() -> Self {
        Self {
            levels: vec![Sharing::Experts(2), Sharing::Experts(2)],
            peers: 4,
            phases: 4,
            values: 300,
            phase_ms: 1_500..2_500,
            links: links::Links { delay_ms: 1..20, loss: 0.0, bytes_per_ms: 10_000 },
            faults: faults::Faults::none(),
            deadline_ms: 600_000,
        }
    }

    /// The same under delay, loss and reordering.
    pub fn rough() -> Self {
        let mut scenario = Self::quiet();
        scenario.links = links::Links { delay_ms: 1..600, loss: 0.1, bytes_per_ms: 1_000 };
        scenario
    }

    /// Rough, and peers crash and come back.
    pub fn churn() -> Self {
        let mut scenario = Self::rough();
        scenario.phases = 6;
        scenario.faults =
            faults::Faults { crashes: 4, down_ms: 100..30_000, until_ms: 60_000, ..faults::Faults::none() };
        scenario
    }

    /// Rough, and a peer goes for good: others take up its path.
    pub fn departure() -> Self {
        let mut scenario = Self::rough();
        scenario.phases = 14;
        scenario.faults = faults::Faults { gone: 1, until_ms: 20_000, ..faults::Faults::none() };
        scenario
    }

    /// The network falls into two halves, which both go on and meet again.
    pub fn split() -> Self {
        let mut scenario = Self::rough();
        scenario.phases = 14;
        scenario.faults =
            faults::Faults { partitions: 1, apart_ms: 5_000..60_000, until_ms: 30_000, ..faults::Faults::none() };
        scenario
    }

    /// Splits and crashes at once.
    pub fn everything() -> Self {
        let mut scenario = Self::split();
        scenario.faults = faults::Faults {
            crashes: 5,
            down_ms: 100..40_000,
            partitions: 2,
            apart_ms: 5_000..40_000,
            until_ms: 60_000,
            ..faults::Faults::none()
        };
        scenario
    }

    /// On a grid in which all paths share a level and each has one of its own.
    pub fn shared_and_own(mut self) -> Self {
        self.levels = vec![Sharing::Shared, Sharing::Experts(2), Sharing::Experts(2), Sharing::Path];
        self
    }

    /// With so many peers.
    pub fn with_peers(mut self, peers: usize) -> Self {
        self.peers = peers;
        self
    }
}

/// What went wrong, with all that is needed to see it again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}: {invariant} at {at_ms} ms: {detail}")]
pub struct Failure {
    /// Replays it.
    pub seed: u64,
    /// Which promise was broken.
    pub invariant: &'static str,
    /// Virtual time.
    pub at_ms: u64,
    /// How.
    pub detail: String,
}

/// What a seed came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Virtual time at which every path was done.
    pub finished_ms: u64,
    /// Events handled.
    pub events: u64,
    /// BLAKE3 over all events and actions: equal for equal seeds.
    pub trace: crate::names::BlobHash,
    /// Changes of ownership seen after genesis.
    pub ownership_changes: u64,
    /// Chains given up for heavier ones, or for ones too far ahead to replay.
    pub switches: u64,
    /// Paths that nobody held at the end.
    pub unheld: usize,
    /// What became of all contributions.
    pub tally: invariants::none_lost::Tally,
}

/// Runs one seed of a scenario.
///
/// # Errors
/// The first invariant that broke.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Outcome, Failure> {
    world::World::new(scenario.clone(), seed).run()
}
