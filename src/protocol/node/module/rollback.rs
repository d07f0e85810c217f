//! Rollback to the version before an invalidated update.
//!
//! A member that has the state before the update continues from there. A member that no longer has it, because more
//! updates have followed, treats any chain without the update as better than its own, and asks for it. If for a long
//! time no peer has such a chain, the member keeps its own: one wrong update must not cost the module. The owner stays
//! the same.

use crate::clock::Millis;
use crate::names::ModuleId;
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::limits::INVALIDATED_MS;
use crate::protocol::wire::encoding::update_hash;
use crate::protocol::wire::message::{SignedUpdate, UpdateHash};

impl Node {
    /// Cuts the module's chain before the update, if the chain contains it.
    pub(in crate::protocol) fn go_back(&mut self, module: ModuleId, update: UpdateHash) {
        let Some(genesis) = self.plan.genesis.get(&module).copied() else { return };
        let now = self.now;
        let Some(state) = self.modules.get_mut(&module) else { return };
        let refused = state.catch_up.refuse(update);
        refused.into_iter().for_each(|chain| self.release(chain.head().state.hash));
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(chain) = state.history.chain().filter(|chain| chain.contains(update)) else {
            if state.applying.next().is_some_and(|next| update_hash(&next.update) == Some(update)) {
                self.abandon_next(module);
            }
            return;
        };
        let from = chain.head().version;
        let Some(before) = state.history.before(update, genesis) else {
            return state.history.invalidate(now);
        };
        let to = before.head().version;
        let has_signed = self.switch_chain(module, before);
        self.head_moved(module, true);
        self.act(Action::Report(Report::WentBack { module, from, to }));
        self.send_heartbeat(module);
        self.collect_anew(module, has_signed);
        // The contributions of the wrong update are to be counted again.
        self.contributions.offer_again();
    }

    /// The same from the journal, without any message.
    pub(in crate::protocol) fn restore_before(&mut self, module: ModuleId, update: UpdateHash) {
        let Some(genesis) = self.plan.genesis.get(&module).copied() else { return };
        let Some(state) = self.modules.get_mut(&module) else { return };
        state.history.restore_before(self.now, update, genesis);
    }

    /// In every sweep: accepts an invalidated update that no peer can roll back.
    pub(in crate::protocol) fn live_with_it(&mut self) {
        let now = self.now;
        for module in self.reputation.audits().invalidated_in() {
            let Some(state) = self.modules.get(&module) else { continue };
            let Some(chain) = state.history.chain() else { continue };
            let mine = chain.head();
            let members = self
                .membership
                .roster()
                .heads(now, module)
                .filter(|(peer, _)| !self.reputation.scores().is_quarantined(now, *peer));
            let (ahead, all) =
                members.fold((0, 1), |(ahead, all), (_, head)| (ahead + usize::from(head.outweighs(&mine)), all + 1));
            let gives_up = state.history.invalidated_since().is_some_and(|since| now.since(since) >= INVALIDATED_MS);
            let outvoted = 2 * ahead > all;
            let stays = |update: UpdateHash, since: Millis| {
                (gives_up && chain.contains(update)) || (outvoted && now.since(since) >= 2 * INVALIDATED_MS)
            };
            self.reputation.audits_mut().accept(module, stays);
            if let Some(state) = self.modules.get_mut(&module).filter(|_| gives_up) {
                state.history.accept_as_it_is();
            }
        }
    }

    /// Whether a chain from another peer contains an invalidated update. If so, it is not adopted.
    pub(in crate::protocol) fn has_invalidated<'a>(&self, mut updates: impl Iterator<Item = &'a SignedUpdate>) -> bool {
        updates
            .any(|signed| update_hash(&signed.update).is_some_and(|hash| self.reputation.audits().is_invalidated(hash)))
    }
}
