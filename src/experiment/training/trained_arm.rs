//! The training of an arm: paths in lockstep, paths that share every step, or one dense network, with one interface.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::{MachineConfig, RunConfig};
use crate::experiment::checkpoint::TrainingState;
use crate::experiment::results::traffic::Exchanged;
use crate::experiment::training::every_step::EveryStep;
use crate::experiment::training::lockstep::Lockstep;
use crate::experiment::training::worker_pool::WorkerPool;
use crate::names::{PathId, Phase};
use crate::peer::create::dense::Dense;
use crate::peer::create::dense_trainer::Stopped;
use crate::peer::trainer::path_state::PathState;
use crate::seed::Seed;
use crate::text::TokenSet;
use crate::training::{BatchOrder, InnerTrainer};

/// One network on all the text.
pub struct DenseArm<'a> {
    run: &'a RunConfig,
    pool: WorkerPool,
    stop: &'a AtomicBool,
    now: Dense,
    tokens: u64,
}

/// The training of an arm.
pub enum TrainedArm<'a> {
    Paths(Box<Lockstep<'a>>),
    /// Paths that average gradients after each step.
    EveryStep(Box<EveryStep<'a>>),
    /// One network.
    Dense(Box<DenseArm<'a>>),
}

impl<'a> DenseArm<'a> {
    pub fn new(
        run: &'a RunConfig,
        machine: &MachineConfig,
        ancestor: Dense,
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Self> {
        let pool = WorkerPool::new(run, machine, 1)?;
        Ok(Self { run, pool, stop, now: ancestor, tokens: 0 })
    }

    /// Inner steps of the schedule on some text.
    fn train(&mut self, text: &TokenSet, steps: Range<u64>) -> anyhow::Result<()> {
        let (now, stop) = (&self.now, self.stop);
        let order = BatchOrder { seed: Seed::root(self.run.seed).child("dense batches"), sequences: text.len() };
        let work = |inner: &mut InnerTrainer, _| {
            inner.load(&now.levels)?;
            inner.restore(&now.inner)?;
            let mut tokens = 0;
            for step in steps.clone() {
                if stop.load(Ordering::Relaxed) {
                    return Err(Stopped.into());
                }
                tokens += inner.step(text, &order, step)?.tokens;
            }
            Ok((Dense { levels: inner.levels()?, frozen: Arc::default(), inner: inner.state()? }, tokens))
        };
        for (after, tokens) in self.pool.each(1, work, &mut || {})? {
            self.now = after;
            self.tokens += tokens;
        }
        Ok(())
    }
}

impl TrainedArm<'_> {
    /// A phase. `done` is called for each path.
    ///
    /// # Errors
    /// If a step fails or the user asks to stop.
    pub fn phase(&mut self, phase: Phase, shards: &[TokenSet], done: &mut dyn FnMut()) -> anyhow::Result<()> {
        match self {
            Self::Paths(lockstep) => lockstep.phase(phase, shards, done),
            Self::EveryStep(paths) => paths.phase(phase, shards, done),
            Self::Dense(dense) => {
                let training = &dense.run.training;
                let begin = training.ancestor_steps + phase.0 * training.inner_steps;
                dense.train(&shards[0], begin..begin + training.inner_steps)?;
                done();
                Ok(())
            }
        }
    }

    /// The parameters of a path, level by level.
    pub fn levels_of(&self, path: PathId) -> Vec<Vec<f32>> {
        match self {
            Self::Paths(lockstep) => lockstep.levels_of(path),
            Self::EveryStep(paths) => paths.levels_of(path),
            Self::Dense(dense) => dense.now.levels.clone(),
        }
    }

    /// The parameters of a path from its modules alone, level by level, if it keeps unsent changes.
    pub fn replicated_of(&self, path: PathId) -> Option<Vec<Vec<f32>>> {
        match self {
            Self::Paths(lockstep) if lockstep.keeps_unsent() => Some(lockstep.replicated_of(path)),
            Self::Paths(_) | Self::EveryStep(_) | Self::Dense(_) => None,
        }
    }

    /// The networks for training and scoring.
    pub fn pool(&mut self) -> &mut WorkerPool {
        match self {
            Self::Paths(lockstep) => lockstep.pool(),
            Self::EveryStep(paths) => paths.pool(),
            Self::Dense(dense) => &mut dense.pool,
        }
    }

    /// Parameters of all modules together.
    pub fn parameters(&self) -> u64 {
        match self {
            Self::Paths(lockstep) => lockstep.parameters(),
            Self::EveryStep(paths) => paths.parameters(),
            Self::Dense(dense) => dense.now.levels.iter().map(|level| level.len() as u64).sum(),
        }
    }

    /// Tokens trained on since the ancestor.
    pub fn tokens(&self) -> u64 {
        match self {
            Self::Paths(lockstep) => lockstep.tokens(),
            Self::EveryStep(paths) => paths.tokens(),
            Self::Dense(dense) => dense.tokens,
        }
    }

    /// Bytes and errors of outer steps, if there are any.
    pub fn exchanged(&self) -> Option<Exchanged> {
        match self {
            Self::Paths(lockstep) => Some(lockstep.exchanged()).filter(|both| both.up.values > 0),
            Self::EveryStep(_) | Self::Dense(_) => None,
        }
    }

    /// The state to resume from.
    pub fn checkpoint(&self) -> TrainingState {
        match self {
            Self::Paths(lockstep) => lockstep.checkpoint(),
            Self::EveryStep(paths) => paths.checkpoint(),
            Self::Dense(dense) => {
                let levels = dense.now.levels.iter();
                let modules = levels.map(|level| level.iter().flat_map(|value| value.to_le_bytes()).collect());
                let paths = vec![dense.now.state().encode()];
                TrainingState { tokens: dense.tokens, modules: modules.collect(), paths, ..TrainingState::default() }
            }
        }
    }

    /// Resumes from a checkpoint.
    pub fn resume(&mut self, checkpoint: &TrainingState) -> anyhow::Result<()> {
        match self {
            Self::Paths(lockstep) => lockstep.resume(checkpoint),
            Self::EveryStep(paths) => paths.resume(checkpoint),
            Self::Dense(dense) => {
                let sizes: Vec<usize> = dense.now.levels.iter().map(Vec::len).collect();
                let inner = match &checkpoint.paths[..] {
                    [] => dense.now.inner.clone(),
                    [state] => PathState::decode(state, &sizes)?.inner,
                    _ => anyhow::bail!("the checkpoint is of several paths"),
                };
                let found = checkpoint.modules.iter().map(|bytes| bytes.as_chunks().0);
                let levels: Vec<Vec<f32>> =
                    found.map(|values| values.iter().map(|value| f32::from_le_bytes(*value)).collect()).collect();
                if levels.iter().map(Vec::len).ne(sizes) {
                    anyhow::bail!("the checkpoint is of another model");
                }
                (dense.now, dense.tokens) = (Dense { levels, frozen: Arc::default(), inner }, checkpoint.tokens);
                Ok(())
            }
        }
    }
}
