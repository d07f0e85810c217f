//! Who combines the contributions to a module.
//!
//! The members are ranked by rendezvous hashing. The present owner stays while it beats. When its lease runs out, the
//! first in rank claims the module with the next term; if it does not, the second does, a little later. Nobody needs
//! anybody's leave: receivers refuse what comes with a lower term.

use super::Node;
use super::action::{Action, Report};
use super::limits::{CLAIM_STAGGER_MS, MEMBER_LEASE_MS, SETTLE_MS};
use super::record::Record;
use crate::names::{ModuleId, PathId, PeerKey, Term};

/// A candidate's rank for a module: the highest comes first (rendezvous hashing).
pub(super) fn rank(module: ModuleId, peer: PeerKey) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"owner");
    hasher.update(&module.level.to_le_bytes());
    hasher.update(&module.expert.to_le_bytes());
    hasher.update(&peer.0);
    *hasher.finalize().as_bytes()
}

/// A candidate's rank for a path.
pub(super) fn path_rank(path: PathId, peer: PeerKey) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"path");
    hasher.update(&path.0.to_le_bytes());
    hasher.update(&peer.0);
    *hasher.finalize().as_bytes()
}

impl Node {
    pub(super) fn owns(&self, module: ModuleId) -> bool {
        self.modules.get(&module).is_some_and(|state| state.owner == Some(self.me))
    }

    /// A member says whom it takes for the owner. Its own claim counts; of others it is believed only a later term.
    pub(super) fn hear_owner(&mut self, module: ModuleId, author: PeerKey, term: Term, owner: PeerKey) {
        let Some(state) = self.modules.get(&module) else { return };
        let later = term > state.term;
        let same_term_but_first = term == state.term
            && state.owner.is_some_and(|current| current != owner && rank(module, owner) > rank(module, current));
        let first_heard = state.owner.is_none() && term >= state.term;
        if owner == self.me {
            if first_heard {
                self.resume_ownership(module, term);
            }
            return;
        }
        if later || (author == owner && (same_term_but_first || first_heard)) {
            self.adopt_owner(module, term, owner);
        }
    }

    pub(super) fn adopt_owner(&mut self, module: ModuleId, term: Term, owner: PeerKey) {
        self.act(Action::Persist(Record::Term { module, term, owner }));
        let Some(state) = self.modules.get_mut(&module) else { return };
        state.term = term;
        state.owner = Some(owner);
        state.vacant_since = None;
        state.collection = None;
        self.act(Action::Report(Report::Owner { module, owner }));
        // The new owner may not have heard what is still outstanding.
        self.offered_at = crate::clock::Millis(0);
    }

    pub(super) fn claim(&mut self, module: ModuleId) {
        let Some(state) = self.modules.get(&module) else { return };
        let term = Term(state.term.0 + 1);
        self.adopt_owner(module, term, self.me);
        self.beat_on(module);
        self.open_collection(module, SETTLE_MS);
        self.say_sealed_again(module);
    }

    /// Looks for modules whose owner is dead, and claims those for which it is this node's turn.
    pub(super) fn watch_owners(&mut self) {
        self.forget_the_dead();
        let modules: Vec<ModuleId> = self.modules.keys().copied().collect();
        for module in modules {
            if self.should_claim(module) {
                self.claim(module);
            }
        }
    }

    fn should_claim(&mut self, module: ModuleId) -> bool {
        let now = self.now;
        let candidates: Vec<PeerKey> = self.roster.heads(now, module).map(|(peer, _)| peer).chain([self.me]).collect();
        let Some(state) = self.modules.get_mut(&module) else { return false };
        let alive = state.owner.is_some_and(|owner| owner == self.me || self.roster.lives(now, module, owner));
        if alive || state.chain.is_none() {
            state.vacant_since = None;
            return false;
        }
        // One that has never been heard gets a lease's time to speak.
        let patience = if state.owner.is_none() { MEMBER_LEASE_MS } else { 0 };
        let since = *state.vacant_since.get_or_insert(now);
        let mine = rank(module, self.me);
        let before_me = candidates.iter().filter(|peer| rank(module, **peer) > mine).count() as u64;
        now.since(since) >= patience + before_me * CLAIM_STAGGER_MS
    }
}
