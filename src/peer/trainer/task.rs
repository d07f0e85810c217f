//! What the driver asks of the trainer, and what the trainer reports.

use crate::names::{BlobRef, ModuleId, PathId, Phase};
use crate::protocol::journal::record::Finished;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::{Part, Resume};
use crate::training::Score;

/// A phase of a path, or a part of one.
#[derive(Clone, Debug)]
pub struct PhaseTask {
    pub path: PathId,
    /// The path of the grid that it stands for in this phase: another one where these are sampled.
    pub drawn: PathId,
    pub phase: Phase,
    /// What of it.
    pub part: Part,
    /// Each module and its state, bottom first.
    pub start: Vec<(BaseVersion, BlobRef)>,
    /// The path's trainer after its last phase here.
    pub trainer: Option<BlobRef>,
    /// Where to go on.
    pub resume: Option<Resume>,
}

/// What the trainer is asked to do.
#[derive(Debug)]
pub enum Task {
    /// A phase of a path.
    Train(PhaseTask),
    /// The score of a path's checkpoint on its held-out text.
    Score {
        path: PathId,
        /// The path of the grid that it stands for.
        drawn: PathId,
        phase: Phase,
        /// Each module's state, bottom first.
        states: Vec<(ModuleId, BlobRef)>,
    },
    /// The score of a path on its held-out and its test text.
    Evaluate {
        path: PathId,
        /// The path of the grid that it stands for in the last phase.
        drawn: PathId,
        /// Each module's state, bottom first.
        states: Vec<(ModuleId, BlobRef)>,
        /// The path's trainer after its last phase.
        trainer: Option<BlobRef>,
    },
}

impl Task {
    /// The checkpoint that is to be scored, if that is what is to be done.
    pub fn scores(&self) -> Option<(PathId, Phase)> {
        match self {
            Self::Score { path, phase, .. } => Some((*path, *phase)),
            Self::Train(_) | Self::Evaluate { .. } => None,
        }
    }
}

/// What the trainer has to say.
#[derive(Debug)]
pub enum TrainerReport {
    /// It works at a phase, or waits for its turn to.
    Alive {
        path: PathId,
        phase: Phase,
        /// Inner steps made in it.
        steps: u64,
    },
    /// Steps were made.
    Step(Stepped),
    /// The middle of a phase is in the store.
    Checkpointed {
        path: PathId,
        phase: Phase,
        /// Inner steps made in it.
        steps: u64,
        /// The trainer after them.
        blob: BlobRef,
    },
    /// A phase was stopped in the middle, as was asked for.
    Paused {
        path: PathId,
        phase: Phase,
        /// Inner steps made in it and the trainer after them, if any were made since it was asked for.
        middle: Option<(u64, BlobRef)>,
    },
    /// A phase is done.
    Trained(Finished),
    /// A checkpoint has its score, or could not be scored.
    Scored {
        path: PathId,
        phase: Phase,
        /// On the shard's held-out slice.
        held_out: Option<Score>,
    },
    /// A path has its scores.
    Evaluated {
        path: PathId,
        /// The path of the grid that it stands for in the last phase.
        drawn: PathId,
        /// On the shard's held-out slice.
        held_out: Score,
        /// On the test text routed to it.
        test: Score,
        /// With early stopping, its trainer now that it is over, and whether it was best with other parameters than its
        /// modules have in the end: the scores are those then.
        reviewed: Option<(BlobRef, bool)>,
    },
    /// A task failed; the peer cannot go on.
    Failed(anyhow::Error),
}

/// Where a phase stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepped {
    pub path: PathId,
    pub phase: Phase,
    /// How far in it, of the run's inner steps, though fewer may be made here.
    pub step: u64,
    /// Mean loss of the last step, in nats a token.
    pub loss: f64,
    /// Tokens trained on since the last report.
    pub tokens: u64,
    /// Time spent computing them, turns of others not counted.
    pub seconds: f64,
}
