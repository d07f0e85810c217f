//! All paths of a run trained in one process, phase by phase, with the inner steps, compression and outer arithmetic of
//! a swarm. Owners, networks and crashes of a real swarm do not change the numbers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::compress::{compress_with_feedback, encode};
use crate::config::{MachineConfig, RunConfig, Stagger, Streaming};
use crate::experiment::checkpoint::TrainingState;
use crate::experiment::results::traffic::{Exchanged, Frames};
use crate::experiment::training::worker_pool::WorkerPool;
use crate::grid::Grid;
use crate::names::{BlobHash, ModuleId, PathId, Phase};
use crate::outer::{CentredClipping, ExactSum, ModuleState, Share, mix, rescale_factor};
use crate::peer::create::dense_trainer::Stopped;
use crate::peer::manifest::shard_table::weights;
use crate::peer::trainer::path_state::{Own, PathState};
use crate::seed::Seed;
use crate::text::TokenSet;
use crate::training::{BatchOrder, InnerTrainer, outer_gradient, place_in_schedule};

/// A run in training.
pub struct Lockstep<'a> {
    run: &'a RunConfig,
    grid: Grid,
    pool: WorkerPool,
    stop: &'a AtomicBool,
    modules: BTreeMap<ModuleId, ModuleState>,
    paths: Vec<PathState>,
    tokens: u64,
    exchanged: Exchanged,
}

