//! The election of a module's owner, which aggregates its contributions.
//!
//! Members are ranked by rendezvous hashing, with those that have been present for a while before the others. The
//! current owner stays while it sends heartbeats and does its work. When its lease expires, or its update is wrong or
//! overdue, the first in rank claims the module with the next term. If it does not, the second does a little later. An
//! owner that leaves names its successor. An election needs no votes, because receivers refuse messages with a lower
//! term.

use std::cmp::Reverse;

use crate::clock::Millis;
use crate::config::OuterMode;
use crate::names::{ModuleId, PathId, PeerKey, Term};
use crate::protocol::action::{Action, Report};
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{
    DEADLINE_FACTOR, ELECTION_STAGGER_MS, LONELY_RETURN_MS, MAX_TERM_JUMP, MAX_TERMS_IN_VAIN, MEMBER_LEASE_MS,
    OUTVOTED_OWNER_MS, OVERDUE_MS, STEADY_MS, UNMEASURED_DUE_MS,
};
use crate::protocol::module::quorum::quorum;
use crate::protocol::wire::message::Head;
use crate::protocol::{Node, Replica};

/// A candidate's rank for a module (rendezvous hashing). The highest comes first.
pub(in crate::protocol) fn rank(module: ModuleId, peer: PeerKey) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"owner");
    hasher.update(&module.level.to_le_bytes());
    hasher.update(&module.expert.to_le_bytes());
    hasher.update(&peer.0);
    *hasher.finalize().as_bytes()
}

/// A candidate's rank for a path.
pub(in crate::protocol) fn path_rank(path: PathId, peer: PeerKey) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"path");
    hasher.update(&path.0.to_le_bytes());
    hasher.update(&peer.0);
    *hasher.finalize().as_bytes()
}

impl Node {
    pub(in crate::protocol) fn owns(&self, module: ModuleId) -> bool {
        self.modules.get(&module).is_some_and(|state| state.leadership.is_owner(self.me))
    }

    /// A member says who is the owner. The owner's own word counts. Another member's counts for a later term of a living
    /// member, if it has that member's signature over it, or is the present owner's own and names the next one.
    pub(in crate::protocol) fn hear_owner(
        &mut self,
        module: ModuleId,
        author: PeerKey,
        (term, owner): (Term, PeerKey),
        claim: &[u8],
    ) {
        let Some(state) = self.modules.get(&module) else { return };
        if author != owner && term == state.leadership.term() && state.leadership.is_owner(author) {
            return self.owner_steps_down(module);
        }
        // A restarted owner goes on in the term that is in its journal. There is none of term 0.
        let resumes = owner == self.me && term == state.leadership.term() && term > Term(0);
        let hands_off = state.leadership.is_owner(author) && state.leadership.next_term() == Some(term);
        let lives = owner == self.me || self.membership.roster().lives(self.now, module, owner);
        if author != owner && !resumes && !(lives && (hands_off || !claim.is_empty())) {
            return;
        }
        self.hear_claim(module, author, term, owner);
        // Its own claims are signed anew each time.
        if let Some(state) = self.modules.get_mut(&module).filter(|_| owner != self.me) {
            state.leadership.note_claim(term, owner, claim);
        }
        if author == owner && owner != self.me {
            self.count_term(module, owner, term);
        }
    }

    fn hear_claim(&mut self, module: ModuleId, author: PeerKey, term: Term, owner: PeerKey) {
        let Some(state) = self.modules.get(&module) else { return };
        let later = term > state.leadership.term();
        if !self.is_believed(owner) {
            return;
        }
        if term.0.saturating_sub(state.leadership.term().0) > MAX_TERM_JUMP {
            return;
        }
        if owner == self.me {
            // A claim of this node that is not in its journal. Another term makes it valid.
            if later {
                self.adopt_owner(module, term, owner);
                if let Some(state) = self.modules.get_mut(&module) {
                    state.leadership.step_down();
                }
            } else if state.leadership.owner().is_none() && term == state.leadership.term() {
                self.resume_ownership(module, term);
            }
            return;
        }
        let same_term_but_first = term == state.leadership.term()
            && state
                .leadership
                .owner()
                .is_some_and(|current| current != owner && rank(module, owner) > rank(module, current));
        let first_heard = state.leadership.owner().is_none() && term >= state.leadership.term();
        if later || (author == owner && (same_term_but_first || first_heard)) {
            self.adopt_owner(module, term, owner);
        }
    }

