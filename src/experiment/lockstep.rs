//! All paths of a run trained one after the other in one process, phase by phase: the inner steps, compression and outer
//! arithmetic of a swarm, without one. What a swarm adds, owners and networks and crashes, changes none of its numbers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::compress::{compress_with_feedback, frame};
use crate::config::{MachineConfig, RunConfig};
use crate::grid::Grid;
use crate::model::{PathModel, open_device};
use crate::names::{ModuleId, PathId, Phase};
use crate::outer::{ExactSum, ModuleState, Share, step};
use crate::peer::dense_trainer::Stopped;
use crate::peer::path_state::PathState;
use crate::protocol::limits::FULL_WEIGHT;
use crate::seed::Seed;
use crate::text::TokenSet;
use crate::training::{BatchOrder, InnerTrainer, outer_gradient, place_in_schedule};

/// A run in training.
pub struct Lockstep<'a> {
    run: &'a RunConfig,
    grid: Grid,
    inner: InnerTrainer,
    stop: &'a AtomicBool,
    modules: BTreeMap<ModuleId, ModuleState>,
    paths: Vec<PathState>,
    tokens: u64,
}

/// What must be kept to go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// Tokens trained on, by all paths together.
    pub tokens: u64,
    /// The state of each module, encoded, in order.
    pub modules: Vec<Vec<u8>>,
    /// The trainer's state of each path, encoded, in order.
    pub paths: Vec<Vec<u8>>,
}

