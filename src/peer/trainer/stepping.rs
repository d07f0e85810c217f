//! Inner steps of a phase: in turn with the machine's other trainers, at the rate of the machine's profile, with
//! reports and checkpoints in between.

use std::time::{Duration, Instant};

use super::{REPORT, Steps, Worker};
use crate::names::BlobRef;
use crate::peer::trainer::device_scheduler::SLICE_MS;
use crate::peer::trainer::path_state::{PathState, PhaseState};
use crate::peer::trainer::task::{PhaseTask, Stepped, TrainerReport};
use crate::peer::trainer::thread::WorkerHandle;
use crate::peer::trainer::throttle::Pace;
use crate::seed::Seed;
use crate::training::{BatchOrder, StepReport, place_in_schedule};

/// Least interval of inner checkpoints.
const CHECKPOINT_LEAST: Duration = Duration::from_secs(5);

/// Least interval, as a multiple of the time to store one: they cost at most one percent of the time.
const CHECKPOINT_FACTOR: u32 = 100;

/// Longer times are due to a full disk.
const CHECKPOINT_COST_MOST: Duration = Duration::from_secs(60);

impl Worker {
    #[expect(clippy::disallowed_methods, reason = "an edge: how long inner steps took")]
    pub(super) fn inner_steps(
        &mut self,
        handle: &WorkerHandle,
        task: &PhaseTask,
        made: u64,
        carried: &mut PathState,
    ) -> anyhow::Result<Steps> {
        let PhaseTask { path, phase, ref part, .. } = *task;
        let inner_steps = self.manifest.config.training.inner_steps;
        let place = |step: u64| step * inner_steps / part.of.max(1);
        let tells = |step, [loss, gradient_norm, learning_rate]: [f64; 3], (tokens, seconds)| {
            let stepped = Stepped { path, phase, step, loss, gradient_norm, learning_rate, tokens, seconds };
            TrainerReport::Step(stepped)
        };
        let mut reported = Instant::now();
        let mut checkpoint_at = reported + self.between_checkpoints();
        let (mut step, mut last, mut measures, mut tokens, mut seconds) = (made, part.last, [0.0; 3], 0, 0.0);
        let mut pace = Pace::new(self.train_tokens_per_s);
        while step < last {
            // If the driver is busy, it is reported again soon.
            let mut waits = || {
                handle.try_report(TrainerReport::Alive { path, phase, steps: step });
            };
            let lease = handle.acquire_device(REPORT, &mut waits);
            let began = Instant::now();
            let mut stepped_at = began;
            while step < last && began.elapsed() < Duration::from_millis(SLICE_MS) && pace.rest(stepped_at).is_zero() {
                if handle.is_abandoned() {
                    return Ok(Steps::Abandoned);
                }
                if handle.is_paused() {
                    return Ok(Steps::Paused(step));
                }
                if handle.is_to_end() && step > part.first {
                    last = step;
                    break;
                }
                let schedule_step = place_in_schedule(&self.manifest.config.training, phase, step, part.of);
                let report = self.step(handle, task, schedule_step)?;
                step += 1;
                measures = [report.loss, report.gradient_norm, report.learning_rate];
                tokens += report.tokens;
                let now = Instant::now();
                seconds += pace.made(report.tokens, stepped_at, now).as_secs_f64();
                stepped_at = now;
                if reported.elapsed() >= REPORT {
                    // If the driver is busy, the report is merged into the next one.
                    if handle.try_report(tells(place(step), measures, (tokens, seconds))) {
                        (tokens, seconds) = (0, 0.0);
                    }
                    reported = Instant::now();
                }
            }
            drop(lease);
            while !pace.rest(Instant::now()).is_zero() && !handle.is_interrupted() {
                handle.try_report(TrainerReport::Alive { path, phase, steps: step });
                std::thread::sleep(pace.rest(Instant::now()).min(REPORT));
            }
            if step < last && Instant::now() >= checkpoint_at {
                let blob = self.store_middle(handle, step, carried)?;
                if !handle.report(TrainerReport::Checkpointed { path, phase, steps: step, blob }) {
                    return Ok(Steps::Abandoned);
                }
                checkpoint_at = Instant::now() + self.between_checkpoints();
            }
        }
        let told = handle.report(tells(place(part.last), measures, (tokens, seconds)));
        Ok(if told { Steps::All(step) } else { Steps::Abandoned })
    }

    fn step(&mut self, handle: &WorkerHandle, task: &PhaseTask, schedule_step: u64) -> anyhow::Result<StepReport> {
        let path = task.drawn;
        let Some(shard) = self.texts.held() else { anyhow::bail!("the shard of path {path} is not loaded") };
        let seed = Seed::root(self.manifest.config.seed).child("batches").number(u64::from(path.0));
        // Each trainer of a path reads its text in another order.
        let seed = if task.trainer_number > 0 { seed.number(u64::from(task.trainer_number)) } else { seed };
        let order = BatchOrder { seed, sequences: shard.len() };
        let made = self.inner.step(shard, &order, schedule_step);
        if let Some(what) = self.inner.memory_note() {
            handle.report(TrainerReport::ShortOfMemory(what));
        }
        Ok(made?)
    }

    fn between_checkpoints(&self) -> Duration {
        CHECKPOINT_LEAST.max(self.checkpoint_cost * CHECKPOINT_FACTOR)
    }

    /// Stores an inner checkpoint.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long it took")]
    pub(super) fn store_middle(
        &mut self,
        handle: &WorkerHandle,
        steps: u64,
        carried: &mut PathState,
    ) -> anyhow::Result<BlobRef> {
        let began = Instant::now();
        carried.inner = self.inner.state()?;
        let levels = self.inner.levels()?;
        let blob = if let Some(own) = &mut carried.own {
            own.levels = levels;
            self.put(handle, &carried.encode())?
        } else {
            let middle = PhaseState { steps, levels, state: std::mem::take(carried) };
            let blob = self.put(handle, &middle.encode())?;
            *carried = middle.state;
            blob
        };
        self.checkpoint_cost = began.elapsed().min(CHECKPOINT_COST_MOST);
        Ok(blob)
    }
}
