//! What a node must know of its run.

pub(super) mod rounds;

use std::collections::BTreeMap;

use super::phase_from;
use crate::config::{OuterMode, Stagger};
use crate::names::{BlobRef, ModuleId, PathId, Phase, Version};
use crate::sampling::WorkerSlots;

/// What a node must know of its run. All of it follows from the manifest.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Modules and paths, and which paths are trained in which phase. Where the protocol says path, it means a worker
    /// slot.
    pub slots: WorkerSlots,
    /// Synchronous or asynchronous outer updates.
    pub mode: OuterMode,
    /// Rounds after which a module is done. In the synchronous mode this is the last version.
    pub phases: u64,
    /// Inner steps of a phase, at most.
    pub inner_steps: u64,
    /// Streaming mode: levels synchronize one after the other.
    pub streaming: Option<Stagger>,
    /// The text is resharded before these phases.
    pub reshard: Vec<u64>,
    /// The integer weight of each path, from the size of its shard, at most [`limits::FULL_WEIGHT`].
    pub weights: Vec<u32>,
    /// The state of each module before the first update.
    pub genesis: BTreeMap<ModuleId, BlobRef>,
    /// The most bytes of a compressed outer gradient, per level.
    pub offer_bytes: Vec<u64>,
    /// The most bytes of a compressed average, per level.
    pub average_bytes: Vec<u64>,
    /// A contribution whose norm is at most this many times the running norm counts in full. 0 disables the cap.
    pub norm_cap: f32,
    /// How many members audit an update, on average.
    pub audit_share: f64,
    /// Whether contributions may be clipped around a centre that follows from the state before an update.
    pub centred_clipping: bool,
}

impl RunPlan {
    pub(super) fn full_path_weight(&self, path: PathId, phase: Phase) -> u32 {
        self.weights.get(self.slots.path(path, phase).0 as usize).copied().unwrap_or(1)
    }

    /// The weight of a contribution that is so many versions late. In asynchronous runs delayed momentum compensates
    /// for the lateness.
    pub fn weight(&self, path: PathId, (parent, module): (Version, ModuleId), staleness: u64) -> u32 {
        let phase = self.contributes_in(path, parent, module).unwrap_or(phase_from(parent));
        let full = self.full_path_weight(path, phase);
        match self.mode {
            OuterMode::Synchronous => {
                let halvings = u32::try_from(staleness).unwrap_or(u32::MAX);
                full.checked_shr(halvings).unwrap_or(0).max(1)
            }
            OuterMode::Asynchronous => full,
        }
    }

    /// Whether a module is the run's router. Different paths may contribute equal bytes to it.
    pub(super) fn is_router(&self, module: ModuleId) -> bool {
        !self.reshard.is_empty() && usize::from(module.level) + 1 == self.slots.grid().levels()
    }

    pub fn offer_bytes(&self, module: ModuleId) -> u64 {
        self.offer_bytes.get(usize::from(module.level)).copied().unwrap_or(0)
    }

    pub(super) fn average_bytes(&self, module: ModuleId) -> u64 {
        self.average_bytes.get(usize::from(module.level)).copied().unwrap_or(0)
    }
}
