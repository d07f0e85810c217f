//! The paths held here: worker slots, leases, trainers, checkpoints, and contributions.

pub(super) mod contributions;
pub(super) mod evaluation;
pub(super) mod hand_off;
pub(super) mod search;
pub(super) mod trainer;
pub(super) mod trainers;
mod watchdog;

use std::collections::BTreeMap;

use self::hand_off::HandOffs;
use super::wire::message::Stage;
use crate::clock::Millis;
use crate::names::{BlobRef, PathId, Phase};
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;

/// A path that this node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    stage: Stage,
    /// When it was last trained. Several paths take turns, and the earliest goes first.
    last_trained: Millis,
    /// The approximate current phase, where paths are sampled anew.
    near: Phase,
    /// Whether its last phase was ended before half of it was trained.
    stub: bool,
}

impl Held {
    /// A path that was just taken, in about this phase.
    pub(super) fn new(stage: Stage, near: Phase) -> Self {
        Self { stage, last_trained: Millis(0), near, stub: false }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn last_trained(&self) -> Millis {
        self.last_trained
    }

    pub(super) fn near(&self) -> Phase {
        self.near
    }

    pub(super) fn is_stub(&self) -> bool {
        self.stub
    }
}

/// All paths held here, with their state.
#[derive(Debug, Default)]
pub(super) struct Paths {
    held: BTreeMap<PathId, Held>,
    trainers: BTreeMap<PathId, BlobRef>,
    /// Interrupted phases.
    checkpoints: BTreeMap<PathId, InnerCheckpoint>,
    /// Paths of the grid whose text was missing when they were to be trained here, and since when.
    textless: BTreeMap<PathId, Millis>,
    hand_offs: HandOffs,
}

impl Paths {
    pub(super) fn hand_offs(&self) -> &HandOffs {
        &self.hand_offs
    }

    pub(super) fn hand_offs_mut(&mut self) -> &mut HandOffs {
        &mut self.hand_offs
    }

    pub(super) fn held(&self) -> &BTreeMap<PathId, Held> {
        &self.held
    }

    pub(super) fn holds(&self, path: PathId) -> bool {
        self.held.contains_key(&path)
    }

    /// Whether this node is a standby of a path.
    pub(super) fn stands_by(&self, path: PathId) -> bool {
        self.held.get(&path).is_some_and(|held| held.stage == Stage::Standby)
    }

    /// How many of the paths are trained here, or about to be.
    pub(super) fn active(&self) -> usize {
        self.held.values().filter(|held| held.stage.is_active()).count()
    }

    pub(super) fn take(&mut self, path: PathId, held: Held) {
        self.held.insert(path, held);
    }

    /// Gives up a path. Returns whether it was held.
    pub(super) fn give_up(&mut self, path: PathId) -> bool {
        self.held.remove(&path).is_some()
    }

    /// Sets the stage of a path. Returns whether that changes anything.
    pub(super) fn set_stage(&mut self, path: PathId, stage: Stage) -> bool {
        let held = self.held.get_mut(&path).filter(|held| held.stage != stage);
        held.map(|held| held.stage = stage).is_some()
    }

    pub(super) fn set_near(&mut self, path: PathId, near: Phase) {
        if let Some(held) = self.held.get_mut(&path) {
            held.near = near;
        }
    }

    /// A phase of a path was trained. Returns whether the path is held here.
    pub(super) fn trained(&mut self, now: Millis, path: PathId, stub: bool) -> bool {
        let held = self.held.get_mut(&path);
        held.map(|held| (held.last_trained, held.stub) = (now, stub)).is_some()
    }

    /// The state of a path's trainer.
    pub(super) fn trainer(&self, path: PathId) -> Option<BlobRef> {
        self.trainers.get(&path).copied()
    }

    /// Sets the state of a path's trainer. Returns the previous one.
    pub(super) fn set_trainer(&mut self, path: PathId, trainer: BlobRef) -> Option<BlobRef> {
        self.trainers.insert(path, trainer)
    }

    pub(super) fn remove_trainer(&mut self, path: PathId) -> Option<BlobRef> {
        self.trainers.remove(&path)
    }

    pub(super) fn trainers(&self) -> impl Iterator<Item = (PathId, BlobRef)> {
        self.trainers.iter().map(|(path, trainer)| (*path, *trainer))
    }

    /// The checkpoint of a path's interrupted phase.
    pub(super) fn checkpoint(&self, path: PathId) -> Option<&InnerCheckpoint> {
        self.checkpoints.get(&path)
    }

    pub(super) fn set_checkpoint(&mut self, checkpoint: InnerCheckpoint) {
        self.checkpoints.insert(checkpoint.path, checkpoint);
    }

    pub(super) fn remove_checkpoint(&mut self, path: PathId) -> Option<InnerCheckpoint> {
        self.checkpoints.remove(&path)
    }

    pub(super) fn checkpoints(&self) -> impl Iterator<Item = &InnerCheckpoint> {
        self.checkpoints.values()
    }

    /// Since when the text of a path of the grid is missing.
    pub(super) fn textless_since(&self, drawn: PathId) -> Option<Millis> {
        self.textless.get(&drawn).copied()
    }

    pub(super) fn text_is_missing(&mut self, now: Millis, drawn: PathId) {
        self.textless.entry(drawn).or_insert(now);
    }

    pub(super) fn text_is_here(&mut self, drawn: PathId) {
        self.textless.remove(&drawn);
    }
}
