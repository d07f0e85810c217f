//! Holders that do not train: a lease says that a path is trained, but what it should contribute does not come.
//!
//! Such a peer holds the path no longer, as far as this node is concerned: another may take it up, and owners do not
//! wait for it. When it offers something for the path, it counts again.

use super::Node;
use super::gathering::offered;
use super::limits::{IDLE_DEADLINES, MAX_MEMBERS, OVERDUE_MS};
use super::message::Lease;
use crate::names::{ModuleId, PathId, PeerKey};

impl Node {
    /// Whether a peer that has this lease of a path is believed to train it.
    pub(super) fn is_idle(&self, path: PathId, peer: PeerKey) -> bool {
        self.idle.contains(&(path, peer))
    }

    /// It has offered something for the path.
    pub(super) fn contributes(&mut self, path: PathId, peer: PeerKey) {
        self.idle.remove(&(path, peer));
    }

    /// Looks for holders whose contributions are long overdue.
    pub(super) fn watch_holders(&mut self) {
        let mut idle: Vec<(PathId, PeerKey)> = Vec::new();
        for module in self.modules.keys() {
            for (peer, member) in self.roster.living(self.now, *module) {
                let stalled = member.leases.iter().filter(|lease| self.stalls(*module, lease));
                idle.extend(stalled.map(|lease| (lease.path, peer)));
            }
        }
        idle.truncate(MAX_MEMBERS.saturating_sub(self.idle.len()));
        self.idle.extend(idle);
        let (roster, now) = (&self.roster, self.now);
        self.idle.retain(|(_, peer)| roster.member(*peer).is_some_and(|member| roster.alive(now, member)));
    }

    /// The path waits for nothing but itself, as far as this module tells: it stands where the module does, and has not
    /// contributed to it for several times as long as the next update should have taken.
    fn stalls(&self, module: ModuleId, lease: &Lease) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let (Some(head), Some(deadline_ms)) = (state.head(), state.advances.deadline_ms()) else { return false };
        let here = Self::trains(lease.stage)
            && lease.phase == self.plan.phase_of(module, head)
            && !self.plan.is_done(module, head);
        let waited_ms = self.now.since(state.advanced.max(self.began));
        here && self.plan.goes_through(lease.path, module)
            && waited_ms > IDLE_DEADLINES * deadline_ms + OVERDUE_MS
            && !offered(&state.offers, lease.path, head.version)
    }
}
