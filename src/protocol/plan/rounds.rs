//! How far a module has come, and what part of the way an update is.
//!
//! A module's *round* is as much accepted weight as all its paths have together. In the synchronous mode every update is
//! a round, whoever is missing in it; in the asynchronous mode a round takes as many updates as it takes. After
//! `phases` rounds the module is done. Weight only grows, so a module that is done asynchronously stays so whatever
//! heavier chain comes.

use crate::config::OuterMode;
use crate::names::{ModuleId, Phase, Version};
use crate::protocol::RunPlan;
use crate::protocol::action::Portion;
use crate::protocol::reputation::norm_cap;
use crate::protocol::wire::message::{Counted, Head, distinct_paths};

impl RunPlan {
    /// The weight of all paths through a module.
    pub fn full_weight(&self, module: ModuleId) -> u64 {
        let weight = |path| u64::from(self.full_path_weight(path, Phase(0)));
        self.slots.through(module, Phase(0)).into_iter().map(weight).sum::<u64>().max(1)
    }

    /// Whether of several that train a path from one update only the first is counted, so that a path that two peers hold
    /// pulls no harder than others. Asynchronously each peer trains more than once from one update, by right.
    pub fn counts_once(&self) -> bool {
        self.mode == OuterMode::Synchronous
    }

    /// How many rounds a module has had.
    pub fn phase_of(&self, module: ModuleId, head: Head) -> Phase {
        Phase(match self.mode {
            OuterMode::Synchronous => head.version.0,
            OuterMode::Asynchronous => head.weight / self.full_weight(module),
        })
    }

    /// The router's version where a contribution to this version was trained: how often the text was to be shared out anew.
    pub fn router_at(&self, parent: Version) -> u32 {
        self.reshard.partition_point(|phase| *phase <= parent.0) as u32
    }

    /// Whether a module has had all its rounds.
    pub fn is_done(&self, module: ModuleId, head: Head) -> bool {
        self.phase_of(module, head).0 >= self.phases
    }

    /// Whether a contribution to this version is one that an update could ever count. What is trained from an
    /// asynchronous module that is done is not offered at all.
    pub fn can_count(&self, parent: Version) -> bool {
        self.mode == OuterMode::Asynchronous || parent.0 < self.phases
    }

    /// What the update to a version with these contributions is to its module. Its average is rescaled for the paths in it, or, where
    /// it is a part of a round, for those of the round: all its parts come to what a whole one does.
    pub fn portion(&self, module: ModuleId, target: Version, contributions: &[Counted]) -> Portion {
        let weight = contributions.iter().map(|counted| u64::from(counted.weight)).sum();
        let uncapped = contributions.iter().map(|counted| {
            let staleness = target.0.saturating_sub(1).saturating_sub(counted.parent.0);
            u64::from(self.weight(counted.path, (counted.parent, module), staleness))
        });
        let uncapped = uncapped.sum();
        let full_weight = match self.mode {
            OuterMode::Synchronous => weight,
            OuterMode::Asynchronous => self.full_weight(module),
        };
        Portion { paths: self.paths(module, contributions), weight, uncapped, full_weight }
    }

    fn paths(&self, module: ModuleId, contributions: &[Counted]) -> usize {
        match self.mode {
            OuterMode::Synchronous => distinct_paths(contributions),
            OuterMode::Asynchronous => self.slots.through(module, Phase(0)).len(),
        }
    }

    /// The module's running norm after an update with these contributions.
    pub(in crate::protocol) fn running_norm(&self, before: u32, module: ModuleId, contributions: &[Counted]) -> u32 {
        norm_cap::running_norm(before, contributions, self.paths(module, contributions))
    }

    /// The most weight that a module's chain can have, and the most updates.
    pub(in crate::protocol) fn is_plausible(
        &self,
        module: ModuleId,
        version: Version,
        weight: u64,
        most_in_update: u64,
    ) -> bool {
        match self.mode {
            OuterMode::Synchronous => version.0 <= self.phases && weight <= version.0.saturating_mul(most_in_update),
            // The last update finds the module not yet done, and no contribution weighs nothing.
            OuterMode::Asynchronous => {
                let before_the_last = self.phases.saturating_mul(self.full_weight(module));
                version.0 <= weight
                    && weight <= before_the_last.saturating_add(most_in_update)
                    && weight <= version.0.saturating_mul(most_in_update)
            }
        }
    }
}
