//! The trainer: the one thread of a peer that touches tensors.
//!
//! A phase of a path: states from the store, H inner steps in turns with the machine's other trainers, the outer
//! gradient of each module against the replicated copy it started from, compressed with what was left from last time,
//! and all of it back to the store before anybody is told.

mod scores;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::manifest::Manifest;
use super::path_state::{PathState, PathStateError, PhaseState};
use super::tasks::{Stepped, Task, Told};
use super::texts::{Purpose, Texts};
use super::trainer_thread::{Desk, Work};
use super::turns::TURN_MS;
use crate::compress::{EncodeError, compress_with_feedback};
use crate::config::MachineConfig;
use crate::grid::Grid;
use crate::model::open_device;
use crate::names::{BlobRef, ModuleId, PathId, Phase};
use crate::outer::ModuleState;
use crate::protocol::Resume;
use crate::protocol::record::{Finished, StartedFrom};
use crate::routing::resharding::RouterState;
use crate::seed::Seed;
use crate::store::{BlobError, BlobStore};
use crate::training::{
    BatchOrder, InnerTrainer, OuterGradientError, StepError, StepReport, TrainerError, outer_gradient,
    place_in_schedule,
};

/// Steps between two reports of progress, at the most this often.
const REPORT: Duration = Duration::from_millis(250);

/// Inner checkpoints are no closer than this.
const CHECKPOINT_LEAST: Duration = Duration::from_secs(5);

/// Nor than this many times what it takes to store one: they cost at most one percent of the time.
const CHECKPOINT_FACTOR: u32 = 100;

/// What took longer has waited for a full disk.
const CHECKPOINT_COST_MOST: Duration = Duration::from_secs(60);

