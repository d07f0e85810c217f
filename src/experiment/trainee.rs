//! What an arm trains: paths in lockstep, or one dense network. Both are asked the same.

use std::ops::Range;

use super::lockstep::{Kept, Lockstep};
use crate::model::PathModel;
use crate::names::{PathId, Phase};
use crate::peer::dense::Dense;
use crate::peer::path_state::PathState;
use crate::seed::Seed;
use crate::text::TokenSet;
use crate::training::{BatchOrder, InnerTrainer};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::{MachineConfig, RunConfig};
use crate::model::open_device;
use crate::peer::dense_trainer::Stopped;

/// One network on all the text.
pub struct DenseTrainee<'a> {
    run: &'a RunConfig,
    inner: InnerTrainer,
    stop: &'a AtomicBool,
    now: Dense,
    tokens: u64,
}

/// What an arm trains.
pub enum Trainee<'a> {
    /// Paths.
    Paths(Box<Lockstep<'a>>),
    /// One network.
    Dense(Box<DenseTrainee<'a>>),
}

impl<'a> DenseTrainee<'a> {
    /// # Errors
    /// If the device cannot be opened or the model not be made.
    pub fn new(
        run: &'a RunConfig,
        machine: &MachineConfig,
        ancestor: Dense,
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Self> {
        let inner = InnerTrainer::new(run, machine, open_device(machine.device)?)?;
        Ok(Self { run, inner, stop, now: ancestor, tokens: 0 })
    }

    /// Inner steps of the schedule on some text; their mean loss.
    fn train(&mut self, text: &TokenSet, steps: Range<u64>) -> anyhow::Result<f64> {
        load(&mut self.inner, &self.now.levels)?;
        self.inner.restore(&self.now.inner)?;
        let seed = Seed::root(self.run.seed).child("dense batches");
        let order = BatchOrder { seed, sequences: text.len() };
        let (count, mut loss, mut tokens) = (steps.end - steps.start, 0.0, 0);
        for step in steps {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stopped.into());
            }
            let report = self.inner.step(text, &order, step)?;
            loss += report.loss / count as f64;
            tokens += report.tokens;
        }
        self.tokens += tokens;
        self.now = Dense { levels: self.inner.levels()?, inner: self.inner.state()? };
        Ok(loss)
    }
}

impl Trainee<'_> {
    /// A phase. `told` hears of each path's mean loss.
    ///
    /// # Errors
    /// If a step fails, or the user asks to stop.
    pub fn phase(
        &mut self,
        phase: Phase,
        shards: &[TokenSet],
        told: &mut dyn FnMut(PathId, f64),
    ) -> anyhow::Result<()> {
        match self {
            Self::Paths(lockstep) => lockstep.phase(phase, shards, told),
            Self::Dense(dense) => {
                let training = &dense.run.training;
                let begin = training.ancestor_steps + phase.0 * training.inner_steps;
                let loss = dense.train(&shards[0], begin..begin + training.inner_steps)?;
                told(PathId(0), loss);
                Ok(())
            }
        }
    }

    /// The parameters of a path, level by level.
    pub fn levels_of(&self, path: PathId) -> Vec<Vec<f32>> {
        match self {
            Self::Paths(lockstep) => lockstep.levels_of(path),
            Self::Dense(dense) => dense.now.levels.clone(),
        }
    }

    /// A network with these parameters.
    ///
    /// # Errors
    /// If they are not this model's.
    pub fn playing(&mut self, levels: &[Vec<f32>]) -> anyhow::Result<&PathModel> {
        match self {
            Self::Paths(lockstep) => lockstep.playing(levels),
            Self::Dense(dense) => {
                load(&mut dense.inner, levels)?;
                Ok(dense.inner.model())
            }
        }
    }

    /// Parameters of all modules together.
    pub fn parameters(&self) -> u64 {
        match self {
            Self::Paths(lockstep) => lockstep.parameters(),
            Self::Dense(dense) => dense.now.levels.iter().map(|level| level.len() as u64).sum(),
        }
    }

    /// Tokens trained on since the ancestor.
    pub fn tokens(&self) -> u64 {
        match self {
            Self::Paths(lockstep) => lockstep.tokens(),
            Self::Dense(dense) => dense.tokens,
        }
    }

    /// What must be kept to go on.
    pub fn kept(&self) -> Kept {
        match self {
            Self::Paths(lockstep) => lockstep.kept(),
            Self::Dense(dense) => {
                let levels = dense.now.levels.iter();
                let modules = levels.map(|level| level.iter().flat_map(|value| value.to_le_bytes()).collect());
                Kept { tokens: dense.tokens, modules: modules.collect(), paths: vec![dense.now.state().encode()] }
            }
        }
    }

    /// Goes on from there.
    ///
    /// # Errors
    /// If it is another run's.
    pub fn resume(&mut self, kept: &Kept) -> anyhow::Result<()> {
        match self {
            Self::Paths(lockstep) => lockstep.resume(kept),
            Self::Dense(dense) => {
                let sizes: Vec<usize> = dense.now.levels.iter().map(Vec::len).collect();
                let [state] = &kept.paths[..] else { anyhow::bail!("what was kept is of several paths") };
                let inner = PathState::decode(state, &sizes)?.inner;
                let found = kept.modules.iter().map(|bytes| bytes.as_chunks().0);
                let levels: Vec<Vec<f32>> =
                    found.map(|values| values.iter().map(|value| f32::from_le_bytes(*value)).collect()).collect();
                if levels.iter().map(Vec::len).ne(sizes) {
                    anyhow::bail!("what was kept is of another model");
                }
                (dense.now, dense.tokens) = (Dense { levels, inner }, kept.tokens);
                Ok(())
            }
        }
    }
}

fn load(inner: &mut InnerTrainer, levels: &[Vec<f32>]) -> anyhow::Result<()> {
    let levels: Vec<&[f32]> = levels.iter().map(Vec::as_slice).collect();
    Ok(inner.load(&levels)?)
}
