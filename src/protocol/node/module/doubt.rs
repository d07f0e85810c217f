//! Updates that count contributions which nobody has offered: they wait until the offers are heard, or until other
//! members attest the update.

use crate::names::ModuleId;
use crate::protocol::Node;
use crate::protocol::limits::DOUBT_MS;
use crate::protocol::module::doubt::is_doubtful;
use crate::protocol::wire::message::{Counted, SignedUpdate};

impl Node {
    /// Whether an update after the head counts contributions that nobody has offered, as far as this node can tell.
    /// Gossip may lose an offer, so this is a doubt and no proof.
    pub(in crate::protocol) fn counts_unheard(&self, module: ModuleId, signed: &SignedUpdate) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let (update, Some(head)) = (&signed.update, state.head()) else { return false };
        // Where the owner is the only other member, nobody else could attest the update.
        let alone = self.attesters(module).nth(1).is_none();
        // What was offered before is repeated by then, and once more if gossip has lost it.
        let heard_all = state.doubt.listened_ms(self.now) >= 2 * self.membership.response_times().repeat_ms();
        if update.parent != head.update || alone || !heard_all {
            return false;
        }
        let own = |counted: &Counted| {
            self.contributions.all().any(|(_, path, _, blob)| (path, blob) == (counted.path, counted.blob))
        };
        let counted = &update.contributions;
        let unheard = counted.iter().filter(|it| !state.offers.contains(&it.key()) && !own(it));
        is_doubtful(counted.len(), unheard.count())
    }

    /// Holds an update back. A later look applies it once its offers are here.
    pub(in crate::protocol) fn doubt(&mut self, module: ModuleId, signed: &SignedUpdate) {
        let now = self.now;
        self.modules.entry(module).and_modify(|state| state.doubt.hold(now, signed));
    }

    /// Applies the update that was held back, if its offers were heard meanwhile or other members have applied it. If no
    /// majority has done so after a while, its owner has to step down.
    pub(in crate::protocol) fn look_at_doubted(&mut self, module: ModuleId) {
        let now = self.now;
        let Some(state) = self.modules.get_mut(&module) else { return };
        state.doubt.listen(now);
        let Some(state) = self.modules.get(&module) else { return };
        let Some((signed, since)) = state.doubt.held() else { return };
        let follows = state.head().is_some_and(|head| head.update == signed.update.parent);
        let overdue = now.since(since) >= DOUBT_MS;
        if follows && !overdue && !self.may_follow(module, std::slice::from_ref(signed)) {
            return;
        }
        let by_owner = state.leadership.term() == signed.update.term && state.leadership.is_owner(signed.update.owner);
        let Some(signed) = self.modules.get_mut(&module).and_then(|state| state.doubt.end()) else { return };
        match (follows, overdue) {
            (true, false) => self.heard_update(module, &signed),
            (true, true) if by_owner => {
                self.force_step_down(module, "its update counts contributions that nobody has offered".to_owned());
            }
            _ => {}
        }
    }
}
