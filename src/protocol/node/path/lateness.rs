//! A late peer does not delay others.
//!
//! A phase that was disturbed by a restart, a suspended machine or a hand-off would end later than those of the
//! module's other paths, which would wait for it. Such a phase ends with the others, with as many inner steps as it has
//! made. This costs the time of one peer instead of everybody's.
//!
//! One module of a path may advance without it while another does not. If the path continued at once, the other module
//! would wait for it. The path would be late there forever and delay both modules in turn. So it skips the other
//! module's round, if other paths train that round, and starts again once all its modules have the same version.

use crate::config::OuterMode;
use crate::names::{ModuleId, PathId, PeerKey, Version};
use crate::protocol::Held;
use crate::protocol::action::Action;
use crate::protocol::journal::record::Finished;
use crate::protocol::limits::LATE_START_MS;
use crate::protocol::module::quorum::quorum;
use crate::protocol::path::trainer::Training;
use crate::protocol::wire::message::{Counted, Lease, SignedUpdate};
use crate::protocol::{Node, phase_from};

impl Node {
    /// Whether a phase that begins or resumes now will end later than those of others. This is the case if it was
    /// interrupted, if the path is new here or was late the last time, or if others have begun already. A path that is
    /// always late still gets its full time at least every other phase.
    pub(in crate::protocol) fn begins_late(&self, path: PathId, resumes: bool) -> bool {
        let modules = self.modules_of(path);
        let moved = modules.iter().filter_map(|module| Some(self.modules.get(module)?.history.advanced())).min();
        let waited_ms = self.now.since(moved.unwrap_or(self.now));
        // A part of a phase begins at the end of the previous part, whenever modules advance.
        let began_late = waited_ms >= LATE_START_MS && self.plan.streaming.is_none();
        let stub = self.paths.held().get(&path).is_some_and(Held::is_stub);
        resumes || (!stub && (began_late || !self.was_in_time(path)))
    }

    /// Whether the path's last contributions were counted at once.
    fn was_in_time(&self, path: PathId) -> bool {
        let mut own = self.contributions.trained(path).peekable();
        if own.peek().is_none() {
            return false;
        }
        // In streaming mode, the last parts may still be counted in time.
        let Some(last) = own.find(|finished| self.plan.streaming.is_none() || self.is_settled(finished)) else {
            return true;
        };
        last.offers.iter().all(|(from, blob)| {
            let Some(state) = self.modules.get(&from.module) else { return true };
            let next = |signed: &&SignedUpdate| signed.update.version == from.version.next();
            let update = state.history.chain().and_then(|chain| chain.recent().find(next));
            // If a rival on the same path is counted instead, this contribution may have been as early.
            let is_it = |counted: &Counted| {
                (counted.path, counted.parent) == (path, from.version)
                    && (self.plan.counts_once() || counted.blob == *blob)
            };
            update.is_some_and(|signed| signed.update.contributions.iter().any(is_it))
        })
    }

    /// Whether the modules of these contributions have advanced.
    fn is_settled(&self, finished: &Finished) -> bool {
        let head = |module: ModuleId| self.modules.get(&module).and_then(crate::protocol::Replica::head);
        finished.offers.iter().all(|(from, _)| head(from.module).is_none_or(|head| head.version > from.version))
    }

    /// Ends a late phase once the others of a module have finished theirs. Called after every event and, for modules with so
    /// many paths that looking at all of them takes long, in every sweep.
    pub(in crate::protocol) fn end_late_phase(&mut self, of_many: bool) {
        for number in self.trainers.numbers() {
            let training = self.trainers.get(number).training().filter(|training| !training.ends);
            if let Some(path) = training.filter(|training| self.ends_now(training, of_many)).map(|it| it.path) {
                self.act(Action::EndPhase { path });
                self.trainers.get_mut(number).cut_short();
            }
        }
    }

    fn ends_now(&self, training: &Training, of_many: bool) -> bool {
        // A peer that trains several paths in turn is waited for anyway, and in a deterministic run everybody is.
        let late = training.late && self.turns_here() == 1 && !self.plan.deterministic;
        let path = training.path;
        let due = training.start.iter().filter(|(from, _)| training.part.due.contains(&from.module));
        let due = due.filter(|(from, _)| self.plan.has_many(from.module) == of_many);
        let mut begun = due.map(|(from, _)| (from.module, from.version));
        let is_over = training.until.is_some_and(|until| self.now >= until);
        is_over || (late && begun.any(|(module, version)| self.others_are_done(module, version, path)))
    }

    /// Whether paths wait for each other, and always for the same ones.
    fn keep_step(&self) -> bool {
        self.plan.mode == OuterMode::Synchronous && !self.plan.slots.are_drawn_anew()
    }

    /// Whether a module waits for nobody but this path and a few equally late ones, or has advanced without it.
    fn others_are_done(&self, module: ModuleId, version: Version, path: PathId) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let Some(head) = state.head().filter(|head| !self.plan.is_done(module, *head)) else { return false };
        if !self.keep_step() || head.version != version {
            return self.keep_step() && head.version > version;
        }
        let mut others = self.expected(module);
        others.remove(&path);
        !others.is_empty() && quorum(&others, |other| self.is_offered(state, other, head.version), 0, 1)
    }

    /// The module whose round a path skips, if any: others train it, and the path's other modules are further.
    pub(in crate::protocol) fn skips(&self, path: PathId) -> Option<ModuleId> {
        // In streaming mode, levels never have the same version.
        if !self.keep_step() || self.plan.streaming.is_some() {
            return None;
        }
        let modules = self.modules_of(path);
        let open = |module: &ModuleId| {
            let head = self.modules.get(module)?.head()?;
            (!self.plan.is_done(*module, head)).then_some((*module, head.version))
        };
        let open: Vec<(ModuleId, Version)> = modules.iter().filter_map(open).collect();
        let furthest = open.iter().map(|(_, version)| *version).max()?;
        let mut behind = open.into_iter().filter(|(_, version)| *version < furthest);
        // In a deterministic run no phase begins from unequal versions, whether or not others train.
        let skips = |module, version| self.plan.deterministic || self.others_train(module, version, path);
        behind.find(|(module, version)| skips(*module, *version)).map(|(module, _)| module)
    }

    /// Whether another path through a module is trained from this version, is about to be, or has been. Its offer may
    /// be on its way.
    fn others_train(&self, module: ModuleId, version: Version, path: PathId) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let others = |other: PathId| other != path && self.plan.slots.goes_through(other, phase_from(version), module);
        let here = self
            .trainers
            .training()
            .any(|training| others(training.path) && training.start.iter().any(|(from, _)| from.version == version));
        let train = |peer: PeerKey, lease: &Lease| {
            let now = Self::is_waited_for(lease.stage) && lease.phase.0 == version.0;
            now && others(lease.path) && !self.is_not_contributing(lease.path, peer)
        };
        let mut living = self.membership.roster().living(self.now, module);
        let mut paths = self.plan.slots.through(module, phase_from(version)).into_iter();
        here || living.any(|(peer, member)| member.leases.iter().any(|lease| train(peer, lease)))
            || paths.any(|other| others(other) && state.offers.has_offered(other, version))
    }
}
