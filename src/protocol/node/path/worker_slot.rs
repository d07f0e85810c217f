//! Worker slots: the phase of a path, and the modules that it needs.
//!
//! In most runs a path goes through the same modules from beginning to end, and its phase is that of the module
//! furthest behind. Where paths are sampled anew every few phases, a peer holds a worker slot, whose modules depend on
//! its phase. It joins the modules of the next phase while it trains the current one, so that they are here in time,
//! and moves on when they have come as far. After an absence it continues at the phase of the modules.

use std::collections::BTreeSet;

use crate::names::{ModuleId, PathId, Phase, Version};
use crate::protocol::action::Action;
use crate::protocol::limits::{PATH_LEASE_MS, VERSIONS_KEPT};
use crate::protocol::wire::amended::tells_of_amendment;
use crate::protocol::{Held, Node, Replica, RunPlan, phase_from};

/// After a switch to a heavier chain with fewer rounds, a slot looks this many phases back for what it must train
/// again.
const LOOK_BACK: u64 = 2;

impl RunPlan {
    /// The phase whose sample applies. After the last phase it is the last.
    fn drawn_in(&self, phase: Phase) -> Phase {
        phase.min(Phase(self.phases.saturating_sub(1)))
    }

    /// The path of the grid that a slot stands for in a phase; after the last phase, as in the last.
    pub fn path_at(&self, slot: PathId, phase: Phase) -> PathId {
        self.slots.path(slot, self.drawn_in(phase))
    }

    /// A slot's modules in a phase; after the last phase, as in the last.
    pub(in crate::protocol) fn modules_at(&self, slot: PathId, phase: Phase) -> Vec<ModuleId> {
        self.slots.modules(slot, self.drawn_in(phase))
    }

    /// Whether a slot goes through a module in a phase; after the last phase, as in the last. The slot may come from
    /// the wire.
    pub(in crate::protocol) fn goes_through_at(&self, slot: PathId, phase: Phase, module: ModuleId) -> bool {
        self.slots.goes_through(slot, self.drawn_in(phase), module)
    }

    /// The phase for which a path contributes to a version of a module. This is the phase that trains from it. Where
    /// paths are sampled anew, it may be a later phase in which the path goes through the module. The paths that should
    /// have advanced a module may be elsewhere by now, and then a path that needs it does.
    pub(in crate::protocol) fn contributes_in(&self, path: PathId, parent: Version, module: ModuleId) -> Option<Phase> {
        let first = phase_from(parent);
        let later = if self.slots.are_drawn_anew() { VERSIONS_KEPT } else { 0 };
        let mut phases = (first.0..=first.0.saturating_add(later)).map(Phase);
        phases.find(|phase| self.slots.goes_through(path, *phase, module))
    }

    /// Whether a path may contribute to a version of a module.
    pub(in crate::protocol) fn contributes(&self, path: PathId, parent: Version, module: ModuleId) -> bool {
        self.contributes_in(path, parent, module).is_some()
    }

    /// Whether the holder of a path in this phase needs a module, now or in the next phase.
    pub fn needs(&self, path: PathId, phase: Phase, module: ModuleId) -> bool {
        let through = |phase| self.goes_through_at(path, phase, module);
        through(phase) || (self.slots.are_drawn_anew() && through(Phase(phase.0.saturating_add(1))))
    }
}

impl Node {
    /// The path of the grid that a slot stands for in a phase; after the last phase, as in the last.
    pub fn path_at(&self, slot: PathId, phase: Phase) -> PathId {
        self.plan.path_at(slot, phase)
    }

    /// The slot of the first trainer of a slot's path, which is the number of the path for users.
    pub fn first_trainer(&self, slot: PathId) -> PathId {
        self.plan.slots.first_trainer(slot)
    }

    /// The number of a slot among those of its path, from 0.
    pub fn trainer_number(&self, slot: PathId) -> u32 {
        self.plan.slots.trainer_number(slot)
    }

    /// The paths of the grid that the slots held here stand for, in their current and next phase.
    pub fn paths_drawn_here(&self) -> BTreeSet<PathId> {
        let around = |(slot, held): (&PathId, &Held)| {
            [held.near(), held.near().next()].map(|phase| self.plan.path_at(*slot, phase))
        };
        self.paths.held().iter().flat_map(around).collect()
    }

    /// The phase of a path: the fewest rounds of its modules; nothing before all of them are here.
    pub(in crate::protocol) fn phase(&self, path: PathId) -> Option<Phase> {
        if !self.plan.slots.are_drawn_anew() {
            return self.rounds(path, Phase(0));
        }
        let near = self.near(path);
        let back = (near.0.saturating_sub(LOOK_BACK)..near.0).map(Phase);
        if let Some(again) = back.into_iter().find(|phase| self.must_train_again(path, *phase)) {
            return Some(again);
        }
        let rounds = self.rounds(path, near)?;
        let last = Phase(self.plan.phases.saturating_sub(1));
        Some(if near > last && rounds < near { last } else { near })
    }

