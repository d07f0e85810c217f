//! One network for each core of the machine: small paths trained in parallel take two thirds of the time of paths
//! trained one after the other on all cores. A GPU has one network at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{available_parallelism, scope};

use crate::config::{MachineConfig, RunConfig};
use crate::model::{open_device, set_threads};
use crate::training::InnerTrainer;

/// Networks of one shape that work at the same time.
pub struct WorkerPool {
    members: Vec<InnerTrainer>,
    /// Threads of each network.
    threads: usize,
}

impl WorkerPool {
    /// For at most so many jobs at a time.
    pub fn new(run: &RunConfig, machine: &MachineConfig, jobs: usize) -> anyhow::Result<Self> {
        let device = open_device(machine.first_device())?;
        let cores = match machine.threads {
            0 => available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let size = if device.is_cuda() { 1 } else { jobs.clamp(1, cores) };
        let threads = cores / size;
        let each = MachineConfig { threads, ..machine.clone() };
        let members = (0..size).map(|_| InnerTrainer::new(run, &each, device)).collect::<Result<_, _>>()?;
        Ok(Self { members, threads })
    }

    /// Number of parameters of each level.
    pub fn level_sizes(&self) -> Vec<usize> {
        self.members[0].model().level_sizes()
    }

    /// Runs jobs, each on a free network, and returns their results in order. `done` is called for each. The result of
    /// a job depends neither on the network nor on other jobs.
    ///
    /// # Errors
    /// The first error of a job. Jobs that have not begun are then not run.
    pub fn each<T: Send>(
        &mut self,
        jobs: usize,
        work: impl Fn(&mut InnerTrainer, usize) -> anyhow::Result<T> + Sync,
        done: &mut dyn FnMut(),
    ) -> anyhow::Result<Vec<T>> {
        let (next, threads) = (AtomicUsize::new(0), self.threads);
        let mut found: Vec<Option<T>> = (0..jobs).map(|_| None).collect();
        let mut failed = None;
        scope(|scope| {
            let (sender, results) = sync_channel(self.members.len());
            for member in &mut self.members {
                let (sender, next, work) = (sender.clone(), &next, &work);
                scope.spawn(move || {
                    set_threads(threads);
                    loop {
                        let job = next.fetch_add(1, Ordering::Relaxed);
                        if job >= jobs {
                            return;
                        }
                        let result = work(member, job);
                        if result.is_err() {
                            next.store(jobs, Ordering::Relaxed);
                        }
                        if sender.send((job, result)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for (job, result) in results {
                match result {
                    Ok(value) => found[job] = Some(value),
                    Err(error) => failed = failed.take().or(Some(error)),
                }
                done();
            }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(found.into_iter().flatten().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(threads: usize, jobs: usize) -> WorkerPool {
        let text = r#"
            levels = [{ parts = ["embedding", "blocks.0-0", "final-norm", "head"], sharing = { experts = 2 } }]
            model = { blocks = 1, width = 16, heads = 2, vocabulary = 300, context = 64 }
            training = { batch_sequences = 2, inner_steps = 2, phases = 4, ancestor_steps = 2, learning_rate = 1e-3 }
            name = "pool"
        "#;
        let run = RunConfig::from_toml(text).unwrap();
        WorkerPool::new(&run, &MachineConfig { threads, ..MachineConfig::default() }, jobs).unwrap()
    }

    #[test]
    fn a_pool_has_a_worker_for_each_core_and_no_more_than_jobs() {
        for (threads, jobs, members, each) in [(1, 4, 1, 1), (4, 2, 2, 2), (3, 16, 3, 1), (2, 0, 1, 2)] {
            let pool = pool(threads, jobs);
            assert_eq!((pool.members.len(), pool.threads), (members, each), "{threads} threads, {jobs} jobs");
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_jobs_and_an_error_ends_them() {
        let (mut pool, mut heard) = (pool(3, 3), 0);
        let found = pool.each(9, |_, job| Ok(job * job), &mut || heard += 1).unwrap();
        assert_eq!((found, heard), ((0..9).map(|job| job * job).collect(), 9));
        let begun = AtomicUsize::new(0);
        let third = |_: &mut InnerTrainer, job| {
            begun.fetch_add(1, Ordering::Relaxed);
            if job == 2 { anyhow::bail!("no third") } else { Ok(()) }
        };
        assert_eq!(pool.each(1000, third, &mut || {}).unwrap_err().to_string(), "no third");
        assert!(begun.into_inner() < 1000, "what was not begun is left undone");
    }
}
