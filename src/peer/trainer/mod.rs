//! The trainer: the only thread of a peer that uses tensors.
//!
//! A phase of a path: the states of its modules from the store (`start_parameters`), inner steps (`stepping`), the
//! outer gradient of each module against the state from which it started, compressed with the residual of the last
//! compression ([`path_state`]). The results are in the store before the trainer reports them. `scores` evaluates
//! paths, `text` reads their shards. [`thread`] replaces a trainer that hangs; [`task`] has the messages between it and
//! the driver; [`devices`] has a thread for each device; [`device_scheduler`] shares a device among the peers of a process,
//! `throttle` limits their rate.

pub mod device_scheduler;
pub mod devices;
mod memory_wait;
pub mod path_state;
mod scores;
mod start_parameters;
mod stepping;
pub mod task;
#[cfg(test)]
mod tests;
pub(super) mod text;
pub mod thread;
pub(super) mod throttle;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::manifest::{Manifest, genesis};
use crate::compress::{EncodeError, compress_with_feedback};
use crate::config::MachineConfig;
use crate::grid::Grid;
use crate::model::open_device;
use crate::model::tensor_memory::ran_out_of_memory;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, Phase};
use crate::outer::ModuleState;
use crate::peer::trainer::memory_wait::{Waited, wait_for_memory};
use crate::peer::trainer::path_state::{PathState, PathStateError, PhaseState};
use crate::peer::trainer::task::{PhaseTask, Task, TrainerReport};
use crate::peer::trainer::text::{Purpose, Texts};
use crate::peer::trainer::thread::{Work, WorkerHandle};
use crate::protocol::journal::record::Finished;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::routing::resharding::RouterState;
use crate::store::{BlobError, BlobStore};
use crate::training::{InnerTrainer, OuterGradientError, StepError, TrainerError, outer_gradient};

/// Least interval between two reports of progress.
const REPORT: Duration = Duration::from_millis(250);

/// How many phases the run has, which an amendment changes, for all trainers of a peer.
#[derive(Clone, Debug, Default)]
pub struct Phases(Arc<AtomicU64>);

impl Phases {
    pub fn of(manifest: &Manifest) -> Self {
        Self(Arc::new(AtomicU64::new(manifest.config.training.phases)))
    }

