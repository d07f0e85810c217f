//! Which chains this node follows: what a donor sent counts as much as the members that are on it.

use crate::names::{ModuleId, PeerKey};
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::limits::{MEMBERS_HEARD_MS, NO_MAJORITY_MS, STEADY_MS, UNMEASURED_STILL_MS};
use crate::protocol::module::attestation::{Attestation, Attester, contradicts, is_outvoted};
use crate::protocol::module::chain::Chain;
use crate::protocol::wire::message::{Head, SignedUpdate};

impl Node {
    /// The other living members of a module that are not quarantined.
    pub(in crate::protocol) fn attesters(&self, module: ModuleId) -> impl Iterator<Item = Attester> {
        let owner = self.modules.get(&module).and_then(|state| state.leadership.owner());
        let roster = self.membership.roster();
        let returned = self.membership.start().incarnation > 1 && self.now.since(self.lifecycle.began()) < STEADY_MS;
        let away = returned || roster.has_woken(self.now);
        let heads = roster.heads(self.now, module);
        heads.filter(|(peer, _)| !self.reputation.scores().is_quarantined(self.now, *peer)).map(move |(peer, head)| {
            Attester { head, steady: !away && roster.is_steady(peer), owner: owner == Some(peer) }
        })
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

    /// Whether a head belongs to the chains that most of the members are on, and this node is not.
    pub(in crate::protocol) fn outvotes(&self, module: ModuleId, head: Head) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        state.catch_up.outvoted_ms(self.now).is_some()
            && state.history.chain().is_some_and(|chain| contradicts(chain, head))
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
        let attestation = Attestation::of(chain, mine, self.attesters(module));
        let outvoted_ms = state.catch_up.outvoted_ms(self.now);
        match heavier {
            true => {
                attestation.suffices(true)
                    || outvoted_ms.is_some_and(|ms| ms >= NO_MAJORITY_MS)
                    || self.stands_still(module)
            }
            false => outvoted_ms.is_some() && attestation.is_majority(),
        }
    }

    /// Whether this node may apply these updates, that should follow its head. The present owner's need no attestation.
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
        let leadership = &state.leadership;
        let by_owner = longer.signer().is_some_and(|(term, owner)| {
            term == leadership.term() && leadership.is_owner(owner) && !leadership.has_stepped_down()
        });
        let believed = !updates.first().is_some_and(|signed| self.counts_unheard(module, signed));
        let attestation = Attestation::of(&longer, Some(chain.head()), self.attesters(module));
        (by_owner && believed) || attestation.suffices(believed) || self.stands_still(module)
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
