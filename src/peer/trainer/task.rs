//! Tasks of the driver for the trainer, and the trainer's reports.

use crate::names::{BlobRef, ModuleId, PathId, Phase};
use crate::protocol::journal::record::Finished;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::{Part, Resume};
use crate::training::Score;

/// A phase of a path, or a part of one.
#[derive(Clone, Debug)]
pub struct PhaseTask {
    pub path: PathId,
    /// The path of the grid in this phase; it changes if paths are sampled.
    pub drawn: PathId,
    /// The number of its worker slot among those of the path.
    pub trainer_number: u32,
    pub phase: Phase,
    /// The part of the phase.
    pub part: Part,
    /// Each module and its state, bottom first.
    pub start: Vec<(BaseVersion, BlobRef)>,
    /// The path's trainer state after its last phase here.
    pub trainer: Option<BlobRef>,
    /// Where to resume.
    pub resume: Option<Resume>,
}

/// A task.
#[derive(Debug)]
pub enum Task {
    Train(PhaseTask),
    /// The score of a path's checkpoint on its held-out text.
    Score {
        path: PathId,
        /// The path of the grid.
        drawn: PathId,
        phase: Phase,
        /// Each module's state, bottom first.
        states: Vec<(ModuleId, BlobRef)>,
    },
    /// The score of a path on its held-out and its test text.
    Evaluate {
        path: PathId,
        /// The path of the grid in the last phase.
        drawn: PathId,
        /// Each module's state, bottom first.
        states: Vec<(ModuleId, BlobRef)>,
        /// The path's trainer state after its last phase.
        trainer: Option<BlobRef>,
    },
}

impl Task {
    /// The path that it is about.
    pub fn path(&self) -> PathId {
        match self {
            Self::Train(PhaseTask { path, .. }) | Self::Score { path, .. } | Self::Evaluate { path, .. } => *path,
        }
    }

    /// The checkpoint to score, if that is the task.
    pub fn scores(&self) -> Option<(PathId, Phase)> {
        match self {
            Self::Score { path, phase, .. } => Some((*path, *phase)),
            Self::Train(_) | Self::Evaluate { .. } => None,
        }
    }
}

/// A report of the trainer.
#[derive(Debug)]
pub enum TrainerReport {
    /// It works on a phase, or waits for the device.
    Alive {
        path: PathId,
        phase: Phase,
        /// Inner steps so far.
        steps: u64,
    },
    /// Steps were made.
    Step(Stepped),
    /// An inner checkpoint is in the store.
    Checkpointed {
        path: PathId,
        phase: Phase,
        /// Inner steps so far.
        steps: u64,
        /// The trainer state after them.
        blob: BlobRef,
    },
    /// Memory ran out: what is done about it. The task goes on.
    ShortOfMemory(String),
    /// A phase was paused on request.
    Paused {
        path: PathId,
        phase: Phase,
        /// Inner steps so far and the trainer state, if any step was made since the request.
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
        /// The path of the grid in the last phase.
        drawn: PathId,
        /// On the shard's held-out slice.
        held_out: Score,
        /// On the test text routed to it.
        test: Score,
        /// With early stopping, its final trainer state, and whether the best parameters differ from those of its
        /// modules. The scores are then those of the best ones.
        reviewed: Option<(BlobRef, bool)>,
    },
    /// A task failed; the peer cannot continue.
    Failed(anyhow::Error),
}

/// The progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepped {
    pub path: PathId,
    pub phase: Phase,
    /// Position in the phase, in inner steps of the run, though fewer may be made here.
    pub step: u64,
    /// Mean loss of the last step, in nats a token.
    pub loss: f64,
    /// Euclidean norm of the last step's gradient, before it is clipped.
    pub gradient_norm: f64,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// Tokens trained on since the last report.
    pub tokens: u64,
    /// Time spent on them, without waiting for the device.
    pub seconds: f64,
}
