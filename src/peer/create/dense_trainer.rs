//! Training of dense paths on all the text.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::config::{MachineConfig, RunConfig};
use crate::model::open_device;
use crate::peer::create::dense::{Dense, DenseCheckpoint};
use crate::peer::inference::model_slot::features;
use crate::peer::trainer::device_scheduler::DeviceScheduler;
use crate::seed::Seed;
use crate::text::TokenSet;
use crate::training::{BatchOrder, InnerTrainer, Score, evaluate};

/// Interval of checkpoints during training, and so the most that a crash costs.
const KEEP_EVERY: Duration = Duration::from_secs(300);

/// The user asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("stopped before the end; run the same command again to resume")]
pub struct Stopped;

/// A trainer for dense paths, which shares the device with the machine's other trainers.
pub struct DenseTrainer<'a> {
    run: &'a RunConfig,
    scheduler: &'a DeviceScheduler,
    stop: &'a AtomicBool,
    inner: InnerTrainer,
}

impl<'a> DenseTrainer<'a> {
    pub fn new(
        run: &'a RunConfig,
        machine: &MachineConfig,
        scheduler: &'a DeviceScheduler,
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Self> {
        let device = open_device(machine.first_device())?;
        Ok(Self { run, scheduler, stop, inner: InnerTrainer::new(run, machine, device)? })
    }

    /// Trains from one step of the schedule to another, or resumes from a checkpoint between them. `told` receives the
    /// number of steps and the loss.
    ///
    /// # Errors
    /// If a step or the disk fails, or the user asks to stop.
    #[expect(clippy::disallowed_methods, reason = "an edge: when a turn is over")]
    pub fn train(
        &mut self,
        dense: Dense,
        text: &TokenSet,
        steps: Range<u64>,
        kept: &DenseCheckpoint,
        told: &mut dyn FnMut(u64, f64),
    ) -> anyhow::Result<Dense> {
        let sizes: Vec<usize> = dense.levels.iter().map(Vec::len).collect();
        let frozen = dense.frozen.clone();
        let between = kept.read(&sizes).filter(|(step, _)| steps.contains(step));
        let between = between.map(|(step, kept)| (step, Dense { frozen: frozen.clone(), ..kept }));
        let (mut step, dense) = between.unwrap_or((steps.start, dense));
        self.load(&dense)?;
        self.inner.restore(&dense.inner)?;
        let seed = Seed::root(self.run.seed).child("dense batches");
        let order = BatchOrder { seed, sequences: text.len() };
        let mut written = Instant::now();
        while step < steps.end {
            let stopped = self.stop.load(Ordering::Relaxed);
            if stopped || written.elapsed() >= KEEP_EVERY {
                kept.write(step, &self.dense(&frozen)?)?;
                written = Instant::now();
            }
            if stopped {
                return Err(Stopped.into());
            }
            let _lease = self.scheduler.acquire();
            let began = Instant::now();
            let lease = Duration::from_millis(crate::peer::trainer::device_scheduler::SLICE_MS);
            while step < steps.end && began.elapsed() < lease && !self.stop.load(Ordering::Relaxed) {
                let report = self.inner.step(text, &order, step)?;
                step += 1;
                told(step - steps.start, report.loss);
            }
        }
        self.dense(&frozen)
    }

    fn dense(&self, frozen: &Arc<[f32]>) -> anyhow::Result<Dense> {
        Ok(Dense { levels: self.inner.levels()?, frozen: frozen.clone(), inner: self.inner.state()? })
    }

    fn load(&mut self, dense: &Dense) -> anyhow::Result<()> {
        // It is the same in all dense paths of a run.
        if !self.inner.model().is_complete() {
            self.inner.load_frozen(&dense.frozen)?;
        }
        Ok(self.inner.load(&dense.levels)?)
    }

    /// The score of a dense path on some text.
    pub fn score(&mut self, dense: &Dense, text: &TokenSet, token_bytes: &[u32]) -> anyhow::Result<Score> {
        self.load(dense)?;
        let _lease = self.scheduler.acquire();
        Ok(evaluate(self.inner.model(), text, self.run.routing.prefix_tokens, token_bytes, &mut || {})?)
    }

    /// The features for routing documents: row-major, a row for each prefix.
    pub fn features(&mut self, dense: &Dense, prefixes: &[&[u32]]) -> anyhow::Result<Vec<f32>> {
        self.load(dense)?;
        let _lease = self.scheduler.acquire();
        features(self.inner.model(), prefixes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BlobHash;
    use crate::peer::tests::tiny_run::machine;
    use crate::training::samples::{small_run, small_set};

    #[test]
    fn training_that_was_stopped_goes_on_as_if_it_had_not_been() {
        let (run, text) = (small_run(), TokenSet::cut_for_scoring(&small_set(40), 47));
        let folder = tempfile::tempdir().unwrap();
        let kept = |name: &str| DenseCheckpoint { file: folder.path().join(name), of: BlobHash::of(b"this text") };
        let (scheduler, stop) = (DeviceScheduler::default(), AtomicBool::new(false));
        let mut trainer = DenseTrainer::new(&run, &machine(), &scheduler, &stop).unwrap();
        let whole = trainer.train(Dense::initial(&run), &text, 0..6, &kept("whole"), &mut |_, _| {}).unwrap();

        let mut stop_at_two = |step, _| stop.store(step == 2, Ordering::Relaxed);
        let mut begin = || trainer.train(Dense::initial(&run), &text, 0..6, &kept("parts"), &mut stop_at_two);
        assert!(begin().unwrap_err().is::<Stopped>());
        stop.store(false, Ordering::Relaxed);
        let mut steps = Vec::new();
        let mut note = |step, _| steps.push(step);
        let parts = trainer.train(Dense::initial(&run), &text, 0..6, &kept("parts"), &mut note).unwrap();
        assert_eq!(steps, [3, 4, 5, 6]);
        assert_eq!(parts, whole);
    }
}
