//! Paths whose gradients are averaged after every step, as in data parallel training, instead of outer gradients after
//! many steps (DiPaCo, section 4.5): the result of a swarm with unlimited bandwidth.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::{MachineConfig, RunConfig};
use crate::experiment::checkpoint::TrainingState;
use crate::experiment::training::worker_pool::WorkerPool;
use crate::grid::Grid;
use crate::names::{ModuleId, PathId, Phase};
use crate::peer::create::dense_trainer::Stopped;
use crate::peer::manifest::shard_table::weights;
use crate::seed::Seed;
use crate::text::TokenSet;
use crate::training::{BatchOrder, InnerState, InnerTrainer, place_in_schedule};

/// A run in training.
pub struct EveryStep<'a> {
    run: &'a RunConfig,
    grid: Grid,
    pool: WorkerPool,
    stop: &'a AtomicBool,
    modules: BTreeMap<ModuleId, Module>,
    tokens: u64,
}

/// Each module has its own AdamW.
#[derive(Clone)]
struct Module {
    parameters: Vec<f32>,
    moments: [Vec<f32>; 2],
}

/// The gradient of each path in one step, level by level.
type Gradients = Vec<Vec<Vec<f32>>>;

impl<'a> EveryStep<'a> {
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
            let rest = vec![0.0; parameters.len()];
            (module, Module { parameters, moments: [rest.clone(), rest] })
        };
        let modules = grid.modules().into_iter().map(initial).collect();
        Ok(Self { run, grid, pool, stop, modules, tokens: 0 })
    }

    /// The steps of a phase, each on all paths together. `done` is called for each path.
    ///
    /// # Errors
    /// If a step fails or the user asks to stop. The phase is then discarded.
    pub fn phase(&mut self, phase: Phase, shards: &[TokenSet], done: &mut dyn FnMut()) -> anyhow::Result<()> {
        let before = (self.modules.clone(), self.tokens);
        let inner_steps = self.run.training.inner_steps;
        for step in 0..inner_steps {
            let stepped = match self.stop.load(Ordering::Relaxed) {
                true => Err(Stopped.into()),
                false => self.step(phase.0 * inner_steps + step, shards),
            };
            if let Err(error) = stepped {
                (self.modules, self.tokens) = before;
                return Err(error);
            }
        }
        self.grid.paths().for_each(|_| done());
        Ok(())
    }

    fn step(&mut self, number: u64, shards: &[TokenSet]) -> anyhow::Result<()> {
        let training = &self.run.training;
        let place = place_in_schedule(training, Phase(0), 0, training.inner_steps) + number;
        let cursor = number * training.batch_sequences as u64;
        let paths: Vec<(PathId, Vec<Vec<f32>>)> = self.grid.paths().map(|path| (path, self.levels_of(path))).collect();
        let seed = Seed::root(self.run.seed).child("batches");
        let work = |inner: &mut InnerTrainer, job: usize| {
            let (path, levels) = &paths[job];
            inner.load(levels)?;
            let order = BatchOrder { seed: seed.number(u64::from(path.0)), sequences: shards[job].len() };
            Ok(inner.gradient(&shards[job], &order, (cursor, place))?)
        };
        let (gradients, tokens): (Gradients, Vec<u64>) =
            self.pool.each(paths.len(), work, &mut || {})?.into_iter().unzip();
        let averages = self.averages(&gradients, &weights(shards.iter().map(|shard| shard.len() as u64)));
        self.descend(&averages, number, place)?;
        self.tokens += tokens.iter().sum::<u64>();
        Ok(())
    }

    /// The average gradient of each module, weighted by the paths' shards.
    fn averages(&self, gradients: &Gradients, weights: &[u32]) -> BTreeMap<ModuleId, Vec<f32>> {
        let average = |module: &ModuleId| {
            let paths: Vec<usize> = self.grid.paths_of(*module).iter().map(|path| path.0 as usize).collect();
            let all: f64 = paths.iter().map(|path| f64::from(weights[*path])).sum();
            let mut sum = vec![0f64; self.modules[module].parameters.len()];
            for path in paths {
                let share = f64::from(weights[path]) / all;
                let own = &gradients[path][usize::from(module.level)];
                sum.iter_mut().zip(own).for_each(|(sum, value)| *sum += share * f64::from(*value));
            }
            (*module, sum.into_iter().map(|value| value as f32).collect())
        };
        self.modules.keys().map(average).collect()
    }

    /// A step of every module's AdamW, on one path through it: gradients are clipped by the norm of a path.
    fn descend(&mut self, averages: &BTreeMap<ModuleId, Vec<f32>>, number: u64, place: u64) -> anyhow::Result<()> {
        let mut left: Vec<ModuleId> = self.modules.keys().copied().collect();
        let mut paths = Vec::new();
        while let Some(module) = left.first() {
            let path = self.grid.paths_of(*module)[0];
            let modules = self.grid.modules_of(path);
            left.retain(|module| !modules.contains(module));
            paths.push(modules);
        }
        let modules = &self.modules;
        let work = |inner: &mut InnerTrainer, job: usize| {
            let own = || paths[job].iter().map(|module| &modules[module]);
            inner.load(&own().map(|module| &module.parameters).collect::<Vec<_>>())?;
            let moments = own().map(|module| module.moments.clone()).collect();
            inner.restore(&InnerState { steps: number, cursor: 0, moments })?;
            let gradient: Vec<Vec<f32>> = paths[job].iter().map(|module| averages[module].clone()).collect();
            inner.descend(&gradient, place)?;
            let (levels, state) = (inner.levels()?, inner.state()?);
            Ok(levels.into_iter().zip(state.moments).collect::<Vec<_>>())
        };
        let stepped = self.pool.each(paths.len(), work, &mut || {})?;
        let mut after = BTreeMap::new();
        for (modules, levels) in paths.iter().zip(stepped) {
            for (module, (parameters, moments)) in modules.iter().zip(levels) {
                after.entry(*module).or_insert(Module { parameters, moments });
            }
        }
        self.modules = after;
        Ok(())
    }

    /// The parameters of a path, level by level.
    pub fn levels_of(&self, path: PathId) -> Vec<Vec<f32>> {
        self.grid.modules_of(path).iter().map(|module| self.modules[module].parameters.clone()).collect()
    }

    /// The networks for training and scoring paths.
    pub fn pool(&mut self) -> &mut WorkerPool {
        &mut self.pool
    }

    /// Parameters of all modules together.
    pub fn parameters(&self) -> u64 {
        self.modules.values().map(|module| module.parameters.len() as u64).sum()
    }

    /// Tokens trained on so far, by all paths together.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The state to resume from.
    pub fn checkpoint(&self) -> TrainingState {
        let bytes = |Module { parameters, moments: [first, second] }: &Module| {
            let values = parameters.iter().chain(first).chain(second);
            values.flat_map(|value| value.to_le_bytes()).collect()
        };
        let modules = self.modules.values().map(bytes).collect();
        TrainingState { tokens: self.tokens, modules, ..TrainingState::default() }
    }

    /// Resumes from a checkpoint.
    pub fn resume(&mut self, checkpoint: &TrainingState) -> anyhow::Result<()> {
        if checkpoint.modules.len() != self.modules.len() || !checkpoint.paths.is_empty() {
            anyhow::bail!("the checkpoint is of another grid");
        }
        for (module, bytes) in self.modules.values_mut().zip(&checkpoint.modules) {
            let values: Vec<f32> = bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
            let count = module.parameters.len();
            if values.len() != 3 * count {
                anyhow::bail!("the checkpoint is of another model");
            }
            let part = |number: usize| values[number * count..][..count].to_vec();
            *module = Module { parameters: part(0), moments: [part(1), part(2)] };
        }
        self.tokens = checkpoint.tokens;
        Ok(())
    }
}
