//! Identity of a training, independent of arm and experiment: no training is repeated, nor is the common beginning of
//! two arms.

use std::collections::BTreeSet;

use super::plan::{Arm, Experiment};
use crate::config::{MomentFormat, RunConfig};
use crate::experiment::checkpoint::ArmCheckpoint;
use crate::experiment::context::{ExperimentContext, Tokens, hash_of};
use crate::names::BlobHash;

/// An arm with a seed, on some text.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// The machine and the common state.
    pub context: &'a ExperimentContext<'a>,
    pub experiment: &'a Experiment,
    pub arm: &'a Arm,
    pub seed: u64,
    pub tokens: &'a Tokens,
}

impl Identity<'_> {
    /// Hash of its training up to a phase, with the resharding before it.
    fn until(&self, phase: u64) -> serde_json::Result<BlobHash> {
        let Self { context, experiment, arm, seed, tokens } = self;
        let run = RunConfig { name: String::new(), ..arm.seeded(*seed) };
        let reshard: Vec<u64> = arm.reshard.iter().copied().filter(|other| *other < phase).collect();
        let slice = context.slice_share(experiment, tokens);
        let text = (tokens.hash, slice, arm.text_share);
        // The best phase of a path depends on the scored tokens.
        let hash = hash_of(&(run, arm.kind, reshard, text, context.machine.precision, experiment.score_from))?;
        match context.machine.moments {
            MomentFormat::F32 => Ok(hash),
            moments => hash_of(&(hash, moments)),
        }
    }

    /// Hash of its training.
    pub fn training(&self) -> serde_json::Result<BlobHash> {
        self.until(u64::MAX)
    }

    /// Hash of its training and scoring.
    pub fn outcome(&self) -> serde_json::Result<BlobHash> {
        hash_of(&(self.training()?, &self.arm.route_every, self.experiment.honest_tokens))
    }

    /// Hash of its state before a phase, as long as it has the same beginning as other arms.
    pub fn before(&self, phase: u64) -> serde_json::Result<BlobHash> {
        hash_of(&(self.until(phase)?, phase))
    }

    /// Checkpoints for other arms of the experiment, and the phases before which they differ.
    pub fn branch_points(&self) -> serde_json::Result<Vec<(u64, ArmCheckpoint)>> {
        let mut phases = BTreeSet::new();
        for arm in self.experiment.arms.iter().filter(|arm| arm.seeds.contains(&self.seed)) {
            let other = Self { arm, ..*self };
            for phase in &arm.reshard {
                if other.training()? != self.training()? && other.before(*phase)? == self.before(*phase)? {
                    phases.insert(*phase);
                }
            }
        }
        phases.into_iter().map(|phase| Ok((phase, self.context.checkpoint(self.before(phase)?)))).collect()
    }
}