impl<'a> Lockstep<'a> {
    /// Before the first phase: every module is the ancestor's level.
    pub fn new(
        run: &'a RunConfig,
        machine: &MachineConfig,
        ancestor: &[Vec<f32>],
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Self> {
        let grid = run.grid()?;
        let pool = WorkerPool::new(run, machine, grid.path_count() as usize)?;
        let initial = |module: ModuleId| {
            let parameters = ancestor[usize::from(module.level)].clone();
            (module, ModuleState::initial(module, parameters, run.outer.mode))
        };
        let modules = grid.modules().into_iter().map(initial).collect();
        let sizes: Vec<usize> = ancestor.iter().map(Vec::len).collect();
        let paths = grid.paths().map(|_| PathState::fresh(None, &sizes, 0)).collect();
        Ok(Self { run, grid, pool, stop, modules, paths, tokens: 0, exchanged: Exchanged::default() })
    }

    /// Parameters of all modules together.
    pub fn parameters(&self) -> u64 {
        self.modules.values().map(|state| state.parameters.len() as u64).sum()
    }

    /// Tokens trained on so far, by all paths together.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Bytes and errors of outer steps so far.
    pub fn exchanged(&self) -> Exchanged {
        self.exchanged
    }

    /// A phase of every path on its shard, and the outer step of every module. `done` is called for each path.
    ///
    /// # Errors
    /// If a step fails or the user asks to stop. The phase is then discarded.
    pub fn phase(&mut self, phase: Phase, shards: &[TokenSet], done: &mut dyn FnMut()) -> anyhow::Result<()> {
        let (levels, steps) = (self.run.levels.len(), self.run.training.inner_steps);
        let Some(streaming) = self.run.outer.streaming else {
            let whole = Stretch { phase, steps: 0..steps, due: (0..levels).collect(), mixed: None, streaming: None };
            return self.stretch(&whole, shards, done);
        };
        let stagger = Stagger::new(levels, steps, streaming.overlap);
        let before = self.checkpoint();
        for level in 0..levels {
            let (steps, mixed) = (stagger.steps(level), stagger.mixed_before(phase, level));
            let part = Stretch { phase, steps, due: vec![level], mixed, streaming: Some(streaming) };
            let mut done = || {
                if level + 1 == levels {
                    done()
                }
            };
            if let Err(error) = self.stretch(&part, shards, &mut done) {
                self.resume(&before)?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Inner steps of every path, and then the outer step of every module of the due levels.
    fn stretch(&mut self, stretch: &Stretch, shards: &[TokenSet], done: &mut dyn FnMut()) -> anyhow::Result<()> {
        let counts = self.pool.level_sizes();
        let fresh = |module: &ModuleId| {
            let level = usize::from(module.level);
            (*module, ExactSum::new(counts[level]))
        };
        let due = self.modules.keys().filter(|module| stretch.due.contains(&usize::from(module.level)));
        let mut sums: BTreeMap<ModuleId, ExactSum> = due.map(fresh).collect();
        let weights = weights(shards.iter().map(|shard| shard.len() as u64));
        let starts: Vec<_> = self.grid.paths().map(|path| (path, self.replicated_of(path))).collect();
        let (run, stop, paths) = (self.run, self.stop, &self.paths);
        let work = |trainer: &mut InnerTrainer, job: usize| {
            let (path, before) = &starts[job];
            train(run, trainer, (*path, stretch), (before, &paths[job]), &shards[job], stop)
        };
        let trained = self.pool.each(starts.len(), work, done)?;
        let clippings = self.clippings(stretch, &trained);
        let mut after = Vec::with_capacity(trained.len());
        for (path, Trained { state, mut arrived, sent, tokens }) in self.grid.paths().zip(trained) {
            self.exchanged.up.add(&sent);
            let modules = self.grid.modules_of(path);
            for (module, values) in stretch.due.iter().map(|level| modules[*level]).zip(&mut arrived) {
                clippings.get(&module).into_iter().for_each(|clipping| clipping.clip(values));
                if let Some(sum) = sums.get_mut(&module) {
                    sum.add(values, weights[path.0 as usize])?;
                }
            }
            after.push(state);
            self.tokens += tokens;
        }
        self.paths = after;
        for (module, sum) in sums {
            let outer = self.run.outer_of(usize::from(module.level));
            let average = sum.average(rescale_factor(outer.rescale, self.grid.paths_of(module).len()));
            let frame = encode(outer.average_codec(), &average)?;
            let average = self.exchanged.down.count(&average, &frame)?;
            if let Some(state) = self.modules.get_mut(&module) {
                state.apply(&average, Share::FULL, outer.learning_rate, outer.momentum)?;
            }
        }
        Ok(())
    }

    /// The distances of contributions from each module's centre, with centred clipping.
    fn clippings(&self, stretch: &Stretch, trained: &[Trained]) -> BTreeMap<ModuleId, CentredClipping> {
        let mut clippings = BTreeMap::new();
        for (path, trained) in self.grid.paths().zip(trained) {
            let modules = self.grid.modules_of(path);
            for (module, values) in stretch.due.iter().map(|level| modules[*level]).zip(&trained.arrived) {
                let paths = self.grid.paths_of(module).len();
                let outer = self.run.outer_of(usize::from(module.level));
                if !outer.clips(paths) {
                    continue;
                }
                let around = || CentredClipping::around(&self.modules[&module], paths, &outer);
                clippings.entry(module).or_insert_with(around).measure(values);
            }
        }
        clippings
    }

    /// The parameters of a path, level by level: its own copy, if it keeps unsent changes.
    pub fn levels_of(&self, path: PathId) -> Vec<Vec<f32>> {
        self.paths[path.0 as usize].own_copy(self.run, &self.replicated_of(path)).into_owned()
    }

    /// Its modules' parameters, level by level.
    pub fn replicated_of(&self, path: PathId) -> Vec<Vec<f32>> {
        self.grid.modules_of(path).iter().map(|module| self.modules[module].parameters.clone()).collect()
    }

    pub fn keeps_unsent(&self) -> bool {
        self.run.outer.keep_unsent
    }

    /// The networks for training and scoring paths.
    pub fn pool(&mut self) -> &mut WorkerPool {
        &mut self.pool
    }

    /// The state to resume from.
    pub fn checkpoint(&self) -> TrainingState {
        TrainingState {
            tokens: self.tokens,
            exchanged: self.exchanged,
            modules: self.modules.values().map(ModuleState::encode).collect(),
            paths: self.paths.iter().map(PathState::encode).collect(),
        }
    }

    /// Resumes from a checkpoint.
    pub fn resume(&mut self, checkpoint: &TrainingState) -> anyhow::Result<()> {
        let counts = self.pool.level_sizes();
        let trainers = [0, self.paths.len()].contains(&checkpoint.paths.len());
        if checkpoint.modules.len() != self.modules.len() || !trainers {
            anyhow::bail!("the checkpoint is of another grid");
        }
        for ((module, state), bytes) in self.modules.iter_mut().zip(&checkpoint.modules) {
            *state = ModuleState::decode(bytes, *module, counts[usize::from(module.level)])?;
        }
        for (state, bytes) in self.paths.iter_mut().zip(&checkpoint.paths) {
            *state = PathState::decode(bytes, &counts)?;
        }
        (self.tokens, self.exchanged) = (checkpoint.tokens, checkpoint.exchanged);
        Ok(())
    }
}

/// Inner steps without an outer step between them.
struct Stretch {
    phase: Phase,
    steps: Range<u64>,
    /// The levels whose outer gradients are taken after them.
    due: Vec<usize>,
    /// The level whose update is mixed in before them.
    mixed: Option<usize>,
    streaming: Option<Streaming>,
}

/// The outcome of a path's inner steps.
struct Trained {
    state: PathState,
    /// The outer gradient of each due level, as decoded.
    arrived: Vec<Vec<f32>>,
    sent: Frames,
    tokens: u64,
}

fn train(
    run: &RunConfig,
    inner: &mut InnerTrainer,
    (path, stretch): (PathId, &Stretch),
    (before, state): (&[Vec<f32>], &PathState),
    shard: &TokenSet,
    stop: &AtomicBool,
) -> anyhow::Result<Trained> {
    let mut own = state.own.clone();
    match (&mut own, stretch.streaming) {
        (Some(own), Some(streaming)) => {
            stretch.mixed.iter().for_each(|level| mix(&mut own.levels[*level], &before[*level], streaming.mix));
            inner.load(&own.levels)?;
        }
        _ => inner.load(&state.own_copy(run, before))?,
    }
    inner.restore(&state.inner)?;
    let seed = Seed::root(run.seed).child("batches").number(u64::from(path.0));
    let order = BatchOrder { seed, sequences: shard.len() };
    let mut tokens = 0;
    for step in stretch.steps.clone() {
        if stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        let place = place_in_schedule(&run.training, stretch.phase, step, run.training.inner_steps);
        tokens += inner.step(shard, &order, place)?.tokens;
    }
    let levels = inner.levels()?;
    let mut state = PathState { inner: inner.state()?, ..state.clone() };
    let (mut arrived, mut sent) = (Vec::with_capacity(stretch.due.len()), Frames::default());
    for level in stretch.due.iter().copied() {
        let (before, after, residual) = (&before[level], &levels[level], &mut state.residuals[level]);
        let outer = run.outer_of(level);
        let lost = outer.unsent().added().map(|part| (part, residual.as_slice()));
        let gradient = outer_gradient(before, after, 1.0, lost)?;
        let (frame, left) = compress_with_feedback(outer.codec, &gradient)?;
        arrived.push(sent.count(&gradient, &frame)?);
        *residual = left;
    }
    // In step, the base update of a path follows from the phase.
    state.own = stretch.streaming.map(|_| Own { base_states: vec![BlobHash([0; 32]); levels.len()], levels });
    Ok(Trained { state, arrived, sent, tokens })
}
