//! Many seeds of a scenario, on all cores.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::counts::Counts;
use super::invariants::none_lost::Tally;
use super::{Failure, Outcome, Scenario, run};

/// What all seeds of a drill came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Seeds that ran without a violation.
    pub seeds: u64,
    /// What was seen in all of them.
    pub counts: Counts,
    /// What became of all contributions.
    pub tally: Tally,
    /// Inner steps that the chains which go on have counted, summed over their contributions.
    pub accepted_steps: u64,
    /// Virtual time until every path was done.
    pub took_ms: u64,
    /// The longest of one seed.
    pub slowest_ms: u64,
    /// The loss at the end, summed over the seeds.
    pub losses: f64,
    /// From when on the loss was at the given one or below, of each seed that came there.
    pub reached_ms: Vec<u64>,
}

impl Summary {
    fn with(mut self, outcome: &Outcome) -> Self {
        self.seeds += 1;
        self.counts.add(&outcome.counts);
        self.tally.add(&outcome.tally);
        self.accepted_steps += outcome.accepted_steps;
        self.took_ms += outcome.finished_ms;
        self.slowest_ms = self.slowest_ms.max(outcome.finished_ms);
        self.losses += outcome.loss;
        self.reached_ms.extend(outcome.reached_ms);
        self
    }

    fn and(mut self, other: &Self) -> Self {
        self.seeds += other.seeds;
        self.counts.add(&other.counts);
        self.tally.add(&other.tally);
        self.accepted_steps += other.accepted_steps;
        self.took_ms += other.took_ms;
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
        self.losses += other.losses;
        self.reached_ms.extend(&other.reached_ms);
        self
    }

    /// Inner steps accepted in a second of virtual time.
    pub fn pace(&self) -> f64 {
        1_000.0 * self.accepted_steps as f64 / self.took_ms.max(1) as f64
    }

    /// The mean over the seeds.
    pub fn loss(&self) -> f64 {
        self.losses / self.seeds.max(1) as f64
    }
}

/// Runs the seeds. `done` is told after each how many have run.
///
/// # Errors
/// The failure of the lowest seed among those that failed first; which that is may depend on the number of cores, what
/// it says does not.
pub fn drill(scenario: &Arc<Scenario>, seeds: Range<u64>, done: impl Fn(u64) + Sync) -> Result<Summary, Box<Failure>> {
    let ran = AtomicU64::new(0);
    let one = |seed| {
        let outcome = run(scenario, seed).map_err(Box::new)?;
        done(ran.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(outcome)
    };
    seeds
        .into_par_iter()
        .map(one)
        .try_fold(Summary::default, |summary, outcome: Result<Outcome, Box<Failure>>| Ok(summary.with(&outcome?)))
        .try_reduce(Summary::default, |one, other| Ok(one.and(&other)))
}