impl<'a> Lockstep<'a> {
    /// Before the first phase: every module is the ancestor's level.
    ///
    /// # Errors
    /// If the device cannot be opened or the model not be made.
    pub fn new(
        run: &'a RunConfig,
        machine: &MachineConfig,
        ancestor: &[Vec<f32>],
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Self> {
        let grid = run.grid()?;
        let inner = InnerTrainer::new(run, machine, open_device(machine.device)?)?;
        let initial = |module: ModuleId| {
            let parameters = ancestor[usize::from(module.level)].clone();
            (module, ModuleState::initial(module, parameters, run.outer.mode))
        };
        let modules = grid.modules().into_iter().map(initial).collect();
        let sizes: Vec<usize> = ancestor.iter().map(Vec::len).collect();
        let paths = grid.paths().map(|_| PathState::fresh(None, &sizes, 0)).collect();
        Ok(Self { run, grid, inner, stop, modules, paths, tokens: 0 })
    }

    /// How many paths.
    pub fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// Parameters of all modules together.
    pub fn parameters(&self) -> u64 {
        self.modules.values().map(|state| state.parameters.len() as u64).sum()
    }

    /// Tokens trained on so far, by all paths together.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// A phase of every path on its shard, and the outer step of every module. `told` hears of each path's mean loss
    /// when it is done.
    ///
    /// # Errors
    /// If a step fails, or the user asks to stop: then nothing of the phase is kept.
    pub fn phase(
        &mut self,
        phase: Phase,
        shards: &[TokenSet],
        told: &mut dyn FnMut(PathId, f64),
    ) -> anyhow::Result<()> {
        let counts = self.inner.model().level_sizes();
        let fresh = |module: &ModuleId| (*module, ExactSum::new(counts[usize::from(module.level)]));
        let mut sums: BTreeMap<ModuleId, ExactSum> = self.modules.keys().map(fresh).collect();
        let weights = weights(shards);
        let (mut after, mut tokens) = (Vec::with_capacity(self.paths.len()), 0);
        for path in self.grid.paths() {
            let (loss, carried, frames) = self.train(path, phase, &shards[path.0 as usize], &mut tokens)?;
            for (module, frame) in self.grid.modules_of(path).into_iter().zip(&frames) {
                let values = frame::decode(frame, counts[usize::from(module.level)])?;
                if let Some(sum) = sums.get_mut(&module) {
                    sum.add(&values, weights[path.0 as usize])?;
                }
            }
            after.push(carried);
            told(path, loss);
        }
        self.paths = after;
        self.tokens += tokens;
        let outer = &self.run.outer;
        for (module, sum) in sums {
            let average = step::combine(&sum, self.grid.paths_of(module).len(), outer)?;
            let average = frame::decode(&average, sum.count())?;
            if let Some(state) = self.modules.get_mut(&module) {
                state.apply(&average, Share::FULL, outer.learning_rate, outer.momentum)?;
            }
        }
        Ok(())
    }

    /// A path's inner steps: their mean loss, what the path carries on, and a frame for each level.
    fn train(
        &mut self,
        path: PathId,
        phase: Phase,
        shard: &TokenSet,
        tokens: &mut u64,
    ) -> anyhow::Result<(f64, PathState, Vec<Vec<u8>>)> {
        let before = self.levels_of(path);
        self.load(&before)?;
        let mut carried = self.paths[path.0 as usize].clone();
        self.inner.restore(&carried.inner)?;
        let seed = Seed::root(self.run.seed).child("batches").number(u64::from(path.0));
        let order = BatchOrder { seed, sequences: shard.len() };
        let (training, mut loss) = (&self.run.training, 0.0);
        for step in 0..training.inner_steps {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stopped.into());
            }
            let place = place_in_schedule(training, phase, step, training.inner_steps);
            let report = self.inner.step(shard, &order, place)?;
            loss += report.loss / training.inner_steps as f64;
            *tokens += report.tokens;
        }
        let after = self.inner.levels()?;
        let mut frames = Vec::with_capacity(before.len());
        for ((before, after), residual) in before.iter().zip(&after).zip(&mut carried.residuals) {
            let lost = self.run.outer.error_feedback.then_some(residual.as_slice());
            let gradient = outer_gradient(before, after, lost)?;
            let (frame, left) = compress_with_feedback(self.run.outer.codec, &gradient)?;
            *residual = left;
            frames.push(frame);
        }
        carried.inner = self.inner.state()?;
        Ok((loss, carried, frames))
    }

    /// The parameters of a path, level by level.
    pub fn levels_of(&self, path: PathId) -> Vec<Vec<f32>> {
        self.grid.modules_of(path).iter().map(|module| self.modules[module].parameters.clone()).collect()
    }

    /// The network with these parameters, to be evaluated.
    ///
    /// # Errors
    /// If they are not this model's.
    pub fn playing(&mut self, levels: &[Vec<f32>]) -> anyhow::Result<&PathModel> {
        self.load(levels)?;
        Ok(self.inner.model())
    }

    fn load(&mut self, levels: &[Vec<f32>]) -> anyhow::Result<()> {
        let levels: Vec<&[f32]> = levels.iter().map(Vec::as_slice).collect();
        Ok(self.inner.load(&levels)?)
    }

    /// What must be kept.
    pub fn kept(&self) -> Kept {
        Kept {
            tokens: self.tokens,
            modules: self.modules.values().map(ModuleState::encode).collect(),
            paths: self.paths.iter().map(PathState::encode).collect(),
        }
    }

    /// Goes on from there.
    ///
    /// # Errors
    /// If it is another run's.
    pub fn resume(&mut self, kept: &Kept) -> anyhow::Result<()> {
        let counts = self.inner.model().level_sizes();
        if kept.modules.len() != self.modules.len() || kept.paths.len() != self.paths.len() {
            anyhow::bail!("what was kept is of another grid");
        }
        for ((module, state), bytes) in self.modules.iter_mut().zip(&kept.modules) {
            *state = ModuleState::decode(bytes, *module, counts[usize::from(module.level)])?;
        }
        for (state, bytes) in self.paths.iter_mut().zip(&kept.paths) {
            *state = PathState::decode(bytes, &counts)?;
        }
        self.tokens = kept.tokens;
        Ok(())
    }
}

/// Each path's weight by the size of its shard, as a swarm's manifest has it: the largest has the full weight.
fn weights(shards: &[TokenSet]) -> Vec<u32> {
    let largest = shards.iter().map(TokenSet::len).max().unwrap_or(1).max(1) as u64;
    shards.iter().map(|shard| ((shard.len() as u64 * u64::from(FULL_WEIGHT) / largest) as u32).max(1)).collect()
}