/// What a trainer's thread does.
pub fn work(manifest: Arc<Manifest>, machine: MachineConfig, blobs: BlobStore) -> Work {
    Arc::new(move |mut desk| {
        let mut worker = match Worker::new(manifest.clone(), &machine, blobs.clone()) {
            Ok(worker) => worker,
            Err(error) => {
                // The driver is gone if nobody takes it.
                desk.report(Told::Failed(error));
                return;
            }
        };
        while let Some(task) = desk.next_task() {
            let outcome = worker.carry_out(&desk, task).unwrap_or_else(|error| Some(Told::Failed(error)));
            let Some(outcome) = outcome else { return };
            if !desk.report(outcome) {
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
    /// What it took to store the last inner checkpoint.
    checkpoint_cost: Duration,
}

/// A phase of a path, as it was asked for.
struct Asked<'a> {
    path: PathId,
    drawn: PathId,
    phase: Phase,
    steps: u64,
    start: &'a [(StartedFrom, BlobRef)],
}

/// How far inner steps were made.
enum Steps {
    /// To the end of the phase.
    All,
    /// So many, and then there was a wish to stop.
    Paused(u64),
    /// Nobody listens any more.
    Deserted,
}

/// What a phase goes on with.
struct Carried {
    state: PathState,
    /// Steps made and the parameters after them, in the middle of the phase.
    middle: Option<(u64, Vec<Vec<f32>>)>,
}

impl Worker {
    fn new(manifest: Arc<Manifest>, machine: &MachineConfig, blobs: BlobStore) -> anyhow::Result<Self> {
        let device = open_device(machine.device)?;
        let inner = InnerTrainer::new(&manifest.config, machine, device)?;
        let (counts, grid) = (manifest.level_counts(), manifest.config.grid()?);
        let (texts, checkpoint_cost) = (Texts::new(manifest.clone(), blobs.clone()), Duration::ZERO);
        Ok(Self { manifest, blobs, inner, counts, grid, texts, token_bytes: Vec::new(), checkpoint_cost })
    }

    /// Nothing if nobody listens any more.
    fn carry_out(&mut self, desk: &Desk, task: Task) -> anyhow::Result<Option<Told>> {
        match task {
            Task::Train { path, drawn, phase, steps, start, trainer, resume } => {
                self.train(desk, &Asked { path, drawn, phase, steps, start: &start }, trainer, resume)
            }
            Task::Score { path, drawn, phase, states } => {
                let scores = self.score(desk, (path, phase), (drawn, &[Purpose::HeldOut]), &states);
                let scores = scores.inspect_err(|error| tracing::warn!(%path, %phase, %error, "not scored")).ok();
                Ok(Some(Told::Scored { path, phase, held_out: scores.map(|scores| scores[0]) }))
            }
            Task::Evaluate { path, drawn, states, trainer } => {
                self.evaluate(desk, (path, drawn), &states, trainer).map(Some)
            }
        }
    }

    fn read(&self, blob: BlobRef, what: &str) -> anyhow::Result<Vec<u8>> {
        let bytes = self.blobs.get(blob.hash, blob.bytes)?;
        bytes.ok_or_else(|| anyhow::anyhow!("{what} ({}) is not in the store", blob.hash))
    }

    /// What a phase was trained for waits for the disk, unless nobody listens any more.
    fn put(&self, desk: &Desk, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        self.blobs.put_patiently(bytes, || !desk.is_deserted())
    }

    /// A blob that this path can do without: then it begins anew.
    fn carried_blob(&self, blob: Option<BlobRef>) -> Result<Option<Vec<u8>>, BlobError> {
        let Some(blob) = blob else { return Ok(None) };
        match self.blobs.get(blob.hash, blob.bytes) {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            Ok(None) | Err(BlobError::Rotten { .. }) => {
                tracing::error!(blob = %blob.hash, "a trainer's state is gone from the disk");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Parameters as they are before a phase.
    fn parameters(&self, states: &[(ModuleId, BlobRef)]) -> anyhow::Result<Vec<Vec<f32>>> {
        let parameters = |(module, state): &(ModuleId, BlobRef)| {
            let bytes = self.read(*state, &format!("the state of module {module}"))?;
            let count = self.counts[usize::from(module.level)];
            Ok(ModuleState::decode(&bytes, *module, count)?.parameters)
        };
        let (levels, _) = states.split_at(self.counts.len().min(states.len()));
        levels.iter().map(parameters).collect()
    }

    /// The router, where it is one of a path's modules.
    fn router(&self, states: &[(ModuleId, BlobRef)]) -> anyhow::Result<Option<RouterState>> {
        let Some((module, state)) = states.get(self.counts.len()) else { return Ok(None) };
        let bytes = self.read(*state, &format!("the state of module {module}"))?;
        Ok(Some(self.manifest.router_state(&bytes)?))
    }

    fn train(
        &mut self,
        desk: &Desk,
        asked: &Asked,
        trainer: Option<BlobRef>,
        resume: Option<Resume>,
    ) -> anyhow::Result<Option<Told>> {
        let Asked { path, drawn, phase, .. } = *asked;
        let span = tracing::info_span!("phase", %path, %drawn, %phase);
        let _entered = span.enter();
        if !desk.report(Told::Alive { path, phase, steps: resume.map_or(0, |resume| resume.steps) }) {
            return Ok(None);
        }
        let router = self.router(&modules(asked.start))?;
        self.texts.hold(drawn, router.as_ref())?;
        let (middle, state) = (self.carried_blob(resume.map(|resume| resume.blob))?, self.carried_blob(trainer)?);
        if middle.is_some() || state.is_some() {
            match self.carry_on(desk, asked, middle.as_deref(), state.as_deref()) {
                Err(error) if blames_the_state(&error) => {
                    tracing::error!(error = %format!("{error:#}"), "what was carried so far does not do");
                }
                outcome => return outcome,
            }
        }
        if trainer.is_some() || resume.is_some() {
            tracing::error!("AdamW begins anew");
        }
        let state = PathState::fresh(self.names_path(asked), &self.counts, self.taken(phase));
        self.phase(desk, asked, Carried { state, middle: None })
    }

    /// Sequences that those before a phase have taken from a path's shard, as if it had been trained in each.
    fn taken(&self, phase: Phase) -> u64 {
        let training = &self.manifest.config.training;
        phase.0 * training.inner_steps * training.batch_sequences as u64
    }

    /// What a trainer's state must say of the path.
    fn names_path(&self, asked: &Asked) -> Option<PathId> {
        self.manifest.config.sample.map(|_| asked.drawn)
    }

    /// What a trainer carries, for the path of this phase.
    fn for_path(&self, asked: &Asked, state: PathState) -> Result<PathState, PathStateError> {
        match (state.drawn, self.names_path(asked)) {
            (before, now) if before == now => Ok(state),
            (Some(before), Some(now)) => {
                let stays = |level| self.grid.module_of(before, level) == self.grid.module_of(now, level);
                Ok(state.drawn_anew(now, stays, self.taken(asked.phase)))
            }
            _ => Err(PathStateError::OtherPath),
        }
    }

    fn carry_on(
        &mut self,
        desk: &Desk,
        asked: &Asked,
        middle: Option<&[u8]>,
        state: Option<&[u8]>,
    ) -> anyhow::Result<Option<Told>> {
        let carried = match middle {
            Some(bytes) => {
                let PhaseState { steps, levels, state } = PhaseState::decode(bytes, &self.counts)?;
                if state.drawn != self.names_path(asked) {
                    return Err(PathStateError::OtherPath.into());
                }
                Carried { state, middle: Some((steps, levels)) }
            }
            None => {
                let state = PathState::decode(state.unwrap_or(&[]), &self.counts)?;
                Carried { state: self.for_path(asked, state)?, middle: None }
            }
        };
        self.phase(desk, asked, carried)
    }

    /// Nothing if nobody listens any more.
    fn phase(&mut self, desk: &Desk, asked: &Asked, carried: Carried) -> anyhow::Result<Option<Told>> {
        let Asked { path, phase, start, .. } = *asked;
        let Carried { mut state, middle } = carried;
        let states = modules(start);
        let before = self.parameters(&states)?;
        let made = middle.as_ref().map_or(0, |(steps, _)| *steps);
        self.inner.load(middle.as_ref().map_or(&before, |(_, levels)| levels))?;
        drop(middle);
        self.inner.restore(&state.inner)?;
        if made == 0 {
            self.keep_best(desk, asked, (&states, &before), &mut state);
        }
        match self.inner_steps(desk, asked, made, &mut state)? {
            Steps::All => {}
            Steps::Deserted => return Ok(None),
            Steps::Paused(steps) => {
                let middle = (steps > made).then(|| self.store_middle(desk, steps, &mut state)).transpose()?;
                return Ok(Some(Told::Paused { path, phase, middle: middle.map(|blob| (steps, blob)) }));
            }
        }
        let after = self.inner.levels()?;
        let mut offers = Vec::with_capacity(start.len());
        let router = self.router(&states)?;
        for (level, before) in before.iter().enumerate() {
            let (from, share) = (start[level].0, self.share(asked, start[level].0.module, router.as_ref()));
            let frame = self.compress(desk, (before, &after[level], share), &mut state.residuals[level])?;
            offers.push((from, frame));
        }
        if let Some((from, _)) = start.get(before.len()) {
            let next = router.as_ref().map_or(0, |router| router.rounds + 1);
            offers.push((*from, self.scores_of_the_slice(desk, asked, next)?));
        }
        state.inner = self.inner.state()?;
        let trainer = self.put(desk, &state.encode())?;
        Ok(Some(Told::Trained(Finished { path, phase, offers, trainer })))
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how long inner steps took")]
    fn inner_steps(&mut self, desk: &Desk, asked: &Asked, made: u64, carried: &mut PathState) -> anyhow::Result<Steps> {
        let Asked { path, drawn, phase, steps, .. } = *asked;
        let inner_steps = self.manifest.config.training.inner_steps;
        let place = |step: u64| step * inner_steps / steps.max(1);
        let mut reported = Instant::now();
        let mut checkpoint_at = reported + self.between_checkpoints();
        let (mut step, mut last, mut loss, mut tokens, mut seconds) = (made, steps, 0.0, 0, 0.0);
        while step < last {
            // One that finds the driver busy is said again soon.
            let mut waits = || {
                desk.mention(Told::Alive { path, phase, steps: step });
            };
            let turn = desk.take_turn(REPORT, &mut waits);
            let began = Instant::now();
            let mut stepped_at = began;
            while step < last && began.elapsed() < Duration::from_millis(TURN_MS) {
                if desk.is_deserted() {
                    return Ok(Steps::Deserted);
                }
                if desk.is_paused() {
                    return Ok(Steps::Paused(step));
                }
                if desk.is_to_end() && step > 0 {
                    last = step;
                    break;
                }
                let schedule_step = place_in_schedule(&self.manifest.config.training, phase, step, steps);
                let report = self.step(drawn, schedule_step)?;
                step += 1;
                (loss, tokens) = (report.loss, tokens + report.tokens);
                seconds += stepped_at.elapsed().as_secs_f64();
                stepped_at = Instant::now();
                if reported.elapsed() >= REPORT {
                    let stepped = Stepped { path, phase, step: place(step), loss, tokens, seconds };
                    // A report that finds the driver busy is added to the next one.
                    if desk.mention(Told::Step(stepped)) {
                        (tokens, seconds) = (0, 0.0);
                    }
                    reported = Instant::now();
                }
            }
            drop(turn);
            if step < last && Instant::now() >= checkpoint_at {
                let blob = self.store_middle(desk, step, carried)?;
                if !desk.report(Told::Checkpointed { path, phase, steps: step, blob }) {
                    return Ok(Steps::Deserted);
                }
                checkpoint_at = Instant::now() + self.between_checkpoints();
            }
        }
        let told = desk.report(Told::Step(Stepped { path, phase, step: inner_steps, loss, tokens, seconds }));
        Ok(if told { Steps::All } else { Steps::Deserted })
    }

    fn step(&mut self, path: PathId, schedule_step: u64) -> anyhow::Result<StepReport> {
        let Some(shard) = self.texts.held() else { anyhow::bail!("path {path} has no shard in hand") };
        let seed = Seed::root(self.manifest.config.seed).child("batches").number(u64::from(path.0));
        let order = BatchOrder { seed, sequences: shard.len() };
        Ok(self.inner.step(shard, &order, schedule_step)?)
    }

    fn between_checkpoints(&self) -> Duration {
        CHECKPOINT_LEAST.max(self.checkpoint_cost * CHECKPOINT_FACTOR)
    }

    /// Stores the middle of a phase.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long it took")]
    fn store_middle(&mut self, desk: &Desk, steps: u64, carried: &mut PathState) -> anyhow::Result<BlobRef> {
        let began = Instant::now();
        carried.inner = self.inner.state()?;
        let middle = PhaseState { steps, levels: self.inner.levels()?, state: std::mem::take(carried) };
        let blob = self.put(desk, &middle.encode())?;
        *carried = middle.state;
        self.checkpoint_cost = began.elapsed().min(CHECKPOINT_COST_MOST);
        Ok(blob)
    }

    /// What a path counts for in a module, beside the others in it: where the text is shared out anew, nobody else knows.
    fn share(&self, asked: &Asked, module: ModuleId, router: Option<&RouterState>) -> f32 {
        router.map_or(1.0, |router| router.share(asked.drawn, &self.grid.paths_of(module)))
    }

    fn compress(
        &self,
        desk: &Desk,
        (before, after, share): (&[f32], &[f32], f32),
        residual: &mut Vec<f32>,
    ) -> anyhow::Result<BlobRef> {
        let outer = &self.manifest.config.outer;
        let carried = outer.feedback().map(|part| (part, residual.as_slice()));
        let gradient = outer_gradient(before, after, share, carried)?;
        let (frame, left) = compress_with_feedback(outer.codec, &gradient)?;
        *residual = left;
        Ok(self.put(desk, &frame)?)
    }
}

/// Which modules a phase starts from, and their states.
fn modules(start: &[(StartedFrom, BlobRef)]) -> Vec<(ModuleId, BlobRef)> {
    start.iter().map(|(from, state)| (from.module, *state)).collect()
}

/// Whether a phase failed in a way that what it was carried on with can be to blame for, which may be another peer's.
fn blames_the_state(error: &anyhow::Error) -> bool {
    let diverged = matches!(error.downcast_ref(), Some(StepError::NotFinite { .. }));
    let unfit = error.is::<OuterGradientError>() || error.is::<EncodeError>() || error.is::<TrainerError>();
    diverged || unfit || error.is::<PathStateError>()
}
