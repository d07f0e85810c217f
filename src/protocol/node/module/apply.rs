//! A member's part: from an update that was heard to a new head.

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey, Version};
use crate::protocol::Node;
use crate::protocol::action::{Action, Outer, Report};
use crate::protocol::blobs::Purpose;
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{MAX_REFUSED, MAX_TERM_JUMP, MEMBER_LEASE_MS, STATES_KEPT};
use crate::protocol::module::chain::head_of;
use crate::protocol::module::validate::check_update;
use crate::protocol::wire::message::{Head, Offer, SignedUpdate, Update};

/// The update that comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Next {
    pub(in crate::protocol) signed: SignedUpdate,
    /// Whether it is being applied.
    pub(in crate::protocol) applying: bool,
    /// Since when its average is here.
    pub(in crate::protocol) here_since: Option<Millis>,
    /// It was published while this node did not listen, nobody knows when.
    pub(in crate::protocol) missed: bool,
}

/// An average that is being applied. They come back in the order in which they were given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Apply {
    pub(in crate::protocol) from: BlobHash,
    pub(in crate::protocol) average: BlobHash,
    /// Not if the chain has been given up meanwhile.
    pub(in crate::protocol) wanted: bool,
}

impl Node {
    pub(in crate::protocol) fn heard_update(&mut self, module: ModuleId, signed: &SignedUpdate) {
        let Some(state) = self.modules.get(&module) else { return };
        let update = &signed.update;
        let Some(chain) = &state.chain else { return };
        if update.module != module || !chain.fits(update) {
            // Older, or there is a gap before it, which beats show too and catching up closes.
            return;
        }
        let (term, owner) = (update.term, update.owner);
        if !self.is_believed(owner) {
            let reason =
                format!("version {} comes from …{}, which is not believed for now", update.version, owner.short());
            return self.refuse(module, owner, reason);
        }
        if term < state.term {
            let reason = format!("version {} comes from term {term}, now is {}", update.version, state.term);
            return self.refuse(module, owner, reason);
        }
        if term.0.saturating_sub(state.term.0) > MAX_TERM_JUMP {
            let reason = format!("version {} comes from term {term}, far from {}", update.version, state.term);
            return self.refuse(module, owner, reason);
        }
        if let Err(reason) = check_update(&self.plan, chain, update) {
            let reason = format!("version {}: {reason}", update.version);
            self.refuse(module, owner, reason.clone());
            return self.signed_wrong(module, signed, reason);
        }
        if term > state.term && owner != self.me {
            self.adopt_owner(module, term, owner);
        }
        self.take_next(module, signed.clone(), false);
    }

    /// Begins to apply an update, wherever it came from. Whether it has begun, or had before.
    pub(in crate::protocol) fn take_next(&mut self, module: ModuleId, signed: SignedUpdate, missed: bool) -> bool {
        let Some(state) = self.modules.get_mut(&module) else { return false };
        let Some(chain) = &state.chain else { return false };
        if state.next.as_ref().is_some_and(|next| next.applying || next.signed == signed) {
            return true;
        }
        let is_bad = |hash| state.refused.contains(&hash) || self.auditing.is_condemned(hash);
        let known_bad = head_of(&signed.update).is_none_or(|head| is_bad(head.update));
        if known_bad {
            return false;
        }
        if let Err(reason) = check_update(&self.plan, chain, &signed.update) {
            let reason = format!("version {}: {reason}", signed.update.version);
            self.refuse(module, signed.update.owner, reason);
            return false;
        }
        let version = chain.head().version;
        let (average, owner) = (signed.update.average, signed.update.owner);
        let before = state.next.replace(Next { signed, applying: false, here_since: None, missed });
        self.forget_next(module, before);
        // Whoever has applied it can serve it, and whoever fetches it now can serve what has come.
        let (ahead, beside): (Vec<_>, Vec<_>) =
            self.membership.roster().heads(self.now, module).partition(|(_, head)| head.version > version);
        let keys = |heads: Vec<(PeerKey, Head)>| heads.into_iter().map(|(peer, _)| peer).collect();
        let mut holders = vec![owner];
        holders.extend(self.after_me(keys(ahead)));
        if owner != self.me {
            holders.extend(self.after_me(keys(beside)));
        }
        self.fetch_from(average, &holders, Purpose::Average(module));
        true
    }