    /// A peer has claimed a term itself. One that takes term after term without an update would outbid every other.
    fn count_term(&mut self, module: ModuleId, peer: PeerKey, term: Term) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let too_many = state.leadership.count_term(peer, term);
        if too_many && state.leadership.is_owner(peer) && !state.leadership.has_stepped_down() {
            self.force_step_down(module, format!("it has taken {MAX_TERMS_IN_VAIN} terms and made no update"));
        }
    }

    /// The owner names another owner in the same term. If that peer names this one in turn, nobody would ever do the
    /// work. This happens if both claimed at once and one was restarted before it heard the other.
    fn owner_steps_down(&mut self, module: ModuleId) {
        if let Some(state) = self.modules.get_mut(&module) {
            state.leadership.step_down();
        }
    }

    /// The head of a chain names a later owner than the known one. The next update must not have an earlier term.
    pub(in crate::protocol) fn hear_later_term(&mut self, module: ModuleId, term: Term, owner: PeerKey) {
        if self.modules.get(&module).is_none_or(|state| term <= state.leadership.term()) {
            return;
        }
        self.adopt_owner(module, term, owner);
        // That peer does not own the module now. It is this node without knowing it, or a peer that is not accepted as
        // an owner.
        if (owner == self.me || !self.is_believed(owner))
            && let Some(state) = self.modules.get_mut(&module)
        {
            state.leadership.step_down();
        }
    }

    /// This node leaves. It names its preferred successor in the next term, so that there is no gap.
    pub(in crate::protocol) fn hand_off_ownership(&mut self, module: ModuleId) {
        let Some(state) = self.modules.get(&module).filter(|state| state.leadership.is_owner(self.me)) else { return };
        let (Some(head), Some(term)) = (state.head(), state.leadership.next_term()) else { return };
        let able = self.membership.roster().heads(self.now, module).filter(|(_, other)| *other == head);
        let first = able.map(|(peer, _)| peer).max_by_key(|peer| self.candidacy(module, *peer));
        if let Some(successor) = first {
            self.adopt_owner(module, term, successor);
        }
    }

    /// The owner left in order, so nobody has to wait until its lease expires. It may have named its successor.
    pub(in crate::protocol) fn owner_left(
        &mut self,
        module: ModuleId,
        author: PeerKey,
        named: Option<(Term, PeerKey)>,
    ) {
        let Some(state) = self.modules.get_mut(&module).filter(|state| state.leadership.is_owner(author)) else {
            return;
        };
        state.leadership.step_down();
        let next = state.leadership.next_term();
        let Some((term, successor)) = named.filter(|(term, successor)| Some(*term) == next && *successor != author)
        else {
            return;
        };
        if successor == self.me && state.history.chain().is_some() && term > self.membership.left_in(module) {
            self.adopt_owner(module, term, successor);
            self.send_heartbeat(module);
            self.open_collection(module, 0);
        } else if successor != self.me && self.membership.roster().lives(self.now, module, successor) {
            self.adopt_owner(module, term, successor);
        }
    }

    /// An owner that does not do its work has to step down for the rest of its term. For a while it is not accepted as
    /// an owner again.
    pub(in crate::protocol) fn force_step_down(&mut self, module: ModuleId, reason: String) {
        let Some(state) = self.modules.get(&module) else { return };
        let Some(owner) = state.leadership.owner().filter(|owner| *owner != self.me) else { return };
        self.reputation.owner_failed(self.now, module, owner);
        self.step_down(module, owner, reason);
    }

    /// An owner has to step down for the rest of its term, and may be elected again.
    pub(in crate::protocol) fn step_down(&mut self, module: ModuleId, owner: PeerKey, reason: String) {
        self.owner_steps_down(module);
        self.act(Action::Report(Report::SteppedDown { module, owner, reason }));
    }

    pub(in crate::protocol) fn adopt_owner(&mut self, module: ModuleId, term: Term, owner: PeerKey) {
        self.act(Action::Persist(Record::Term { module, term, owner }));
        self.drop_collection(module);
        let now = self.now;
        let Some(state) = self.modules.get_mut(&module) else { return };
        state.leadership.adopt(now, term, owner);
        self.act(Action::Report(Report::Owner { module, owner }));
        self.release_sealed(module);
        // The new owner may not have heard the outstanding offers.
        self.contributions.offer_again();
    }

    /// The next term in which this node may own a module: after all that it knows, before it left the module, too.
    fn next_term(&self, module: ModuleId) -> Option<Term> {
        let state = self.modules.get(&module)?;
        let after_leaving = self.membership.left_in(module).0.checked_add(1).map(Term)?;
        state.leadership.next_term().map(|next| next.max(after_leaving))
    }

    pub(in crate::protocol) fn take_ownership(&mut self, module: ModuleId) {
        let Some(term) = self.next_term(module) else { return };
        self.adopt_owner(module, term, self.me);
        self.send_heartbeat(module);
        self.open_collection(module, self.membership.response_times().settle_ms());
    }

    /// This node has changed to another chain. If it has signed what it has given up, in its present term, it signs nothing
    /// more in that term: not as the owner, nor where others take it for the owner of that term after a restart.
    pub(in crate::protocol) fn collect_anew(&mut self, module: ModuleId, has_signed: bool) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        match (state.leadership.owner(), state.leadership.next_term()) {
            (Some(owner), _) if owner != self.me => {}
            (Some(_), _) if has_signed => self.take_ownership(module),
            (Some(_), _) => self.open_collection(module, self.membership.response_times().settle_ms()),
            (None, Some(next)) if has_signed => {
                state.leadership.restore(next, None);
                self.act(Action::Persist(Record::Term { module, term: next, owner: self.me }));
            }
            (None, _) => {}
        }
    }

    /// Checks the modules for dead owners, and claims those for which it is this node's turn.
    pub(in crate::protocol) fn watch_owners(&mut self) {
        let modules: Vec<ModuleId> = self.modules.keys().copied().collect();
        for module in modules {
            self.watch_work(module);
            self.yield_when_outvoted(module);
            if self.should_elect_self(module) {
                self.take_ownership(module);
            }
        }
    }

    /// Most members do not follow an owner whose chain they contradict. In the next term it names one of those that have the
    /// most beside them.
    fn yield_when_outvoted(&mut self, module: ModuleId) {
        let Some(state) = self.modules.get(&module).filter(|state| state.leadership.is_owner(self.me)) else { return };
        let (Some(chain), Some(term)) = (state.history.chain(), state.leadership.next_term()) else { return };
        if state.catch_up.outvoted_ms(self.now).is_none_or(|ms| ms < OUTVOTED_OWNER_MS) {
            return;
        }
        let others: Vec<_> = self.attesters(module).filter(|it| it.contradicts(chain)).collect();
        let beside = |head: Head| others.iter().filter(|it| it.head.update == head.update).count();
        let lives = |peer| self.membership.roster().lives(self.now, module, peer) && self.is_believed(peer);
        let able = others.iter().filter(|it| lives(it.peer));
        let first = able.max_by_key(|it| (beside(it.head), it.head.weight, Reverse(it.head.update)));
        if let Some(successor) = first.map(|it| it.peer) {
            self.adopt_owner(module, term, successor);
        }
    }

    fn should_elect_self(&mut self, module: ModuleId) -> bool {
        let now = self.now;
        let Some(state) = self.modules.get(&module) else { return false };
        let (owner, stepped_down) = (state.leadership.owner(), state.leadership.has_stepped_down());
        let listened = self.lifecycle.has_listened(now) || state.leadership.knows_of_step_down();
        let Some(head) = state.head() else { return false };
        let alive = owner.is_some_and(|owner| owner == self.me || self.membership.roster().lives(now, module, owner));
        let at_work = alive && !stepped_down && owner.is_some_and(|owner| owner == self.me || !self.is_silent(owner));
        // This is nearly always the case, and no ranking is needed.
        if let Some(state) = self.modules.get_mut(&module).filter(|_| at_work) {
            state.leadership.note_alive();
            return false;
        }
        let heads =
            self.membership.roster().heads(now, module).filter(|(peer, _)| Some(*peer) != owner || stepped_down);
        let others: Vec<(PeerKey, Head)> = heads.collect();
        let mine = self.candidacy(module, self.me);
        // A member that is behind ranks after all that are not, because it has to catch up first.
        let before_me = others.iter().filter(|(peer, other)| match other == &head {
            true => self.candidacy(module, *peer) > mine,
            false => other.outweighs(&head),
        });
        let before_me = before_me.filter(|(peer, _)| self.is_believed(*peer)).count() as u64;
        let asks = alive && !stepped_down && listened && before_me == 0;
        let dead = match owner.filter(|owner| asks && *owner != self.me) {
            Some(owner) => self.is_dead(module, owner),
            None => !alive,
        };
        let Some(state) = self.modules.get_mut(&module) else { return false };
        if !dead && !stepped_down {
            state.leadership.note_alive();
            return false;
        }
        // An owner that was never heard gets the time of a lease. The time is longer if this peer has restarted and has
        // heard nobody yet, because the others have continued without it.
        let timeout = match state.leadership.owner() {
            _ if self.membership.start().incarnation > 1 && !state.leadership.has_heard_members() => LONELY_RETURN_MS,
            Some(_) => 0,
            None => MEMBER_LEASE_MS,
        };
        let since = state.leadership.note_vacant(now);
        listened && now.since(since) >= timeout + before_me * ELECTION_STAGGER_MS
    }

    /// The order of candidates for a module at the same head: the highest is elected. Peers that come and go are last.
    fn candidacy(&self, module: ModuleId, peer: PeerKey) -> (bool, [u8; 32]) {
        let steady_ms = match peer == self.me {
            true => self.now.since(self.lifecycle.began()),
            false => self.membership.roster().steady_ms(self.now, peer),
        };
        (steady_ms >= STEADY_MS, rank(module, peer))
    }

    /// Forces an owner to step down if its update is overdue although the contributions were offered.
    fn watch_work(&mut self, module: ModuleId) {
        let now = self.now;
        let Some(state) = self.modules.get(&module).filter(|state| !state.leadership.has_stepped_down()) else {
            return;
        };
        let open = state.leadership.owner().is_some_and(|owner| owner != self.me);
        let Some(head) = state.head().filter(|head| open && !self.plan.is_done(module, *head)) else { return };
        // Before that time, or before any offer, nothing is overdue, and the expected paths need not be computed.
        let waited_ms =
            now.since(state.history.advanced().max(state.leadership.owner_since()).max(self.lifecycle.began()));
        let on_offer = state.offers.keys().any(|(_, parent, _)| parent == head.version);
        if self.plan.mode == OuterMode::Synchronous
            && (!on_offer || (state.leadership.offered_since().is_some() && waited_ms < OVERDUE_MS))
        {
            return;
        }
        // What the owner offers itself says nothing of how long the others take.
        let others = |author: PeerKey, path| !state.leadership.is_owner(author) && self.may_offer(author, path);
        let offered = |path: PathId| state.offers.is_offered_by(path, head.version, |author| others(author, path));
        let expected = self.expected(module);
        let begun = match self.plan.mode {
            OuterMode::Synchronous => expected.keys().any(|path| offered(*path)),
            OuterMode::Asynchronous => self.has_offered(module, head),
        };
        let Some(offered_since) = begun.then(|| state.leadership.offered_since().unwrap_or(now)) else { return };
        let due_ms = self.due_ms(module, state, offered_since) + self.pause_ms(module) + OVERDUE_MS;
        let overdue = match self.plan.deterministic {
            true => waited_ms >= due_ms && expected.keys().all(|path| self.is_offered(state, *path, head.version)),
            false => quorum(&expected, offered, 0, waited_ms / due_ms),
        };
        if let Some(state) = self.modules.get_mut(&module) {
            state.leadership.note_offered(offered_since);
        }
        if overdue {
            self.force_step_down(module, format!("its update is overdue: none for {} s", waited_ms / 1_000));
        }
    }

    /// How long an owner may take for its next update, as far as this node knows. It follows from the same measurements
    /// as the owner's own deadline (`collection.rs`). A member that joined in the middle of a phase and has not seen a
    /// whole one also uses its own inner steps. Before it has made them, it waits for a long time.
    fn due_ms(&self, module: ModuleId, state: &Replica, offered_since: Millis) -> u64 {
        let slower = DEADLINE_FACTOR * self.turns(module).max(1);
        let usual_ms = state.history.phases().deadline_ms();
        let took_ms = offered_since.since(state.history.advanced().max(self.lifecycle.began()));
        let seen_ms = usual_ms.unwrap_or(0).max(took_ms.saturating_mul(slower));
        if usual_ms.is_some() || state.history.phase_began().is_some() {
            return seen_ms;
        }
        let own_ms = match self.plan.mode {
            OuterMode::Synchronous => self.trainers.slowest().map(|measured| measured.phase_ms(self.plan.inner_steps)),
            OuterMode::Asynchronous => Some(self.pause_ms(module)).filter(|pause_ms| *pause_ms > 0),
        };
        seen_ms.max(own_ms.map_or(UNMEASURED_DUE_MS, |own_ms| own_ms.saturating_mul(slower)))
    }

    /// Whether this node has an offer for the next update. An asynchronous owner waits for nobody, so that is enough.
    /// Offers of other peers do not count, because it is uncertain whether their blobs can be had.
    fn has_offered(&self, module: ModuleId, head: Head) -> bool {
        self.outstanding_offers().any(|offer| offer.module == module && offer.parent <= head.version)
    }

    /// Notes a new head. Lateness is counted from here. The time between missed updates does not measure a phase.
    pub(in crate::protocol) fn head_moved(&mut self, module: ModuleId, missed: bool) {
        let now = self.now;
        let Some(state) = self.modules.get_mut(&module) else { return };
        state.history.head_moved(now, missed);
        state.leadership.head_moved();
        self.lifecycle.note_move();
    }
}
