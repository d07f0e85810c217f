//! A member's work, from a received update to a new head.

use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey, Version};
use crate::protocol::Node;
use crate::protocol::action::{Action, Outer, Report};
use crate::protocol::blobs::Purpose;
use crate::protocol::journal::record::Record;
use crate::protocol::limits::{MAX_TERM_JUMP, MEMBER_LEASE_MS};
use crate::protocol::module::apply_queue::Next;
use crate::protocol::module::chain::head_of;
use crate::protocol::module::validate::check_update;
use crate::protocol::wire::message::{Head, SignedUpdate};

impl Node {
    pub(in crate::protocol) fn heard_update(&mut self, module: ModuleId, signed: &SignedUpdate) {
        let Some(state) = self.modules.get(&module) else { return };
        let update = &signed.update;
        let Some(chain) = state.history.chain() else { return };
        if update.module != module || !chain.fits(update) || self.plan.is_after_the_end(update) {
            // The update is older, there is a gap before it, or its owner knows of an amendment of the run. Heartbeats reveal a
            // gap too, and catch-up closes it.
            return;
        }
        let (term, owner) = (update.term, update.owner);
        if !self.is_believed(owner) {
            let reason = format!(
                "version {} comes from …{}, which is not accepted as an owner for now",
                update.version,
                owner.short()
            );
            return self.refuse(module, owner, reason);
        }
        if term < state.leadership.term() {
            let reason = format!(
                "version {} comes from term {term}, the current one is {}",
                update.version,
                state.leadership.term()
            );
            return self.refuse(module, owner, reason);
        }
        if term.0.saturating_sub(state.leadership.term().0) > MAX_TERM_JUMP {
            let reason =
                format!("version {} comes from term {term}, too far from {}", update.version, state.leadership.term());
            return self.refuse(module, owner, reason);
        }
        if let Err(reason) = check_update(&self.plan, chain, update) {
            let reason = format!("version {}: {reason}", update.version);
            self.refuse(module, owner, reason.clone());
            return self.signed_wrong(module, signed, reason);
        }
        if let Some(longer) = self.extended(module, std::slice::from_ref(signed))
            && self.counts_unheard(module, &longer)
            && self.attested(module, &longer).is_none()
        {
            return self.doubt(module, signed, &longer);
        }
        if term > state.leadership.term() && owner != self.me {
            self.adopt_owner(module, term, owner);
        }
        self.take_next(module, signed.clone(), false);
    }

    /// Begins to apply an update, whatever its source. Returns whether it has begun, now or before.
    pub(in crate::protocol) fn take_next(&mut self, module: ModuleId, signed: SignedUpdate, missed: bool) -> bool {
        let Some(state) = self.modules.get_mut(&module) else { return false };
        let Some(chain) = state.history.chain() else { return false };
        if state.applying.is_applying() || state.applying.next() == Some(&signed) {
            return true;
        }
        let is_bad = |hash| state.applying.has_refused(hash) || self.reputation.audits().is_invalidated(hash);
        let known_bad = head_of(&signed.update).is_none_or(|head| is_bad(head.update));
        if known_bad || self.plan.is_after_the_end(&signed.update) {
            return false;
        }
        if let Err(reason) = check_update(&self.plan, chain, &signed.update) {
            let reason = format!("version {}: {reason}", signed.update.version);
            self.refuse(module, signed.update.owner, reason);
            return false;
        }
        let version = chain.head().version;
        let (average, owner) = (signed.update.average, signed.update.owner);
        let before = state.applying.set_next(signed, missed);
        self.drop_next(module, before);
        // A peer that has applied the update can serve it, and a peer that is fetching it can serve the part that it
        // has.
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

    /// The next update and those after it are abandoned. Catch-up asks another donor, if there is one.
    pub(in crate::protocol) fn abandon_next(&mut self, module: ModuleId) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let next = state.applying.abandon();
        state.catch_up.failed();
        self.drop_next(module, next);
        self.reopen(module);
    }

    /// Releases an update that was not applied. If this node has signed it, it takes another term, because it must not
    /// sign another update in the same one.
    fn drop_next(&mut self, module: ModuleId, next: Option<Next>) {
        let Some(Next { signed, .. }) = next else { return };
        self.release_made(&signed);
        self.release(signed.update.state.hash);
        let term = self.modules.get(&module).map(|state| state.leadership.term());
        if signed.update.owner == self.me && self.owns(module) && term == Some(signed.update.term) {
            self.take_ownership(module);
        }
    }

    fn refuse(&mut self, module: ModuleId, by: PeerKey, reason: String) {
        self.act(Action::Report(Report::Refused { module, by, reason }));
    }

