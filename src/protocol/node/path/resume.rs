//! Interrupted phases.
//!
//! From time to time the trainer stores a checkpoint in the middle of a phase. After a restart of the peer or of its
//! trainer, the phase resumes from there with the same base states, even if the modules have advanced meanwhile, as
//! long as its contribution can still be counted. Otherwise the checkpoint is dropped, and the path starts again from
//! the heads.

use crate::names::{BlobHash, BlobRef, PathId, Phase};
use crate::protocol::Node;
use crate::protocol::action::Action;
use crate::protocol::journal::record::Record;
use crate::protocol::module::offers::countable;
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;

/// The blobs that are needed to resume.
pub(in crate::protocol) fn blobs(checkpoint: &InnerCheckpoint) -> impl Iterator<Item = BlobHash> {
    checkpoint.start.iter().map(|(_, state)| state.hash).chain([checkpoint.blob.hash])
}

impl Node {
    /// The trainer has stored a checkpoint. It is dropped if the path was given up since.
    pub(in crate::protocol) fn checkpointed(&mut self, path: PathId, phase: Phase, steps: u64, blob: BlobRef) {
        self.progressed(path, phase, steps);
        let number = self.trainers.with(path, phase).filter(|_| self.paths.holds(path));
        let Some(training) = number.and_then(|number| self.trainers.get(number).training()) else {
            return self.release(blob.hash);
        };
        let checkpoint = InnerCheckpoint { path, phase, start: training.start.clone(), steps, blob };
        self.act(Action::Persist(Record::Checkpoint(checkpoint.clone())));
        self.release_checkpoint(path);
        self.paths.set_checkpoint(checkpoint);
    }

    /// The trainer has paused as requested. Another peer resumes the path, or this one does later.
    pub(in crate::protocol) fn paused(&mut self, path: PathId, phase: Phase, middle: Option<(u64, BlobRef)>) {
        if let Some((steps, blob)) = middle {
            self.checkpointed(path, phase, steps, blob);
        }
        if let Some(number) = self.trainers.with(path, phase) {
            self.done_training(number);
        }
    }

    /// The checkpoint from which a path can resume.
    pub(in crate::protocol) fn resumable(&self, path: PathId) -> Option<&InnerCheckpoint> {
        self.paths.checkpoint(path).filter(|checkpoint| self.counts_still(checkpoint) == Some(true))
    }

    /// Whether the contribution of the phase can still be counted; unknown while a module is being fetched.
    fn counts_still(&self, checkpoint: &InnerCheckpoint) -> Option<bool> {
        let mut open = 0;
        for (from, _) in &checkpoint.start {
            let head = self.modules.get(&from.module)?.head()?;
            if !self.plan.is_done(from.module, head) {
                open += 1;
                if !countable(head.version, from.version) {
                    return Some(false);
                }
            }
        }
        Some(open > 0)
    }

    /// Drops a checkpoint whose contribution cannot be counted any more.
    pub(in crate::protocol) fn abandon_stale_checkpoint(&mut self, path: PathId) {
        let stale = |checkpoint: &InnerCheckpoint| self.counts_still(checkpoint) == Some(false);
        if self.paths.checkpoint(path).is_some_and(stale) {
            self.act(Action::Persist(Record::Abandoned(path)));
            self.release_checkpoint(path);
        }
    }

    /// Drops the checkpoint of a path. It is not resumed here.
    pub(in crate::protocol) fn release_checkpoint(&mut self, path: PathId) {
        if let Some(checkpoint) = self.paths.remove_checkpoint(path) {
            blobs(&checkpoint).for_each(|blob| self.release(blob));
        }
    }

    /// The checkpoints of interrupted phases here.
    pub fn checkpoints(&self) -> impl Iterator<Item = &InnerCheckpoint> {
        self.paths.checkpoints()
    }
}
