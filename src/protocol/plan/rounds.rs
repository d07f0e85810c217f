//! How far a module has come, and what share of a round an update is.
//!
//! A module's *round* is as much accepted weight as all its paths have together. In the synchronous mode every update
//! is a round, even if paths are missing in it. In the asynchronous mode a round takes as many updates as it needs.
//! After `phases` rounds the module is done. A switch of chains only increases the weight, so a module that is done
//! asynchronously stays done.

use std::collections::BTreeSet;

use crate::config::OuterMode;
use crate::names::{ModuleId, PathId, Phase, Version};
use crate::protocol::RunPlan;
use crate::protocol::action::Portion;
use crate::protocol::reputation::norm_cap;
use crate::protocol::wire::message::{Counted, Head, Update};

impl RunPlan {
    /// The total weight of all paths through a module.
    pub fn full_weight(&self, module: ModuleId) -> u64 {
        let weight = |path| u64::from(self.full_path_weight(path, Phase(0)));
        self.slots.first_trainers_through(module, Phase(0)).into_iter().map(weight).sum::<u64>().max(1)
    }

    /// Whether only the first of several contributions of a path from one update counts, so that a path with two
    /// holders has no more influence than others. In asynchronous runs each holder may train more than once from one
    /// update.
    pub fn counts_once(&self) -> bool {
        self.mode == OuterMode::Synchronous
    }

    /// How many rounds a module has completed.
    pub fn phase_of(&self, module: ModuleId, head: Head) -> Phase {
        Phase(match self.mode {
            OuterMode::Synchronous => head.version.0,
            OuterMode::Asynchronous => head.weight / self.full_weight(module),
        })
    }

    /// The router's version for training from this version: how often the text was to be resharded.
    pub fn router_at(&self, parent: Version) -> u32 {
        self.reshard.partition_point(|phase| *phase <= parent.0) as u32
    }

    /// Whether a module has completed all its rounds.
    pub fn is_done(&self, module: ModuleId, head: Head) -> bool {
        self.phase_of(module, head).0 >= self.phases
    }

    /// Whether an update follows the one with which its module is done. Only the owner of a run that was amended makes
    /// such an update.
    pub(in crate::protocol) fn is_after_the_end(&self, update: &Update) -> bool {
        let before = match self.mode {
            OuterMode::Synchronous => update.version.0.saturating_sub(1),
            OuterMode::Asynchronous => {
                let own = update.contributions.iter().map(|counted| u64::from(counted.weight)).sum();
                update.weight.saturating_sub(own) / self.full_weight(update.module)
            }
        };
        before >= self.phases
    }

    /// Whether an update could ever count a contribution with this base version. In asynchronous runs, what is trained
    /// from a module that is done is not offered at all.
    pub fn can_count(&self, parent: Version) -> bool {
        self.mode == OuterMode::Asynchronous || parent.0 < self.phases
    }

    /// The portion of an update with these contributions. Its average is rescaled for its paths or, where it is a part of
    /// a round, for the paths of the round. All parts of a round then add up to a whole one.
    pub fn portion(&self, module: ModuleId, contributions: &[Counted]) -> Portion {
        let weight = contributions.iter().map(|counted| u64::from(counted.weight)).sum();
        let uncapped = contributions.iter().map(|counted| u64::from(counted.uncapped)).sum();
        let full_weight = match self.mode {
            OuterMode::Synchronous => weight,
            OuterMode::Asynchronous => self.full_weight(module),
        };
        Portion { paths: self.paths(module, contributions), weight, uncapped, full_weight }
    }

    fn paths(&self, module: ModuleId, contributions: &[Counted]) -> usize {
        match self.mode {
            OuterMode::Synchronous => {
                let paths = contributions.iter().map(|counted| self.slots.first_trainer(counted.path));
                paths.collect::<BTreeSet<PathId>>().len()
            }
            OuterMode::Asynchronous => self.slots.first_trainers_through(module, Phase(0)).len(),
        }
    }

    /// The module's running norm after an update with these contributions.
    pub fn running_norm(&self, before: u32, module: ModuleId, contributions: &[Counted]) -> u32 {
        norm_cap::running_norm(before, contributions, self.paths(module, contributions))
    }

    /// Whether a chain of this many updates can have this weight.
    pub(in crate::protocol) fn is_plausible(
        &self,
        module: ModuleId,
        version: Version,
        weight: u64,
        most_in_update: u64,
    ) -> bool {
        match self.mode {
            OuterMode::Synchronous => version.0 <= self.phases && weight <= version.0.saturating_mul(most_in_update),
            // Before the last update the module was not yet done, and every contribution has a positive weight.
            OuterMode::Asynchronous => {
                let before_the_last = self.phases.saturating_mul(self.full_weight(module));
                version.0 <= weight
                    && weight <= before_the_last.saturating_add(most_in_update)
                    && weight <= version.0.saturating_mul(most_in_update)
            }
        }
    }
}
