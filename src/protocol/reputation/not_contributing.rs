//! Holders that do not train: a lease says that a path is trained, but what it should contribute does not come.
//!
//! Such a peer holds the path no longer, as far as this node is concerned: another may take it up, and owners do not
//! wait for it. When it offers something for the path, it counts again. So it is with the paths through a module that a
//! peer has failed as the owner of, while it is not believed, until it offers anything there: it may take itself for the
//! owner still, and offer to nobody else. And so it is with all paths of a peer that was named (`conduct.rs`), until
//! something of it is counted in full: it would take back its path each time that its name is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::OuterMode;
use crate::names::{ModuleId, PathId, PeerKey, Version};
use crate::protocol::limits::{IDLE_DEADLINES, MAX_MEMBERS, OVERDUE_MS, UNCOUNTED_VERSIONS};
use crate::protocol::node::module::aggregation::offered;
use crate::protocol::wire::message::{Lease, Update};
use crate::protocol::{Module, Node};

/// Who holds paths, and is not believed to train them.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Idle {
    holders: BTreeSet<(PathId, PeerKey)>,
    /// Failed as owners of these modules, and have offered nothing there since.
    failed_owners: BTreeSet<(ModuleId, PeerKey)>,
    /// The module's version when a holder was first seen to train a path, or when that was counted last.
    counted: BTreeMap<(ModuleId, PathId, PeerKey), Version>,
}

impl Idle {
    /// How many of both.
    pub(in crate::protocol) fn count(&self) -> usize {
        self.holders.len() + self.failed_owners.len() + self.counted.len()
    }
}

impl Node {
    /// Whether a peer that has this lease of a path is believed to train it.
    pub(in crate::protocol) fn is_idle(&self, path: PathId, peer: PeerKey) -> bool {
        let phase = self.phase_about();
        let keeps_to_itself = |(module, failed): &(ModuleId, PeerKey)| {
            *failed == peer && self.plan.slots.goes_through(path, phase, *module)
        };
        self.conducts.is_doubted(self.now, peer)
            || self.idle.holders.contains(&(path, peer))
            || self.idle.failed_owners.iter().any(keeps_to_itself)
    }

    /// It has offered something for the path.
    pub(in crate::protocol) fn contributes(&mut self, module: ModuleId, path: PathId, peer: PeerKey) {
        self.idle.holders.remove(&(path, peer));
        self.idle.failed_owners.remove(&(module, peer));
    }

    /// It has failed as the owner of a module.
    pub(in crate::protocol) fn fails(&mut self, module: ModuleId, owner: PeerKey) {
        self.distrusted.failed(self.now, owner);
        if self.idle.failed_owners.len() < MAX_MEMBERS {
            self.idle.failed_owners.insert((module, owner));
        }
    }

    /// A new head: a holder whose path no update has counted for many versions, and who has offered nothing that could be,
    /// does not train it, whatever its lease says. An owner that spoils its own contributions offers them to itself alone.
    pub(in crate::protocol) fn note_counted(&mut self, module: ModuleId, update: &Update) {
        if self.plan.mode != OuterMode::Synchronous || self.plan.slots.are_drawn_anew() {
            return;
        }
        let mut here = BTreeMap::new();
        for (peer, member) in self.membership.roster().living(self.now, module) {
            let trains = |lease: &&Lease| {
                Self::is_waited_for(lease.stage) && self.plan.slots.goes_through(lease.path, lease.phase, module)
            };
            for lease in member.leases.iter().filter(trains) {
                let counts = update.contributions.iter().any(|counted| counted.path == lease.path);
                let known = self.idle.counted.get(&(module, lease.path, peer)).copied().filter(|_| !counts);
                here.insert((module, lease.path, peer), known.unwrap_or(update.version));
            }
        }
        self.idle.counted.retain(|(of, ..), _| *of != module);
        let room = MAX_MEMBERS.saturating_sub(self.idle.counted.len());
        for (key, since) in here.into_iter().take(room) {
            let (_, path, peer) = key;
            if update.version.0.saturating_sub(since.0) >= UNCOUNTED_VERSIONS {
                self.idle.holders.insert((path, peer));
            }
            self.idle.counted.insert(key, since);
        }
    }

    /// Looks for holders whose contributions are long overdue.
    pub(in crate::protocol) fn watch_holders(&mut self) {
        let mut idle: Vec<(PathId, PeerKey)> = Vec::new();
        for (module, state) in self.modules.iter().filter(|(module, state)| self.is_held_up(**module, state)) {
            for (peer, member) in self.membership.roster().living(self.now, *module) {
                let stalled = member.leases.iter().filter(|lease| self.stalls(*module, state, lease));
                idle.extend(stalled.map(|lease| (lease.path, peer)));
            }
        }
        idle.truncate(MAX_MEMBERS.saturating_sub(self.idle.holders.len()));
        self.idle.holders.extend(idle);
        let (roster, distrusted, now) = (&self.membership.roster(), &self.distrusted, self.now);
        self.idle.failed_owners.retain(|(_, peer)| distrusted.has(now, *peer));
        self.idle.holders.retain(|(_, peer)| roster.member(*peer).is_some_and(|member| roster.alive(now, member)));
    }

    /// The next update has taken several times as long as it should have.
    fn is_held_up(&self, module: ModuleId, state: &Module) -> bool {
        let (Some(head), Some(deadline_ms)) = (state.head(), state.advances.deadline_ms()) else { return false };
        let waited_ms = self.now.since(state.advanced.max(self.began));
        !self.plan.is_done(module, head) && waited_ms > IDLE_DEADLINES * deadline_ms + OVERDUE_MS
    }

    /// The path waits for nothing but itself, as far as this module tells: it stands where the module does, and has not
    /// contributed to it.
    fn stalls(&self, module: ModuleId, state: &Module, lease: &Lease) -> bool {
        let Some(head) = state.head() else { return false };
        let here = self.plan.phase_of(module, head);
        let stands_here = match self.plan.streaming {
            // The module may be the one of its path that is ahead. What a lease says may be any number.
            Some(_) => lease.phase == here || here.0.checked_sub(1) == Some(lease.phase.0),
            None => lease.phase == here,
        };
        Self::is_waited_for(lease.stage)
            && stands_here
            && self.plan.slots.goes_through(lease.path, lease.phase, module)
            && !offered(&state.offers, lease.path, head.version)
    }
}
