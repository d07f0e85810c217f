//! Who combines the contributions to a module.
//!
//! The members are ranked by rendezvous hashing. The present owner stays while it beats. When its lease runs out, the
//! first in rank claims the module with the next term; if it does not, the second does, a little later. Nobody needs
//! anybody's leave: receivers refuse what comes with a lower term.

use super::Node;
use super::action::{Action, Report};
use super::limits::{CLAIM_STAGGER_MS, LONELY_RETURN_MS, MAX_TERM_JUMP, MEMBER_LEASE_MS, SETTLE_MS};
use super::message::Head;
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
        if term.0.saturating_sub(state.term.0) > MAX_TERM_JUMP {
            return;
        }
        if owner == self.me {
            // A claim of ours that is not in our journal: another term makes it good.
            if later {
                self.adopt_owner(module, term, owner);
                if let Some(state) = self.modules.get_mut(&module) {
                    state.deposed = Some(term);
                }
            } else if state.owner.is_none() && term == state.term {
                self.resume_ownership(module, term);
            }
            return;
        }
        let same_term_but_first = term == state.term
            && state.owner.is_some_and(|current| current != owner && rank(module, owner) > rank(module, current));
        let first_heard = state.owner.is_none() && term >= state.term;
        if later || (author == owner && (same_term_but_first || first_heard)) {
            self.adopt_owner(module, term, owner);
        }
    }

    /// A chain's head says that there has been a later owner than the one known here: what is signed next has no
    /// earlier term.
    pub(super) fn hear_later_term(&mut self, module: ModuleId, term: Term, owner: PeerKey) {
        if self.modules.get(&module).is_some_and(|state| term > state.term) {
            self.hear_owner(module, owner, term, owner);
        }
    }

    /// In order: nobody need wait for its lease to run out.
    pub(super) fn owner_left(&mut self, module: ModuleId, author: PeerKey) {
        if let Some(state) = self.modules.get_mut(&module)
            && state.owner == Some(author)
        {
            state.deposed = Some(state.term);
        }
    }

    pub(super) fn adopt_owner(&mut self, module: ModuleId, term: Term, owner: PeerKey) {
        self.act(Action::Persist(Record::Term { module, term, owner }));
        self.drop_collection(module);
        let Some(state) = self.modules.get_mut(&module) else { return };
        state.term = term;
        state.owner = Some(owner);
        state.deposed = None;
        state.vacant_since = None;
        self.act(Action::Report(Report::Owner { module, owner }));
        self.release_sealed(module);
        // The new owner may not have heard what is still outstanding.
        self.offered_at = None;
    }

    pub(super) fn claim(&mut self, module: ModuleId) {
        let Some(state) = self.modules.get(&module) else { return };
        let Some(term) = state.term.0.checked_add(1).map(Term) else { return };
        self.adopt_owner(module, term, self.me);
        self.beat_on(module);
        self.open_collection(module, SETTLE_MS);
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
        let others: Vec<(PeerKey, Head)> = self.roster.heads(now, module).collect();
        let Some(state) = self.modules.get_mut(&module) else { return false };
        let alive = state.owner.is_some_and(|owner| owner == self.me || self.roster.lives(now, module, owner));
        let Some(head) = state.head().filter(|_| !alive || state.deposed == Some(state.term)) else {
            state.vacant_since = None;
            return false;
        };
        // One that has never been heard gets a lease's time to speak; longer where this peer has come back and has heard
        // nobody yet, since those who stayed have gone on without it.
        let patience = match state.owner {
            _ if self.start.incarnation > 1 && !state.met => LONELY_RETURN_MS,
            Some(_) => 0,
            None => MEMBER_LEASE_MS,
        };
        let since = *state.vacant_since.get_or_insert(now);
        let mine = rank(module, self.me);
        // Whoever is behind comes after all that are not: it would have to catch up first.
        let before_me = others.iter().filter(|(peer, other)| match other == &head {
            true => rank(module, *peer) > mine,
            false => other.beats(&head),
        });
        let before_me = before_me.count() as u64;
        let listened = now >= self.listens_until || state.deposed.is_some();
        listened && now.since(since) >= patience + before_me * CLAIM_STAGGER_MS
    }
}
