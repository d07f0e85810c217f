//! What a node must know of its run.

pub(super) mod rounds;

use std::collections::BTreeMap;

use super::phase_from;
use crate::config::{OuterMode, Stagger};
use crate::names::{BlobRef, ModuleId, PathId, Phase, Version};
use crate::sampling::WorkerSlots;

/// What a node must know of its run; all of it follows from the manifest.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Modules and paths, and which of these are trained when. Where the protocol says path, it means a slot.
    pub slots: WorkerSlots,
    /// When owners make updates.
    pub mode: OuterMode,
    /// The rounds after which a module is done; in the synchronous mode, the version.
    pub phases: u64,
    /// Inner steps of a phase, at the most.
    pub inner_steps: u64,
    /// Where levels are brought in step one after the other.
    pub streaming: Option<Stagger>,
    /// Before these phases the text is shared out anew.
    pub reshard: Vec<u64>,
    /// A path's integer weight, from the size of its shard, at most [`limits::FULL_WEIGHT`].
    pub weights: Vec<u32>,
    /// The state of each module before the first update.
    pub genesis: BTreeMap<ModuleId, BlobRef>,
    /// For each level, the most bytes of a compressed outer gradient.
    pub offer_bytes: Vec<u64>,
    /// And of a compressed average.
    pub average_bytes: Vec<u64>,
    /// How many times as long as the running norm a contribution may be and count in full; with 0, any.
    pub norm_cap: f32,
    /// How many members count an update again, on average.
    pub audit_share: f64,
    /// Whether contributions may be clipped around a centre that follows from the state before an update.
    pub centred_clipping: bool,
}

impl RunPlan {
    pub(super) fn full_path_weight(&self, path: PathId, phase: Phase) -> u32 {
        self.weights.get(self.slots.path(path, phase).0 as usize).copied().unwrap_or(1)
    }

    /// What a contribution to a version weighs that is so many versions late. Delayed momentum makes up for lateness by
    /// itself.
    pub(super) fn weight(&self, path: PathId, (parent, module): (Version, ModuleId), staleness: u64) -> u32 {
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

    /// Whether a module is the run's router, to which paths may have the same to say.
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