    pub fn set(&self, phases: u64) {
        self.0.store(phases, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The work of a trainer's thread. The run has so many phases as `phases` says when a task begins. Where memory runs out, it waits and tries again.
pub fn work(manifest: Arc<Manifest>, phases: Phases, machine: MachineConfig, blobs: BlobStore) -> Work {
    Arc::new(move |mut handle| {
        let mut worker = loop {
            match Worker::new(manifest.clone(), &machine, blobs.clone()) {
                Ok(worker) => break worker,
                Err(error) if ran_out_of_memory(error.as_ref()) => {
                    if wait_for_memory(&handle, &error, None) == Waited::Abandoned {
                        return;
                    }
                }
                Err(error) => {
                    // Without a receiver, the driver is gone.
                    handle.report(TrainerReport::Failed(error));
                    return;
                }
            }
        };
        while let Some(task) = handle.next_task() {
            worker.goes_on_for(phases.get());
            let Some(outcome) = worker.outcome(&handle, &task) else { return };
            if !handle.report(outcome) {
                return;
            }
        }
    })
}

struct Worker {
    manifest: Arc<Manifest>,
    blobs: BlobStore,
    inner: InnerTrainer,
    counts: Vec<usize>,
    grid: Grid,
    texts: Texts,
    token_bytes: Vec<u32>,
    /// Limit of tokens a second; 0 for none.
    train_tokens_per_s: u64,
    /// Time for storing the last inner checkpoint.
    checkpoint_cost: Duration,
    /// With streaming, the state after the last part of a phase, and its blob.
    last: Option<(BlobHash, PathState)>,
}

/// The number of a trainer among those of its path, of which there are at most 64.
fn number_of(task: &PhaseTask) -> u16 {
    u16::try_from(task.trainer_number).unwrap_or(u16::MAX)
}

/// The outcome of inner steps.
enum Steps {
    /// The phase is complete, after this many steps.
    All(u64),
    /// Paused after this many steps.
    Paused(u64),
    /// The driver has gone.
    Abandoned,
}

/// The state with which a phase begins.
struct CarriedState {
    state: PathState,
    /// In the middle of a phase: the steps made, and the parameters after them, unless they are the path's own.
    middle: Option<(u64, Option<Vec<Vec<f32>>>)>,
    /// Whether AdamW still has this state, since nothing else was trained.
    at_hand: bool,
}

impl Worker {
    fn new(manifest: Arc<Manifest>, machine: &MachineConfig, blobs: BlobStore) -> anyhow::Result<Self> {
        let device = open_device(machine.first_device())?;
        let mut inner = InnerTrainer::new(&manifest.config, machine, device)?;
        let ancestor = |blob: BlobRef| Ok(blobs.get(blob.hash, blob.bytes)?);
        inner.load_frozen(&genesis::frozen(&manifest, ancestor)?)?;
        let (counts, grid) = (manifest.level_counts(), manifest.config.grid()?);
        let texts = Texts::new(manifest.clone(), blobs.clone());
        Ok(Self {
            manifest,
            blobs,
            inner,
            counts,
            grid,
            texts,
            token_bytes: Vec::new(),
            train_tokens_per_s: machine.train_tokens_per_s,
            checkpoint_cost: Duration::ZERO,
            last: None,
        })
    }

    /// The report with which a task ends; `None` if the driver has gone. A task for which there is no memory begins anew,
    /// from what is stored.
    fn outcome(&mut self, handle: &WorkerHandle, task: &Task) -> Option<TrainerReport> {
        loop {
            match self.carry_out(handle, task) {
                Ok(outcome) => return outcome,
                Err(error) if !ran_out_of_memory(error.as_ref()) => return Some(TrainerReport::Failed(error)),
                Err(error) => {
                    self.last = None;
                    match (wait_for_memory(handle, &error, Some(self.sign(task))), task) {
                        (Waited::Abandoned, _) => return None,
                        (Waited::Paused, Task::Train(PhaseTask { path, phase, .. })) => {
                            return Some(TrainerReport::Paused { path: *path, phase: *phase, middle: None });
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// The run may have been amended since the last task: its learning rate falls later, and its end is another.
    fn goes_on_for(&mut self, phases: u64) {
        if phases != self.manifest.config.training.phases {
            Arc::make_mut(&mut self.manifest).config.training.phases = phases;
            self.inner.set_phases(phases);
        }
    }

    /// Where a task begins, as a sign of life.
    fn sign(&self, task: &Task) -> (PathId, Phase, u64) {
        match task {
            Task::Train(PhaseTask { path, phase, part, resume, .. }) => {
                (*path, *phase, resume.map_or(part.first, |resume| resume.steps))
            }
            Task::Score { path, phase, .. } => (*path, *phase, 0),
            Task::Evaluate { path, .. } => (*path, Phase(self.manifest.config.training.phases), 0),
        }
    }

    /// `None` if the driver has gone.
    fn carry_out(&mut self, handle: &WorkerHandle, task: &Task) -> anyhow::Result<Option<TrainerReport>> {
        match *task {
            Task::Train(ref task) => self.train(handle, task),
            Task::Score { path, drawn, phase, ref states } => {
                let scores = self.score(handle, (path, phase), (drawn, &[Purpose::HeldOut]), states);
                let scores = scores.inspect_err(|error| tracing::warn!(%path, %phase, %error, "not scored")).ok();
                Ok(Some(TrainerReport::Scored { path, phase, held_out: scores.map(|scores| scores[0]) }))
            }
            Task::Evaluate { path, drawn, ref states, trainer } => {
                self.evaluate(handle, (path, drawn), states, trainer).map(Some)
            }
        }
    }

    fn read(&self, blob: BlobRef, what: &str) -> anyhow::Result<Vec<u8>> {
        let bytes = self.blobs.get(blob.hash, blob.bytes)?;
        bytes.ok_or_else(|| anyhow::anyhow!("{what} ({}) is not in the store", blob.hash))
    }

    /// Waits for the disk with the results of a phase, unless the driver has gone.
    fn put(&self, handle: &WorkerHandle, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        self.blobs.put_with_retry(bytes, || !handle.is_abandoned())
    }

    /// A blob that the path can lack: it then begins without.
    fn optional_blob(&self, blob: Option<BlobRef>) -> Result<Option<Vec<u8>>, BlobError> {
        let Some(blob) = blob else { return Ok(None) };
        match self.blobs.get(blob.hash, blob.bytes) {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            Ok(None) | Err(BlobError::Rotten { .. }) => {
                tracing::error!(blob = %blob.hash, "a trainer's state is missing on the disk");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Parameters before a phase.
    fn parameters(&self, states: &[(ModuleId, BlobRef)]) -> anyhow::Result<Vec<Vec<f32>>> {
        let (levels, _) = states.split_at(self.counts.len().min(states.len()));
        levels.iter().map(|(module, state)| self.parameters_of(*module, *state)).collect()
    }

    fn parameters_of(&self, module: ModuleId, state: BlobRef) -> anyhow::Result<Vec<f32>> {
        let bytes = self.read(state, &format!("the state of module {module}"))?;
        Ok(ModuleState::decode(&bytes, module, self.counts[usize::from(module.level)])?.parameters)
    }

    /// The router, if it is one of a path's modules.
    fn router(&self, states: &[(ModuleId, BlobRef)]) -> anyhow::Result<Option<RouterState>> {
        let Some((module, state)) = states.get(self.counts.len()) else { return Ok(None) };
        let bytes = self.read(*state, &format!("the state of module {module}"))?;
        Ok(Some(self.manifest.router_state(&bytes)?))
    }

    fn train(&mut self, handle: &WorkerHandle, task: &PhaseTask) -> anyhow::Result<Option<TrainerReport>> {
        let PhaseTask { path, drawn, phase, ref part, trainer, resume, .. } = *task;
        let span = tracing::info_span!("phase", %path, %drawn, %phase);
        let _entered = span.enter();
        if !handle.report(TrainerReport::Alive { path, phase, steps: resume.map_or(part.first, |resume| resume.steps) })
        {
            return Ok(None);
        }
        let router = self.router(&modules(&task.start))?;
        self.texts.hold(drawn, router.as_ref())?;
        let last = self.last.take().filter(|(blob, _)| resume.is_none() && Some(*blob) == trainer.map(|it| it.hash));
        let gone_on = if let Some((_, state)) = last {
            Some(self.phase(handle, task, CarriedState { state, middle: None, at_hand: true }))
        } else {
            let (middle, state) = (self.optional_blob(resume.map(|resume| resume.blob))?, self.optional_blob(trainer)?);
            let middle = middle.as_deref().zip(resume.map(|resume| resume.steps));
            let any = middle.is_some() || state.is_some();
            any.then(|| self.carry_on(handle, task, middle, state.as_deref()))
        };
        if let Some(gone_on) = gone_on {
            match gone_on {
                Err(error) if is_due_to_the_state(&error) => {
                    tracing::error!(error = %format!("{error:#}"), "the residual does not fit and is dropped");
                }
                outcome => return outcome,
            }
        }
        if trainer.is_some() || resume.is_some() {
            tracing::error!("AdamW starts from zero");
        }
        let state = PathState::fresh(self.names_path(task), &self.counts, self.taken(phase));
        let state = PathState { trainer_number: number_of(task), ..state };
        self.phase(handle, task, CarriedState { state, middle: None, at_hand: false })
    }

    /// Sequences taken from a path's shard before a phase, as if the path had been trained in each.
    fn taken(&self, phase: Phase) -> u64 {
        let training = &self.manifest.config.training;
        phase.0 * training.inner_steps * training.batch_sequences as u64
    }

    /// The path that a trainer state must name.
    fn names_path(&self, task: &PhaseTask) -> Option<PathId> {
        self.manifest.config.sample.map(|_| task.drawn)
    }

    /// The trainer state for the path of this phase.
    fn for_path(&self, task: &PhaseTask, state: PathState) -> Result<PathState, PathStateError> {
        let number = number_of(task);
        let state = match state.trainer_number == number {
            true => state,
            false => state.for_another_trainer(number, self.taken(task.phase)),
        };
        match (state.drawn, self.names_path(task)) {
            (before, now) if before == now => Ok(state),
            (Some(before), Some(now)) => {
                let stays = |level| self.grid.module_of(before, level) == self.grid.module_of(now, level);
                Ok(state.drawn_anew(now, stays, self.taken(task.phase)))
            }
            _ => Err(PathStateError::OtherPath),
        }
    }

    fn carry_on(
        &mut self,
        handle: &WorkerHandle,
        task: &PhaseTask,
        middle: Option<(&[u8], u64)>,
        state: Option<&[u8]>,
    ) -> anyhow::Result<Option<TrainerReport>> {
        let carried = match middle {
            // With streaming, the path's own parameters are part of its state anyway.
            Some((bytes, steps)) if self.streams() => {
                let state = PathState::decode(bytes, &self.counts)?;
                CarriedState { state, middle: Some((steps, None)), at_hand: false }
            }
            Some((bytes, _)) => {
                let PhaseState { steps, levels, state } = PhaseState::decode(bytes, &self.counts)?;
                if state.drawn != self.names_path(task) {
                    return Err(PathStateError::OtherPath.into());
                }
                CarriedState { state, middle: Some((steps, Some(levels))), at_hand: false }
            }
            None => {
                let state = PathState::decode(state.unwrap_or(&[]), &self.counts)?;
                CarriedState { state: self.for_path(task, state)?, middle: None, at_hand: false }
            }
        };
        self.phase(handle, task, carried)
    }

    /// `None` if the driver has gone.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long it took besides its steps")]
    fn phase(
        &mut self,
        handle: &WorkerHandle,
        task: &PhaseTask,
        carried: CarriedState,
    ) -> anyhow::Result<Option<TrainerReport>> {
        let PhaseTask { path, phase, ref part, ref start, .. } = *task;
        let CarriedState { mut state, middle, at_hand } = carried;
        let states = modules(start);
        let (made, levels) = middle.unwrap_or((part.first, None));
        let asked_at = Instant::now();
        // It trains again, so its final parameters are obsolete.
        state.best.take_if(|best| best.settled);
        let before = self.stand(task, &mut state, levels)?;
        if !at_hand {
            self.inner.restore(&state.inner)?;
        }
        if made == 0 {
            self.keep_best(handle, task, (&states, &before), &mut state);
        }
        let ready_ms = asked_at.elapsed().as_millis();
        let steps = match self.inner_steps(handle, task, made, &mut state)? {
            // With streaming, a level was trained in all parts since its last outer gradient.
            Steps::All(steps) => {
                if self.streams() {
                    part.of
                } else {
                    steps
                }
            }
            Steps::Abandoned => return Ok(None),
            Steps::Paused(steps) => {
                let middle = (steps > made).then(|| self.store_middle(handle, steps, &mut state)).transpose()?;
                return Ok(Some(TrainerReport::Paused { path, phase, middle: middle.map(|blob| (steps, blob)) }));
            }
        };
        let stepped_at = Instant::now();
        let after = self.inner.levels()?;
        let mut offers = Vec::with_capacity(start.len());
        let router = self.router(&states)?;
        let is_due = |(level, _): &(usize, &Vec<f32>)| part.due.contains(&start[*level].0.module);
        for (level, before) in before.iter().enumerate().filter(is_due) {
            let (from, share) = (start[level].0, self.share(task, start[level].0.module, router.as_ref()));
            let frame = self.compress((handle, level), (before, &after[level], share), &mut state.residuals[level])?;
            offers.push((from, frame));
        }
        if let Some((from, _)) = start.get(before.len()) {
            let next = router.as_ref().map_or(0, |router| router.rounds + 1);
            offers.push((*from, self.scores_of_the_slice(handle, task, next)?));
        }
        let offers_ms = stepped_at.elapsed().as_millis();
        state.inner = self.inner.state()?;
        let mut base_states = Vec::new();
        if let Some(own) = &mut state.own {
            (own.levels, base_states) = (after, start.to_vec());
        }
        let trainer = self.put(handle, &state.encode())?;
        self.last = self.streams().then_some((trainer.hash, state));
        tracing::debug!(
            ready_ms,
            offers_ms,
            stored_ms = stepped_at.elapsed().as_millis() - offers_ms,
            "besides its steps"
        );
        Ok(Some(TrainerReport::Trained(Finished { path, phase, steps, offers, trainer, base_states })))
    }

    /// Weight of a path in a module, relative to its other paths. In a run that reshards, only the trainer knows it.
    fn share(&self, task: &PhaseTask, module: ModuleId, router: Option<&RouterState>) -> f32 {
        router.map_or(1.0, |router| router.share(task.drawn, &self.grid.paths_of(module)))
    }

    fn compress(
        &self,
        (handle, level): (&WorkerHandle, usize),
        (before, after, share): (&[f32], &[f32], f32),
        residual: &mut Vec<f32>,
    ) -> anyhow::Result<BlobRef> {
        let outer = self.manifest.config.outer_of(level);
        let carried = outer.unsent().added().map(|part| (part, residual.as_slice()));
        let gradient = outer_gradient(before, after, share, carried)?;
        let (frame, left) = compress_with_feedback(outer.codec, &gradient)?;
        *residual = left;
        Ok(self.put(handle, &frame)?)
    }
}

/// The modules from which a phase starts, and their states.
fn modules(start: &[(BaseVersion, BlobRef)]) -> Vec<(ModuleId, BlobRef)> {
    start.iter().map(|(from, state)| (from.module, *state)).collect()
}

/// Whether a failure may be due to the carried state, which may come from another peer. Memory that ran out is not.
fn is_due_to_the_state(error: &anyhow::Error) -> bool {
    if ran_out_of_memory(error.as_ref()) {
        return false;
    }
    let diverged = matches!(error.downcast_ref(), Some(StepError::NotFinite { .. }));
    let unfit = error.is::<OuterGradientError>() || error.is::<EncodeError>() || error.is::<TrainerError>();
    diverged || unfit || error.is::<PathStateError>()
}
