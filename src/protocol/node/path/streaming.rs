//! Streaming mode: levels synchronize one after the other (Streaming DiLoCo, Douillard et al., 2025, section 2.3).
//!
//! A phase has as many parts as there are levels. After each part the outer gradient of one level is offered against
//! the path's base version, and the inner steps continue at once with the next part. The level's update is mixed into
//! the path's parameters between two parts, always after the same number of parts. The result of a run therefore does
//! not depend on how long updates take. A path only waits if the update is not there by then.
//!
//! The base versions of a path follow from its finished parts here. Without any, they are the heads.

use std::ops::Range;

use crate::config::Stagger;
use crate::names::{BlobRef, ModuleId, PathId, Phase, Version};
use crate::protocol::action::Part;
use crate::protocol::journal::record::Finished;
use crate::protocol::node::path::phase::Readiness;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::wire::message::{Head, UpdateHash};
use crate::protocol::{Node, Replica, RunPlan};

impl RunPlan {
    /// The part of a phase that is trained at once from these modules: all of it, or the part that a level ends.
    fn part(&self, modules: Vec<ModuleId>, level: usize, all_steps: u64) -> Part {
        let Some(stagger) = &self.streaming else { return Part::whole(all_steps, modules) };
        let Range { start: first, end: last } = stagger.steps(level);
        Part { first, last, of: all_steps, due: modules.get(level).copied().into_iter().collect() }
    }
}

impl Node {
    /// The next part to train from these modules: the rest of the part that contains this many steps, or the part that
    /// is due.
    pub(in crate::protocol) fn next_part(
        &self,
        path: PathId,
        modules: Vec<ModuleId>,
        made: Option<u64>,
        all_steps: u64,
    ) -> Part {
        let level = match (&self.plan.streaming, made) {
            (Some(stagger), Some(made)) => stagger.level_at(made),
            (Some(_), None) => self.due_next(path).map_or(0, |(_, level)| usize::from(level)),
            (None, _) => 0,
        };
        self.plan.part(modules, level, all_steps)
    }

    /// Streaming mode: what a path can train, or waits for.
    pub(in crate::protocol) fn streams(&self, path: PathId, stagger: &Stagger) -> Readiness {
        let modules = self.modules_of(path);
        let Some((version, level)) = self.due_next(path) else { return Readiness::NotUpdated(self.open(modules)) };
        let now = stagger.number(version, level);
        let waits = |module: &ModuleId| {
            let offered = self.head_of(*module).filter(|head| self.has_contributed(path, *module, head.update));
            offered.is_some_and(|head| now >= stagger.mixed_at(head.version, module.level))
        };
        let waiting: Vec<ModuleId> = modules.into_iter().filter(waits).collect();
        if waiting.is_empty() { Readiness::Ready(Phase(version.0)) } else { Readiness::NotUpdated(waiting) }
    }

    /// The base states of a path's next part. For each module this is the head. If the path has contributed to its base
    /// version there and that update is not to be mixed in yet, it is the base state.
    pub(in crate::protocol) fn streamed_from(&self, path: PathId, stagger: &Stagger) -> Vec<(BaseVersion, BlobRef)> {
        let now = self.due_next(path).map_or(u64::MAX, |(version, level)| stagger.number(version, level));
        let base_states = self.base_states(path);
        let from = |module: ModuleId| {
            let head = self.head_of(module)?;
            let early = |(from, _): &&(BaseVersion, BlobRef)| {
                let offered = from.module == module && self.has_contributed(path, module, from.update);
                offered && now < stagger.mixed_at(from.version, module.level)
            };
            let newest = (BaseVersion { module, version: head.version, update: head.update }, head.state);
            Some(base_states.iter().find(early).copied().unwrap_or(newest))
        };
        self.modules_of(path).into_iter().filter_map(from).collect()
    }

    /// The base states of a path's trainer, if it was trained here.
    pub(in crate::protocol) fn base_states(&self, path: PathId) -> &[(BaseVersion, BlobRef)] {
        self.contributions.base_states(path)
    }

    /// Releases the base states of a path, which nothing is trained from any more.
    pub(in crate::protocol) fn release_base_states(&mut self, path: PathId) {
        let states = self.contributions.release_base_states(path);
        states.into_iter().for_each(|state| self.release(state.hash));
    }

    /// The version that is due for an outer gradient of a path, and its level.
    fn due_next(&self, path: PathId) -> Option<(Version, u16)> {
        let due = |module: ModuleId| {
            let head = self.head_of(module)?;
            let offered = self.has_contributed(path, module, head.update);
            let version = if offered { head.version.next() } else { head.version };
            (version.0 < self.plan.phases).then_some((version, module.level))
        };
        self.modules_of(path).into_iter().filter_map(due).min()
    }

    fn has_contributed(&self, path: PathId, module: ModuleId, update: UpdateHash) -> bool {
        self.contributions.trained(path).any(|finished| {
            let mut offered = finished.offers.iter().map(|(from, _)| (from.module, from.update));
            offered.any(|offered| offered == (module, update)) || Self::passed(finished, module, update)
        })
    }

    /// Whether this part follows the part of a lower level in the same phase. A peer that takes a path in the middle of
    /// a phase has not offered the earlier parts, but the previous holder has.
    fn passed(finished: &Finished, module: ModuleId, update: UpdateHash) -> bool {
        let Some((of, _)) = finished.offers.first().filter(|(of, _)| module.level < of.module.level) else {
            return false;
        };
        let mut stood_on = finished.base_states.iter().map(|(from, _)| from);
        stood_on.any(|from| (from.module, from.update, from.version) == (module, update, of.version))
    }

    fn head_of(&self, module: ModuleId) -> Option<Head> {
        self.modules.get(&module).and_then(Replica::head)
    }

    fn open(&self, modules: Vec<ModuleId>) -> Vec<ModuleId> {
        let open = |module: &ModuleId| self.head_of(*module).is_some_and(|head| !self.plan.is_done(*module, head));
        modules.into_iter().filter(open).collect()
    }
}
