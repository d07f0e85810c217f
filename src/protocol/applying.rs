//! A member's part: from an update that was heard to a new head.

use super::Node;
use super::action::{Action, Report};
use super::chain::head_of;
use super::check::check_update;
use super::fetching::Purpose;
use super::limits::STATES_KEPT;
use super::message::SignedUpdate;
use super::record::Record;
use crate::names::{BlobHash, BlobRef, ModuleId, Version};

/// Most updates remembered as refused, for each module.
const MAX_REFUSED: usize = 16;

/// The update that comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) signed: SignedUpdate,
    /// Whether its average is here and being applied.
    pub(super) applying: bool,
}

impl Node {
    pub(super) fn heard_update(&mut self, module: ModuleId, signed: SignedUpdate) {
        let Some(state) = self.modules.get(&module) else { return };
        let update = &signed.update;
        let Some(chain) = &state.chain else { return };
        if update.module != module || !chain.fits(update) {
            // Older, or there is a gap before it, which beats show too and catching up closes.
            return;
        }
        if update.term < state.term {
            let reason = format!("version {} comes from term {}, now is {}", update.version, update.term, state.term);
            return self.refuse(module, reason);
        }
        if update.term > state.term && update.owner != self.me {
            let (term, owner) = (update.term, update.owner);
            self.adopt_owner(module, term, owner);
        }
        self.take_next(module, signed);
    }

    /// Begins to apply an update that fits, wherever it came from.
    pub(super) fn take_next(&mut self, module: ModuleId, signed: SignedUpdate) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(head) = state.head() else { return };
        if state.next.as_ref().is_some_and(|next| next.applying || next.signed == signed) {
            return;
        }
        let known_bad = head_of(&signed.update).is_none_or(|head| state.refused.contains(&head.update));
        if known_bad {
            return;
        }
        if let Err(reason) = check_update(&self.plan, head, &signed.update) {
            let reason = format!("version {}: {reason}", signed.update.version);
            return self.refuse(module, reason);
        }
        let (average, owner) = (signed.update.average, signed.update.owner);
        state.next = Some(Next { signed, applying: false });
        self.fetch(average, owner, Purpose::Average(module));
        // Whoever has already applied it can serve it, too.
        let version = head.version;
        let others: Vec<_> = self.roster.heads(self.now, module).filter(|(_, head)| head.version > version).collect();
        for (peer, _) in others {
            self.fetch(average, peer, Purpose::Average(module));
        }
    }

    fn refuse(&mut self, module: ModuleId, reason: String) {
        self.act(Action::Report(Report::Refused { module, reason }));
    }

    pub(super) fn average_fetched(&mut self, module: ModuleId, blob: BlobHash, found: bool) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(head) = state.head() else { return };
        let Some(next) = state.next.as_mut().filter(|next| next.signed.update.average.hash == blob) else { return };
        if !found {
            // Catching up asks somebody else, if others have it.
            state.next = None;
            return;
        }
        next.applying = true;
        let (version, average) = (next.signed.update.version, next.signed.update.average);
        self.act(Action::Apply { module, version, from: head.state, average });
    }

    pub(super) fn applied(&mut self, module: ModuleId, version: Version, made: Option<BlobRef>) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        if state.next.as_ref().is_none_or(|next| next.signed.update.version != version) {
            return;
        }
        let Some(next) = state.next.take() else { return };
        if made == Some(next.signed.update.state) {
            return self.advance(module, next.signed);
        }
        if let Some(head) = head_of(&next.signed.update)
            && state.refused.len() < MAX_REFUSED
        {
            state.refused.insert(head.update);
        }
        // An owner whose update does not do what it says is none.
        if state.owner == Some(next.signed.update.owner) {
            state.owner = None;
        }
        state.replay.clear();
        if let Some(made) = made {
            self.act(Action::Forget(made.hash));
        }
        self.refuse(module, format!("version {version}: the state it makes has another hash here"));
    }

    /// A new head.
    fn advance(&mut self, module: ModuleId, signed: SignedUpdate) {
        self.act(Action::Persist(Record::Head(signed.clone())));
        let contributions = signed.update.contributions.len();
        let version = signed.update.version;
        self.put_head(module, signed);
        self.act(Action::Report(Report::Advanced { module, version, contributions }));
        if self.owns(module) {
            self.open_collection(module, 0);
        }
        self.replay_next(module);
        self.release_finished();
    }

    pub(super) fn put_head(&mut self, module: ModuleId, signed: SignedUpdate) {
        let Some(state) = self.modules.get_mut(&module) else { return };
        let made = signed.update.state;
        if let Some(chain) = &mut state.chain
            && let Some(oldest) = chain.push(signed)
        {
            self.actions.push(Action::Forget(oldest.update.average.hash));
            let counted = oldest.update.contributions.iter();
            self.actions.extend(counted.map(|counted| Action::Forget(counted.blob)));
        }
        if let Some(chain) = &state.chain {
            state.offers.retain(|(path, parent), _| !chain.has_counted(*path, *parent));
        }
        state.states.push_back(made);
        while state.states.len() > STATES_KEPT {
            if let Some(old) = state.states.pop_front() {
                self.actions.push(Action::Forget(old.hash));
            }
        }
    }
}
