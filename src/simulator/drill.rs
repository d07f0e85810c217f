//! Runs many seeds of a scenario on all cores.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use crate::names::BlobHash;
use crate::simulator::counts::Counts;
use crate::simulator::invariants::none_lost::Tally;
use crate::simulator::trace::{Trace, hash_of_seeds};
use crate::simulator::{Failure, Outcome, Scenario, run, run_traced};

/// The results of all seeds of a drill.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Seeds that ran without a violation.
    pub seeds: u64,
    pub counts: Counts,
    /// The fates of all contributions.
    pub tally: Tally,
    /// Inner steps counted in the final chains, summed over their contributions.
    pub accepted_steps: u64,
    /// Virtual time until every path was done.
    pub took_ms: u64,
    /// The longest time of one seed.
    pub slowest_ms: u64,
    /// The loss at the end, for each seed in their order.
    pub losses: Vec<f64>,
    /// The time at which the loss reached the given one, for each seed that did.
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
        self.losses.push(outcome.loss);
        self.reached_ms.extend(outcome.reached_ms);
        self
    }

    /// Inner steps accepted in a second of virtual time.
    pub fn pace(&self) -> f64 {
        1_000.0 * self.accepted_steps as f64 / self.took_ms.max(1) as f64
    }

    /// The mean over the seeds.
    pub fn loss(&self) -> f64 {
        self.losses.iter().sum::<f64>() / self.seeds.max(1) as f64
    }
}

/// Runs the seeds. `done` is called after each with their number.
///
/// # Errors
/// The failure of the lowest seed that fails, for any number of cores.
pub fn drill(scenario: &Arc<Scenario>, seeds: Range<u64>, done: impl Fn(u64) + Sync) -> Result<Summary, Box<Failure>> {
    let ran = AtomicU64::new(0);
    let outcomes = up_to_the_first_failure(seeds, |seed| {
        let outcome = run(scenario, seed).map_err(Box::new);
        done(ran.fetch_add(1, Ordering::Relaxed) + 1);
        outcome
    })?;
    Ok(outcomes.iter().fold(Summary::default(), Summary::with))
}

/// Runs the seeds and hashes their traces into one hash, in their order, which changes only if the behaviour does.
/// `done` is called after each with their number.
///
/// # Errors
/// The failure of the lowest seed that fails.
pub fn trace_hash(
    scenario: &Arc<Scenario>,
    seeds: Range<u64>,
    done: impl Fn(u64) + Sync,
) -> Result<BlobHash, Box<Failure>> {
    let ran = AtomicU64::new(0);
    let hashes = up_to_the_first_failure(seeds, |seed| {
        let outcome = run_traced(scenario, seed, Trace::hashed()).map_err(Box::new);
        done(ran.fetch_add(1, Ordering::Relaxed) + 1);
        outcome.map(|outcome| outcome.trace)
    })?;
    Ok(hash_of_seeds(&hashes.into_iter().flatten().collect::<Vec<_>>()))
}

/// The result of each seed, in order; or of the lowest that failed, after which none is begun.
fn up_to_the_first_failure<T: Send, E: Send>(
    seeds: Range<u64>,
    one: impl Fn(u64) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let lowest_failed = AtomicU64::new(u64::MAX);
    let told = |seed| {
        (seed < lowest_failed.load(Ordering::Relaxed)).then(|| {
            let result = one(seed);
            if result.is_err() {
                lowest_failed.fetch_min(seed, Ordering::Relaxed);
            }
            (seed, result)
        })
    };
    let mut all: Vec<_> = seeds.par_bridge().filter_map(told).collect();
    all.sort_by_key(|(seed, _)| *seed);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_seed_that_fails_is_reported_on_any_number_of_cores() {
        let fails = |seed| if [41, 70, 199].contains(&seed) { Err(seed) } else { Ok(seed) };
        for threads in [1, 2, 7] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                for _ in 0..100 {
                    assert_eq!(up_to_the_first_failure(0..200, fails), Err(41));
                }
                assert_eq!(up_to_the_first_failure(71..199, fails), Ok((71..199).collect()));
            });
        }
    }
}
