//! What a node must know of its run.

pub(super) mod rounds;
mod weights;

use std::collections::BTreeMap;

use crate::config::{OuterMode, Stagger};
use crate::names::{BlobRef, ModuleId};
use crate::protocol::limits::{MAX_INLINE, MAX_OFFERS, MAX_OFFERS_OF_MANY};
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
    /// Whether each update counts one whole phase of every path through the module, however long that takes.
    pub deterministic: bool,
}

impl RunPlan {
    /// Whether a contribution can come from so many inner steps.
    pub(super) fn can_make(&self, steps: u32) -> bool {
        (1..=self.inner_steps).contains(&u64::from(steps))
    }

    /// Whether a module is the run's router. Different paths may contribute equal bytes to it.
    pub(super) fn is_router(&self, module: ModuleId) -> bool {
        !self.reshard.is_empty() && usize::from(module.level) + 1 == self.slots.grid().levels()
    }

    /// How many worker slots go through a module, at most.
    fn slots_through(&self, module: ModuleId) -> usize {
        let level = usize::from(module.level);
        let grid = self.slots.grid();
        let experts = if level < grid.levels() { grid.experts(level).max(1) } else { 1 };
        self.slots.count().div_ceil(experts) as usize
    }

    /// Whether an update of a module may have more contributions than it can hold itself.
    pub(super) fn has_many(&self, module: ModuleId) -> bool {
        self.slots_through(module) > MAX_INLINE
    }

    /// How many offers of a module are remembered: four versions of all its worker slots.
    pub(super) fn most_offers(&self, module: ModuleId) -> usize {
        (4 * self.slots_through(module)).clamp(MAX_OFFERS, MAX_OFFERS_OF_MANY)
    }

    pub fn offer_bytes(&self, module: ModuleId) -> u64 {
        self.offer_bytes.get(usize::from(module.level)).copied().unwrap_or(0)
    }

    pub(super) fn average_bytes(&self, module: ModuleId) -> u64 {
        self.average_bytes.get(usize::from(module.level)).copied().unwrap_or(0)
    }
}