    /// An owner whose update is wrong has to step down.
    fn signed_wrong(&mut self, module: ModuleId, signed: &SignedUpdate, reason: String) {
        if self.modules.get(&module).is_some_and(|state| state.leadership.has_signed(&signed.update)) {
            self.force_step_down(module, reason);
        }
    }

    pub(in crate::protocol) fn average_fetched(&mut self, module: ModuleId, blob: BlobHash, found: bool) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        if state.history.chain().is_none() {
            return;
        }
        if !state.applying.waits_for(blob) {
            return;
        }
        if !found {
            state.catch_up.need_whole();
            self.note_unfetchable(module);
            return self.abandon_next(module);
        }
        state.applying.average_is_here(self.now);
        self.apply_next(module);
    }

    /// The average of the next update could not be fetched, in several attempts. If this node's own connection works,
    /// the owner steps down.
    fn note_unfetchable(&mut self, module: ModuleId) {
        let works = self.reputation.own_link_works(self.now);
        let Some(state) = self.modules.get(&module).filter(|_| works) else { return };
        if state.applying.next().is_some_and(|signed| state.leadership.has_signed(&signed.update)) {
            self.force_step_down(module, "its update cannot be fetched".to_owned());
        }
    }

    /// Applies the next update once its average is here. An owner lets another capable member go first. An update that
    /// only the owner had applied would be lost with it, and the others would continue from the version before.
    pub(in crate::protocol) fn apply_next(&mut self, module: ModuleId) {
        let now = self.now;
        let Some(state) = self.modules.get(&module) else { return };
        let (Some(head), Some((signed, since))) = (state.head(), state.applying.ready()) else { return };
        let update = &signed.update;
        if update.owner == self.me && now.since(since) < MEMBER_LEASE_MS {
            let able = self.membership.roster().heads(now, module).filter(|(_, other)| other.version >= head.version);
            let mut able = able.map(|(_, other)| other.version).peekable();
            if able.peek().is_some() && !able.any(|version| version >= update.version) {
                return;
            }
        }
        let (version, average) = (update.version, update.average);
        let portion = self.plan.portion(module, &update.contributions);
        let Some(state) = self.modules.get_mut(&module) else { return };
        state.applying.begin(head.state.hash);
        self.act(Action::Outer(Outer::Apply { module, version, from: head.state, average, portion }));
    }

    pub(in crate::protocol) fn applied(&mut self, module: ModuleId, version: Version, made: Option<BlobRef>) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let wanted = state.applying.applied();
        if let Some(made) = made {
            self.release(made.hash);
        }
        let Some(state) = self.modules.get_mut(&module) else { return };
        if !wanted {
            self.blobs.look_again();
            return;
        }
        let Some(next) = state.applying.take_applied(version) else { return };
        if made == Some(next.signed.update.state) {
            return self.advance(module, next.signed, next.missed);
        }
        if let Some(head) = head_of(&next.signed.update) {
            state.applying.refuse(head.update);
        }
        let reason = format!("version {version}: the resulting state has another hash here");
        self.refuse(module, next.signed.update.owner, reason.clone());
        self.signed_wrong(module, &next.signed, reason);
        self.drop_next(module, Some(next));
        self.abandon_next(module);
    }

    /// Adopts a new head.
    fn advance(&mut self, module: ModuleId, signed: SignedUpdate, missed: bool) {
        self.act(Action::Persist(Record::Head(signed.clone())));
        let contributions = signed.update.contributions.len();
        let version = signed.update.version;
        let (term, owner) = (signed.update.term, signed.update.owner);
        self.score_contributions(module, &signed);
        self.note_counted(module, &signed.update);
        self.note_passed_over(module, &signed.update);
        self.put_head(module, signed.clone());
        self.head_moved(module, missed);
        self.hear_later_term(module, term, owner);
        self.draw_audit(module, &signed);
        self.act(Action::Report(Report::Advanced { module, version, contributions }));
        self.tell_lost(module, Version(version.0.saturating_sub(1)));
        if self.owns(module) {
            self.open_collection(module, 0);
        } else {
            // The owner waits until another member has the head.
            self.send_heartbeat(module);
        }
        self.replay_next(module);
        self.release_contributions();
    }

    pub(in crate::protocol) fn put_head(&mut self, module: ModuleId, signed: SignedUpdate) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        state.catch_up.advanced();
        if self.plan.counts_once() {
            state.offers.note_counted_from(&signed.update);
        }
        let released = state.history.push(signed);
        state.history.chain().into_iter().for_each(|chain| state.offers.prune(chain));
        for blob in released {
            self.release(blob);
        }
    }
}
