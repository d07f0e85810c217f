//! Which chains this node follows: what a donor sent counts as much as the members that are on it.

use crate::names::{ModuleId, PeerKey, Version};
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::limits::{MEMBERS_HEARD_MS, NO_MAJORITY_MS, UNMEASURED_STILL_MS};
use crate::protocol::module::attestation::{Attestation, Attester, is_outvoted};
use crate::protocol::module::chain::Chain;
use crate::protocol::module::validate::check_update;
use crate::protocol::wire::message::SignedUpdate;

impl Node {
    /// The other living members of a module that are not quarantined.
    pub(in crate::protocol) fn attesters(&self, module: ModuleId) -> impl Iterator<Item = Attester> {
        let owner = self.modules.get(&module).and_then(|state| state.leadership.owner());
        let heads = self.membership.roster().heads(self.now, module);
        heads
            .filter(|(peer, _)| !self.reputation.scores().is_quarantined(self.now, *peer))
            .map(move |(peer, head)| Attester { head, owner: owner == Some(peer) })
    }

    /// Notes whether most members are on other chains than this node.
    pub(in crate::protocol) fn note_outvoted(&mut self, module: ModuleId) {
        let Some(state) = self.modules.get(&module) else { return };
        let chain = state.history.chain().filter(|_| state.history.invalidated_since().is_none());
        let outvoted = chain.is_some_and(|chain| is_outvoted(chain, self.attesters(module)));
        if let Some(state) = self.modules.get_mut(&module) {
            state.catch_up.note_outvoted(self.now, outvoted);
        }
    }

    /// Whether this node may replace its chain by this one. A module that is not here yet is taken when the members
    /// have had the time to be heard; its genesis needs no attestation, because the run's manifest names it.
    pub(in crate::protocol) fn may_adopt(&self, module: ModuleId, chain: &Chain) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let mine = state.history.valid_head();
        let heavier = state.history.gives_way_to(&chain.head());
        if mine.is_none() && chain.signer().is_none() {
            return heavier;
        }
        if state.history.chain().is_none() && state.doubt.listened_ms(self.now) < MEMBERS_HEARD_MS {
            return false;
        }
        let outvoted_ms = state.catch_up.outvoted_ms(self.now);
        match heavier {
            true => {
                self.is_attested(module, chain)
                    || outvoted_ms.is_some_and(|ms| ms >= NO_MAJORITY_MS)
                    || self.stands_still(module)
            }
            false => {
                let attestation = Attestation::of(chain, mine, self.attesters(module));
                outvoted_ms.is_some() && attestation.majority() == Some(chain.head().version)
            }
        }
    }

    /// Whether the members attest a chain, or its owner does what they do not attest yet.
    fn is_attested(&self, module: ModuleId, chain: &Chain) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let mine = state.history.valid_head();
        let attestation = Attestation::of(chain, mine, self.attesters(module));
        let believed = attestation.extends && self.believes_next(module, chain);
        let by_owner = attestation.by_owner().max(mine.map(|mine| mine.version)).filter(|_| believed);
        let Some(attested) = attestation.half().max(by_owner) else { return false };
        let leadership = &state.leadership;
        let mut rest = chain.recent().filter(|signed| signed.update.version > attested).peekable();
        // The first kept update is checked against nothing, unless it is the module's first or follows this node's own head.
        let is_checked = believed || attested > chain.base() || chain.base() == Version(0);
        rest.peek().is_none()
            || (is_checked
                && !leadership.has_stepped_down()
                && rest.all(|signed| leadership.has_signed(&signed.update)))
    }

    /// Whether this node may apply these updates, that should follow its head.
    pub(in crate::protocol) fn may_follow(&self, module: ModuleId, updates: &[SignedUpdate]) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let Some(chain) = state.history.chain() else { return false };
        let mut longer = chain.clone();
        for signed in updates {
            if !longer.fits(&signed.update) {
                return false;
            }
            longer.push(signed.clone());
        }
        self.is_attested(module, &longer) || self.stands_still(module)
    }

    /// Whether the update of a chain that follows this node's own head, if there is one, is possible and not doubted. The
    /// chain's own checks begin after its first update, which may be that one.
    fn believes_next(&self, module: ModuleId, chain: &Chain) -> bool {
        let Some(mine) = self.modules.get(&module).and_then(|state| state.history.chain()) else { return true };
        let mut next = chain.recent().filter(|signed| mine.fits(&signed.update));
        next.all(|next| check_update(&self.plan, mine, &next.update).is_ok() && !self.counts_unheard(module, next))
    }

    /// Whether the module has had no update for much longer than a phase takes. Then whoever is ahead is followed, since
    /// the owner is not at work: it may lack what the one that is ahead has.
    fn stands_still(&self, module: ModuleId) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let usual_ms = state.history.phases().deadline_ms().map_or(UNMEASURED_STILL_MS, |deadline_ms| 2 * deadline_ms);
        let waited_ms = self.now.since(state.history.advanced().max(self.lifecycle.began()));
        waited_ms > usual_ms + NO_MAJORITY_MS
    }

    /// The other members do not attest what a donor sent. It is not an offence: the donor may be ahead of all others.
    pub(in crate::protocol) fn report_unattested(&mut self, module: ModuleId, donor: PeerKey) {
        let now = self.now;
        if let Some(state) = self.modules.get_mut(&module) {
            state.catch_up.unattested(now);
        }
        self.act(Action::Report(Report::Unattested { module, by: donor }));
    }
}
