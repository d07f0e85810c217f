//! Phases that were left in the middle.
//!
//! The trainer says from time to time what it could go on from. After a restart, of the peer or of its trainer, the
//! phase goes on from there and from the same states, if what it will contribute can still be counted, even where the
//! modules have moved on meanwhile; if not, it is let go, and the path begins anew from the heads.

use crate::names::{BlobHash, BlobRef, PathId, Phase};
use crate::protocol::Node;
use crate::protocol::action::Action;
use crate::protocol::journal::record::Record;
use crate::protocol::module::offers::countable;
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;

/// What is needed to go on from it.
pub(in crate::protocol) fn blobs(checkpoint: &InnerCheckpoint) -> impl Iterator<Item = BlobHash> {
    checkpoint.start.iter().map(|(_, state)| state.hash).chain([checkpoint.blob.hash])
}

impl Node {
    /// The trainer has stored the middle of a phase. One of a path that was given away since is of no use here.
    pub(in crate::protocol) fn checkpointed(&mut self, path: PathId, phase: Phase, steps: u64, blob: BlobRef) {
        self.progressed(path, phase, steps);
        let training = self.trainer.training().filter(|training| (training.path, training.phase) == (path, phase));
        let Some(training) = training.filter(|training| self.paths.holds(training.path)) else {
            return self.release(blob.hash);
        };
        let checkpoint = InnerCheckpoint { path, phase, start: training.start.clone(), steps, blob };
        self.act(Action::Persist(Record::Checkpoint(checkpoint.clone())));
        self.release_checkpoint(path);
        self.paths.set_checkpoint(checkpoint);
    }

    /// The trainer has stopped as it was asked to: another peer goes on with the path, or this one does later.
    pub(in crate::protocol) fn paused(&mut self, path: PathId, phase: Phase, middle: Option<(u64, BlobRef)>) {
        if let Some((steps, blob)) = middle {
            self.checkpointed(path, phase, steps, blob);
        }
        if self.trainer.in_hand() == Some((path, phase)) {
            self.done_training();
        }
    }

    /// Where a path can go on in the middle of a phase.
    pub(in crate::protocol) fn resumable(&self, path: PathId) -> Option<&InnerCheckpoint> {
        self.paths.checkpoint(path).filter(|checkpoint| self.counts_still(checkpoint) == Some(true))
    }

    /// Whether what the phase will contribute can be counted. Not known while a module is still being fetched.
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

    /// A phase in the middle that cannot be counted any more is given up.
    pub(in crate::protocol) fn abandon_stale_checkpoint(&mut self, path: PathId) {
        let stale = |checkpoint: &InnerCheckpoint| self.counts_still(checkpoint) == Some(false);
        if self.paths.checkpoint(path).is_some_and(stale) {
            self.act(Action::Persist(Record::Abandoned(path)));
            self.release_checkpoint(path);
        }
    }

    /// Nobody here goes on from it.
    pub(in crate::protocol) fn release_checkpoint(&mut self, path: PathId) {
        if let Some(checkpoint) = self.paths.remove_checkpoint(path) {
            blobs(&checkpoint).for_each(|blob| self.release(blob));
        }
    }

    /// The phases that were left in the middle here.
    pub fn checkpoints(&self) -> impl Iterator<Item = &InnerCheckpoint> {
        self.paths.checkpoints()
    }
}
