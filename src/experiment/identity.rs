//! What tells one training from another, whatever arm or experiment it stands in: what was trained before is not trained
//! again, nor is the part that two arms have in common.

use std::collections::BTreeSet;

use super::plan::{Arm, Experiment};
use crate::config::RunConfig;
use crate::experiment::checkpoint::ArmCheckpoint;
use crate::experiment::context::{ExperimentContext, Tokens, hash_of};
use crate::names::BlobHash;

/// How text is shared out anew.
const RESHARDING: &str = "near to the router before; who is nobody's best keeps what it has";

/// How transducers are taught: what was scored in another way is scored anew.
const TRANSDUCER_TRAINING: &str = "homes, then votes";

/// An arm with a seed, on some text.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// Whose text is parted, and by whose machine it is trained.
    pub context: &'a ExperimentContext<'a>,
    /// What the arm stands in.
    pub experiment: &'a Experiment,
    pub arm: &'a Arm,
    pub seed: u64,
    /// The text.
    pub tokens: &'a Tokens,
}

impl Identity<'_> {
    /// Names its training up to a phase, with what is done to share out the text before it.
    fn until(&self, phase: u64) -> serde_json::Result<BlobHash> {
        let Self { context, experiment, arm, seed, tokens } = self;
        let run = RunConfig { name: String::new(), ..arm.seeded(*seed) };
        let reshard: Vec<u64> = arm.reshard.iter().copied().filter(|other| *other < phase).collect();
        let slice = context.slice_share(experiment, tokens);
        let text = (tokens.hash, slice, arm.text_share);
        let shared_anew = (!reshard.is_empty()).then_some(RESHARDING);
        // When a path is at its best depends on what is scored.
        let scored = (experiment.score_from > 0).then_some(("from", experiment.score_from));
        let training = (run, arm.kind, reshard, text, context.machine.precision);
        match (scored, shared_anew) {
            (None, None) => hash_of(&training),
            (scored, None) => hash_of(&(training, scored)),
            (scored, anew) => hash_of(&(training, scored, anew)),
        }
    }

    /// Names its training.
    pub fn training(&self) -> serde_json::Result<BlobHash> {
        self.until(u64::MAX)
    }

    /// Names its training and how it is scored.
    pub fn outcome(&self) -> serde_json::Result<BlobHash> {
        let scored = (self.training()?, &self.arm.route_every);
        let known = match self.experiment.honest_tokens {
            0 => hash_of(&scored),
            count => hash_of(&(&scored, "honest tokens", count)),
        }?;
        if scored.1.is_empty() { Ok(known) } else { hash_of(&(known, TRANSDUCER_TRAINING)) }
    }

    /// Names what it is before a phase, as long as it has done what any arm of the same name has.
    pub fn before(&self, phase: u64) -> serde_json::Result<BlobHash> {
        hash_of(&(self.until(phase)?, phase))
    }

    /// Where it is kept for other arms of the experiment, and before which phases they part: up to there they are the same
    /// training.
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