    /// What comes next does not come: nor does what was to follow it. Catching up asks somebody else, if others have it.
    pub(in crate::protocol) fn abandon_next(&mut self, module: ModuleId) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let next = state.next.take();
        state.replay.clear();
        state.catch_up.failures += 1;
        for apply in &mut state.applies {
            apply.wanted = false;
        }
        self.forget_next(module, next);
        self.reopen(module);
    }

    /// What was to be applied, and is not. Where this node has signed it, it signs no other in the same term.
    fn forget_next(&mut self, module: ModuleId, next: Option<Next>) {
        let Some(Next { signed, .. }) = next else { return };
        self.forget(signed.update.average.hash);
        self.forget(signed.update.state.hash);
        let term = self.modules.get(&module).map(|state| state.term);
        if signed.update.owner == self.me && self.owns(module) && term == Some(signed.update.term) {
            self.claim(module);
        }
    }

    fn refuse(&mut self, module: ModuleId, by: PeerKey, reason: String) {
        self.act(Action::Report(Report::Refused { module, by, reason }));
    }

    /// An owner whose update does not do what it says is none.
    fn signed_wrong(&mut self, module: ModuleId, signed: &SignedUpdate, reason: String) {
        let (owner, term) = (signed.update.owner, signed.update.term);
        if self.modules.get(&module).is_some_and(|state| state.owner == Some(owner) && state.term == term) {
            self.depose(module, reason);
        }
    }

    pub(in crate::protocol) fn average_fetched(&mut self, module: ModuleId, blob: BlobHash, found: bool) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        if state.chain.is_none() {
            return;
        }
        let Some(next) = state.next.as_mut().filter(|next| next.signed.update.average.hash == blob) else { return };
        if next.applying {
            return;
        }
        if !found {
            state.catch_up.whole = true;
            return self.abandon_next(module);
        }
        next.here_since = Some(self.now);
        self.apply_next(module);
    }

    /// Applies what comes next once its average is here. An owner lets another member go first, if there is one that
    /// can: what it alone has applied would be lost with it, and the others would go on from the version before.
    pub(in crate::protocol) fn apply_next(&mut self, module: ModuleId) {
        let now = self.now;
        let Some(state) = self.modules.get(&module) else { return };
        let (Some(head), Some(next)) = (state.head(), &state.next) else { return };
        let Some(since) = next.here_since.filter(|_| !next.applying) else { return };
        let update = &next.signed.update;
        if update.owner == self.me && now.since(since) < MEMBER_LEASE_MS {
            let able = self.membership.roster().heads(now, module).filter(|(_, other)| other.version >= head.version);
            let mut able = able.map(|(_, other)| other.version).peekable();
            if able.peek().is_some() && !able.any(|version| version >= update.version) {
                return;
            }
        }
        let (version, average) = (update.version, update.average);
        let portion = self.plan.portion(module, update.version, &update.contributions);
        let Some(state) = self.modules.get_mut(&module) else { return };
        if let Some(next) = &mut state.next {
            next.applying = true;
        }
        state.applies.push_back(Apply { from: head.state.hash, average: average.hash, wanted: true });
        self.act(Action::Outer(Outer::Apply { module, version, from: head.state, average, portion }));
    }

    pub(in crate::protocol) fn applied(&mut self, module: ModuleId, version: Version, made: Option<BlobRef>) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let apply = state.applies.pop_front();
        if let Some(made) = made {
            self.forget(made.hash);
        }
        let Some(state) = self.modules.get_mut(&module) else { return };
        if apply.is_none_or(|apply| !apply.wanted) {
            self.blobs.look_again();
            return;
        }
        let Some(next) = state.next.take_if(|next| next.applying && next.signed.update.version == version) else {
            return;
        };
        if made == Some(next.signed.update.state) {
            return self.advance(module, next.signed, next.missed);
        }
        if let Some(head) = head_of(&next.signed.update) {
            if state.refused.len() >= MAX_REFUSED {
                state.refused.pop_first();
            }
            state.refused.insert(head.update);
        }
        let reason = format!("version {version}: the state it makes has another hash here");
        self.refuse(module, next.signed.update.owner, reason.clone());
        self.signed_wrong(module, &next.signed, reason);
        self.forget_next(module, Some(next));
        self.abandon_next(module);
    }

    /// A new head.
    fn advance(&mut self, module: ModuleId, signed: SignedUpdate, missed: bool) {
        self.act(Action::Persist(Record::Head(signed.clone())));
        let contributions = signed.update.contributions.len();
        let version = signed.update.version;
        let (term, owner) = (signed.update.term, signed.update.owner);
        self.note_conduct(module, &signed);
        self.note_counted(module, &signed.update);
        self.put_head(module, signed.clone());
        self.head_moved(module, missed);
        self.hear_later_term(module, term, owner);
        self.draw_audit(module, &signed);
        self.act(Action::Report(Report::Advanced { module, version, contributions }));
        self.tell_lost(module, Version(version.0.saturating_sub(1)));
        if self.owns(module) {
            self.open_collection(module, 0);
        } else {
            // Its owner waits to hear that somebody has it.
            self.beat_on(module);
        }
        self.replay_next(module);
        self.release_contributions();
    }

    pub(in crate::protocol) fn put_head(&mut self, module: ModuleId, signed: SignedUpdate) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let mut let_go = Vec::new();
        state.catch_up.whole = false;
        state.states.push_back(signed.update.state);
        while state.states.len() > STATES_KEPT {
            let_go.extend(state.states.pop_front().map(|old| old.hash));
        }
        if self.plan.counts_once() {
            state.note_counted_from(&signed.update);
        }
        if let Some(oldest) = state.chain.as_mut().and_then(|chain| chain.push(signed)) {
            let_go.push(oldest.update.average.hash);
            let_go.extend(oldest.update.contributions.iter().map(|counted| counted.blob.hash));
        }
        state.prune_offers();
        for blob in let_go {
            self.forget(blob);
        }
    }
}

impl crate::protocol::Module {
    /// What the next update counts began where its offer says; of who was not heard, where those do that are in time.
    fn note_counted_from(&mut self, next: &Update) {
        for counted in &next.contributions {
            let heard = self.offers.get(&counted.key()).map(|(offer, _)| offer.parent_update);
            let in_time = (counted.parent.next() == next.version).then_some(next.parent);
            self.counted_from.extend(heard.or(in_time).map(|from| (counted.path, counted.parent, from)));
        }
    }

    /// Offers that are counted by now, or another's in their place, or cannot be any more.
    pub(in crate::protocol) fn prune_offers(&mut self) {
        if let Some(chain) = &self.chain {
            let head = chain.head().version;
            let open = |parent: Version| crate::protocol::node::module::aggregation::countable(head, parent);
            self.counted_from.retain(|(_, parent, _)| open(*parent));
            let twice = |offer: &Offer| self.counted_from.contains(&offer.start());
            self.offers.retain(|key, (offer, _)| open(key.1) && !chain.has_counted(*key) && !twice(offer));
        }
    }
}
