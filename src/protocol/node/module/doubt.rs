//! Updates that count contributions which nobody has offered: they wait until the offers are heard, or until other
//! members attest the update.

use crate::names::ModuleId;
use crate::protocol::Node;
use crate::protocol::limits::{DOUBT_MS, LISTENED_MS, OFFER_REPEAT_MS};
use crate::protocol::module::attestation::Attester;
use crate::protocol::module::chain::Chain;
use crate::protocol::module::doubt::is_doubtful;
use crate::protocol::path::contributions::Contribution;
use crate::protocol::wire::message::{Counted, SignedUpdate};

impl Node {
    /// Whether the update of a chain that follows the head counts contributions that nobody has offered, as far as this
    /// node can tell. Gossip may lose an offer, so this is a doubt and no proof.
    pub(in crate::protocol) fn counts_unheard(&self, module: ModuleId, chain: &Chain) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let Some(head) = state.head() else { return false };
        let Some(SignedUpdate { update, .. }) = chain.next_after(head) else { return false };
        // Where the owner is the only other member, nobody else could attest the update.
        let alone = self.attesters(module).nth(1).is_none();
        let listened_ms = state.doubt.listened_ms(self.now);
        // What was offered to this head came after it. What was offered before is repeated by then.
        let missed_ms = if state.history.phase_began().is_some() { 0 } else { 2 * OFFER_REPEAT_MS };
        let since_head = head.version.0 > 0 && listened_ms >= missed_ms + self.now.since(state.history.advanced());
        // What was counted before this node heard the module is not offered again, so it must have been level with the others.
        let (ahead, level): (Vec<_>, Vec<_>) = self.attesters(module).partition(|it| it.head.version > head.version);
        let behind_since = state.catch_up.behind_since().filter(|_| ahead.len() > level.len());
        let behind_ms = behind_since.map_or(0, |since| self.now.since(since));
        let since_long = listened_ms >= LISTENED_MS + behind_ms;
        if alone || !(since_head || since_long) {
            return false;
        }
        let own = |counted: &Counted| {
            let is_it = |own: Contribution| (own.path, own.blob) == (counted.path, counted.blob);
            self.contributions.all().any(is_it)
        };
        // A peer may have said different numbers of inner steps to its owner and to others.
        let heard = |counted: &Counted| state.offers.was_heard(&counted.key());
        // Whoever trains a path knows what it has offered, also before this node listened. Any member can say that it does.
        let (on_it, others): (Vec<Attester>, Vec<_>) =
            self.attesters(module).partition(|it| it.is_on(chain) >= Some(update.version));
        let trains = |members: &[Attester], path| members.iter().any(|it| self.may_offer(it.peer, path));
        let confirmed = |counted: &Counted| trains(&on_it, counted.path) && !trains(&others, counted.path);
        let counted = &update.contributions;
        let could_hear = |it: &&Counted| since_long || it.parent == head.version;
        let unheard = counted.iter().filter(could_hear).filter(|it| !heard(it) && !own(it) && !confirmed(it));
        is_doubtful(counted.len(), unheard.count())
    }

    /// Holds back an update that the present owner has signed, or that it is on, as the chain tells. A later look applies it
    /// once its offers are here. Any member may sign an update, so another's is dropped: catch-up brings it, if the members
    /// attest it.
    pub(in crate::protocol) fn doubt(&mut self, module: ModuleId, signed: &SignedUpdate, chain: &Chain) {
        let now = self.now;
        let version = Some(signed.update.version);
        let owner_is_on_it = self.attesters(module).any(|it| it.owner && it.is_on(chain) >= version);
        let Some(state) = self.modules.get_mut(&module) else { return };
        let Some(owner) = state.leadership.owner() else { return };
        if owner_is_on_it || state.leadership.has_signed(&signed.update) {
            state.doubt.hold(now, signed, owner);
        }
    }

    /// Applies the update that was held back, if its offers were heard meanwhile or other members have applied it. If no
    /// majority has done so after a while, its owner has to step down.
    pub(in crate::protocol) fn look_at_doubted(&mut self, module: ModuleId) {
        let now = self.now;
        let Some(state) = self.modules.get_mut(&module) else { return };
        state.doubt.listen(now);
        let Some(state) = self.modules.get(&module) else { return };
        let Some((signed, since, owner)) = state.doubt.held() else { return };
        let follows = state.head().is_some_and(|head| head.update == signed.update.parent);
        let overdue = now.since(since) >= DOUBT_MS;
        let longer = self.extended(module, std::slice::from_ref(signed));
        if !overdue && longer.is_some_and(|longer| self.attested(module, &longer).is_none()) {
            return;
        }
        let by_owner = state.leadership.is_owner(owner);
        let Some(signed) = self.modules.get_mut(&module).and_then(|state| state.doubt.end()) else { return };
        match (follows, overdue) {
            (true, false) => self.heard_update(module, &signed),
            (true, true) if by_owner => {
                let reason = "its update counts contributions that nobody has offered".to_owned();
                match signed.update.owner == owner {
                    true => self.force_step_down(module, reason),
                    // It has followed another's, and may not have been able to tell.
                    false => self.step_down(module, owner, reason),
                }
            }
            _ => {}
        }
    }
}
