//! A dense path, trained on all the text: the ancestor that every path starts from, and the control that paths are
//! compared with.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::path_state::PathState;
use super::turns::Turns;
use crate::config::{MachineConfig, RunConfig};
use crate::model::{initial_levels, open_device};
use crate::seed::Seed;
use crate::text::TokenSet;
use crate::training::{BatchOrder, InnerState, InnerTrainer, Score, evaluate};

/// A dense path: its parameters, level by level, and AdamW's part.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// Parameters, a flat buffer for each level.
    pub levels: Vec<Vec<f32>>,
    /// AdamW and the data cursor.
    pub inner: InnerState,
}

/// What it took to train.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effort {
    /// Tokens trained on.
    pub tokens: u64,
    /// Time spent.
    pub seconds: f64,
}

/// The user asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("stopped before it was done; the same command begins this part again")]
pub struct Stopped;

impl Dense {
    /// Before the first step: drawn from the run's seed.
    pub fn initial(run: &RunConfig) -> Self {
        let levels = initial_levels(&run.model, &run.levels, Seed::root(run.seed).child("initial parameters"));
        let sizes: Vec<usize> = levels.iter().map(Vec::len).collect();
        Self { inner: InnerState::fresh(&sizes), levels }
    }

    /// AdamW's part as a blob, without residuals, which a dense path has none of.
    pub fn state(&self) -> PathState {
        let residuals = self.levels.iter().map(|level| vec![0.0; level.len()]).collect();
        PathState { inner: self.inner.clone(), residuals }
    }
}

/// A trainer for dense paths, in turns with all others of the machine.
pub struct DenseTrainer<'a> {
    run: &'a RunConfig,
    turns: &'a Turns,
    stop: &'a AtomicBool,
    inner: InnerTrainer,
}

impl<'a> DenseTrainer<'a> {
    /// # Errors
    /// If the device cannot be opened or the model not be made.
    pub fn new(
        run: &'a RunConfig,
        machine: &MachineConfig,
        turns: &'a Turns,
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Self> {
        let device = open_device(machine.device)?;
        Ok(Self { run, turns, stop, inner: InnerTrainer::new(run, machine, device)? })
    }

    /// Trains from one step of the schedule up to another. `told` hears of the step, the loss and the tokens.
    ///
    /// # Errors
    /// If a step fails, or the user asks to stop.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long inner steps took")]
    pub fn train(
        &mut self,
        dense: Dense,
        text: &TokenSet,
        steps: std::ops::Range<u64>,
        told: &mut dyn FnMut(u64, f64),
    ) -> anyhow::Result<(Dense, Effort)> {
        self.load(&dense)?;
        self.inner.restore(&dense.inner)?;
        let seed = Seed::root(self.run.seed).child("dense batches");
        let order = BatchOrder { seed, sequences: text.len() };
        let mut effort = Effort::default();
        let mut step = steps.start;
        while step < steps.end {
            let _turn = self.turns.take();
            let began = Instant::now();
            while step < steps.end && began.elapsed().as_millis() < u128::from(super::turns::TURN_MS) {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Stopped.into());
                }
                let report = self.inner.step(text, &order, step)?;
                step += 1;
                effort.tokens += report.tokens;
                told(step - steps.start, report.loss);
            }
            effort.seconds += began.elapsed().as_secs_f64();
        }
        Ok((Dense { levels: self.inner.levels()?, inner: self.inner.state()? }, effort))
    }

    fn load(&mut self, dense: &Dense) -> anyhow::Result<()> {
        let levels: Vec<&[f32]> = dense.levels.iter().map(Vec::as_slice).collect();
        Ok(self.inner.load(&levels)?)
    }

    /// The score of a dense path on some text.
    ///
    /// # Errors
    /// If the text does not fit the model.
    pub fn score(&mut self, dense: &Dense, text: &TokenSet, token_bytes: &[u32]) -> anyhow::Result<Score> {
        self.load(dense)?;
        let _turn = self.turns.take();
        Ok(evaluate(self.inner.model(), text, self.run.routing.prefix_tokens, token_bytes)?)
    }

    /// The features by which documents are routed: row-major, a row for each prefix.
    ///
    /// # Errors
    /// If a prefix does not fit the model, or the features are not finite.
    pub fn features(&mut self, dense: &Dense, prefixes: &[&[u32]]) -> anyhow::Result<Vec<f32>> {
        self.load(dense)?;
        let _turn = self.turns.take();
        let mut failed = None;
        let model = self.inner.model();
        let features = crate::routing::features_of(prefixes, self.run.model.width, &mut |batch| {
            model.prefix_features(batch).unwrap_or_else(|error| {
                failed.get_or_insert(error);
                Vec::new()
            })
        });
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(features?),
        }
    }
}