    /// Whether a module is behind others, and no living peer has trained it for a while.
    pub(in crate::protocol) fn is_left_behind(&self, module: ModuleId) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let waited_ms = self.now.since(state.history.advanced().max(self.lifecycle.began()));
        self.plan.slots.are_drawn_anew()
            && waited_ms >= PATH_LEASE_MS
            && self.trained_through(module, |_| true).is_empty()
    }

    /// The fewest rounds of the modules that a path has in this phase.
    fn rounds(&self, path: PathId, phase: Phase) -> Option<Phase> {
        let rounds = |module: ModuleId| Some(self.plan.phase_of(module, self.modules.get(&module)?.head()?));
        let rounds: Option<Vec<Phase>> = self.plan.modules_at(path, phase).into_iter().map(rounds).collect();
        rounds?.into_iter().min()
    }

    /// Whether the slot must train a phase again: a module of that phase has the same version as before, but made by
    /// another update, so the contribution does not belong to this chain.
    fn must_train_again(&self, slot: PathId, phase: Phase) -> bool {
        let Some(trained) = self.contributions.trained_in(slot, phase) else {
            return false;
        };
        let given_up = trained.offers.iter().any(|(from, _)| {
            let head = self.modules.get(&from.module).and_then(Replica::head);
            head.is_some_and(|head| head.version == from.version && head.update != from.update)
        });
        given_up && self.rounds(slot, phase) == Some(phase)
    }

    /// The phase of a path, as far as it is known without all of its modules.
    pub(in crate::protocol) fn near(&self, path: PathId) -> Phase {
        self.paths.held().get(&path).map_or_else(|| self.phase_about(), |held| held.near())
    }

    /// The approximate phase of the run: that of the furthest module here or, without any, the median of known leases.
    pub(in crate::protocol) fn phase_about(&self) -> Phase {
        if !self.plan.slots.are_drawn_anew() {
            return Phase(0);
        }
        let here = self.modules.iter().filter_map(|(module, state)| Some(self.plan.phase_of(*module, state.head()?)));
        if let Some(furthest) = here.max() {
            return furthest;
        }
        let found = self.search.found().flat_map(|entry| &entry.leases).filter(|lease| !tells_of_amendment(lease));
        let mut phases: Vec<Phase> = found.map(|lease| lease.phase.min(Phase(self.plan.phases))).collect();
        phases.sort_unstable();
        phases.get(phases.len() / 2).copied().unwrap_or(Phase(0))
    }

    /// The modules of a path in its current phase, bottom first.
    pub fn modules_of(&self, path: PathId) -> Vec<ModuleId> {
        let phase = if self.plan.slots.are_drawn_anew() { self.phase(path) } else { None };
        self.plan.modules_at(path, phase.unwrap_or_else(|| self.near(path)))
    }

    /// The modules of a path in its current phase and in the next.
    pub(in crate::protocol) fn modules_around(&self, path: PathId) -> Vec<ModuleId> {
        let near = self.near(path);
        let mut modules = self.plan.modules_at(path, near);
        if self.plan.slots.are_drawn_anew() {
            modules.extend(self.plan.modules_at(path, near.next()));
            modules.sort_unstable();
            modules.dedup();
        }
        modules
    }

    /// The modules of the paths held here, and those to which an interrupted phase will contribute although its path is
    /// sampled elsewhere by now.
    pub(in crate::protocol) fn needed_modules(&self) -> BTreeSet<ModuleId> {
        let begun = |path: &PathId| self.paths.checkpoint(*path).into_iter().flat_map(|checkpoint| &checkpoint.start);
        let of_path =
            |path: &PathId| self.modules_around(*path).into_iter().chain(begun(path).map(|(from, _)| from.module));
        self.paths.held().keys().flat_map(of_path).collect()
    }

    /// The modules here that are not done, with their phases.
    pub(in crate::protocol) fn modules_not_done(&self) -> impl Iterator<Item = (ModuleId, Phase)> {
        self.modules.iter().filter_map(|(module, state)| {
            let head = state.head().filter(|head| !self.plan.is_done(*module, *head))?;
            Some((*module, self.plan.phase_of(*module, head)))
        })
    }

    /// Becomes a member of a module.
    pub(in crate::protocol) fn enter(&mut self, module: ModuleId) {
        if !self.modules.contains_key(&module) {
            self.act(Action::Subscribe(module));
            self.modules.insert(module, Replica::default());
        }
    }

    /// Where paths are sampled anew: moves the slots along with the modules, and enters the modules needed next.
    pub(in crate::protocol) fn move_worker_slots(&mut self) {
        if !self.plan.slots.are_drawn_anew() {
            return;
        }
        let slots: Vec<PathId> = self.paths.held().keys().copied().collect();
        for slot in slots {
            let before = self.near(slot);
            let trained = self.trained_until(slot);
            // A slot does not go back behind a phase that it has trained itself. It does go back if a reported phase
            // was wrong.
            let near = match self.rounds(slot, before) {
                Some(rounds) if rounds > before || trained < before => rounds.max(trained),
                _ => before.max(trained),
            };
            self.paths.set_near(slot, near);
            for module in self.modules_around(slot) {
                if !self.modules.contains_key(&module) {
                    self.enter(module);
                    self.send_heartbeat(module);
                }
            }
        }
    }

    /// The phase after the last one that a slot has trained here.
    fn trained_until(&self, slot: PathId) -> Phase {
        let trained = self.contributions.trained(slot).next();
        trained.map_or(Phase(0), |finished| finished.phase.next())
    }

    /// After a restart: moves the slots to the phase of the modules in the journal.
    pub(in crate::protocol) fn restore_worker_slots(&mut self) {
        let about = self.phase_about();
        let slots: Vec<PathId> = self.paths.held().keys().copied().collect();
        for slot in slots {
            let near = self.trained_until(slot).max(about);
            self.paths.set_near(slot, near);
            for module in self.modules_around(slot) {
                self.modules.entry(module).or_default();
            }
        }
    }
}
