//! Which chains this node follows: what a donor sent counts as much as the members that are on it.

use crate::names::{ModuleId, PeerKey, Version};
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::limits::{
    ATTESTED_MS, DEADLINE_FACTOR, LAST_RESORT_FACTOR, MEMBERS_HEARD_MS, NO_MAJORITY_MS, UNMEASURED_STILL_MS,
};
use crate::protocol::module::attestation::{Attestation, Attester, is_outvoted, on_chain};
use crate::protocol::module::chain::Chain;
use crate::protocol::module::validate::check_update;
use crate::protocol::wire::message::SignedUpdate;

impl Node {
    /// The other members of a module that were heard lately and are not quarantined. A member that is silent for a moment
    /// is still against what it has not seen, so that no silence makes a majority of one.
    pub(in crate::protocol) fn attesters(&self, module: ModuleId) -> impl Iterator<Item = Attester> {
        let owner = self.modules.get(&module).and_then(|state| state.leadership.owner());
        let heads = self.membership.roster().heads_lately(self.now, module, ATTESTED_MS);
        heads
            .filter(|(peer, _)| !self.reputation.scores().is_quarantined(self.now, *peer))
            .map(move |(peer, head)| Attester { peer, head, owner: owner == Some(peer) })
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
                let waited = outvoted_ms.is_some_and(|ms| ms >= NO_MAJORITY_MS) || self.stands_still(module, 1);
                self.attested(module, chain) >= Some(chain.head().version)
                    || (waited && self.may_fall_back(module, chain))
            }
            false => {
                let attestation = Attestation::of(chain, mine, self.attesters(module));
                outvoted_ms.is_some() && attestation.majority() == Some(chain.head().version)
            }
        }
    }

    /// The latest version of a chain that the members attest, or the owner does where this node does not doubt what follows.
    /// An owner lets another member go first, so it alone is one update ahead at most.
    fn attested(&self, module: ModuleId, chain: &Chain) -> Option<Version> {
        let state = self.modules.get(&module)?;
        let mine = state.history.valid_head();
        let attestation = Attestation::of(chain, mine, self.attesters(module));
        if mine.is_some() && !attestation.extends {
            return attestation.half();
        }
        // An extension of its own chain this node is neither for nor against. With a tie, one member that lies and one that
        // says nothing new would be enough.
        let by_members = attestation.majority();
        if state.leadership.has_stepped_down() || !self.believes_next(module, chain) {
            return by_members;
        }
        let by_owner = attestation.by_owner();
        let next = mine.map(|mine| mine.version.next());
        let owned = chain
            .recent()
            .find(|signed| Some(signed.update.version) == next)
            .filter(|next| by_owner >= Some(next.update.version) || state.leadership.has_signed(&next.update));
        by_members.max(owned.map(|next| next.update.version))
    }

    /// How many of these updates, that should follow its head, this node may apply.
    pub(in crate::protocol) fn may_follow(&self, module: ModuleId, updates: &[SignedUpdate]) -> usize {
        let Some(chain) = self.modules.get(&module).and_then(|state| state.history.chain()) else { return 0 };
        let mut longer = chain.clone();
        for signed in updates {
            if !longer.fits(&signed.update) {
                return 0;
            }
            longer.push(signed.clone());
        }
        if self.stands_still(module, 1) && self.may_fall_back(module, &longer) {
            return updates.len();
        }
        let attested = self.attested(module, &longer);
        updates.iter().filter(|signed| Some(signed.update.version) <= attested).count()
    }

    /// Whether the updates of a chain that follow this node's own head are possible, and the next one is not doubted.
    fn believes_next(&self, module: ModuleId, chain: &Chain) -> bool {
        let Some(mine) = self.modules.get(&module).and_then(|state| state.history.chain()) else { return true };
        let mut next = chain.recent().filter(|signed| mine.fits(&signed.update));
        self.continues_well(module, chain) && !next.any(|next| self.counts_unheard(module, next))
    }

    /// Whether a heavier chain may do that the members do not attest, once this node has waited. To extend its own, the
    /// owner will do or two members, and any if this node knows how long phases are; to replace its own, as many as are on that,
    /// with itself. In the end any member will do: a module that stands still before it is done is of no use to anybody.
    fn may_fall_back(&self, module: ModuleId, chain: &Chain) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let attestation = Attestation::of(chain, state.history.valid_head(), self.attesters(module));
        let head = chain.head().version;
        let at_head = attestation.at_least(head);
        let enough = match state.history.chain().filter(|_| !attestation.extends) {
            Some(mine) => at_head > on_chain(mine, self.attesters(module)),
            // It takes a node that knows how long a phase is to tell a standstill from a long phase.
            None => at_head >= 2 || attestation.by_owner() >= Some(head) || self.whole_phase_ms(module).is_some(),
        };
        let done = state.history.valid_head().is_some_and(|head| self.plan.is_done(module, head));
        (enough || (!done && self.stands_still(module, LAST_RESORT_FACTOR))) && self.continues_well(module, chain)
    }

    /// Whether the updates of a chain that follow this node's own head, if there are any, are possible after what this
    /// node has kept. The chain's own checks begin after its first update, and it may have kept less.
    fn continues_well(&self, module: ModuleId, chain: &Chain) -> bool {
        let Some(mine) = self.modules.get(&module).and_then(|state| state.history.chain()) else { return true };
        let mut longer = mine.clone();
        chain.recent().all(|signed| {
            let fits = longer.fits(&signed.update);
            let possible = !fits || check_update(&self.plan, &longer, &signed.update).is_ok();
            if fits && possible {
                longer.push(signed.clone());
            }
            possible
        })
    }

    /// Whether the module has had no update for much longer than a phase takes, or so many times that long. Then the owner
    /// is not at work: it may lack what the one that is ahead has.
    fn stands_still(&self, module: ModuleId, times: u64) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let usual_ms = self.whole_phase_ms(module).map_or(UNMEASURED_STILL_MS, |phase_ms| 2 * phase_ms);
        let waited_ms = self.now.since(state.history.advanced().max(self.lifecycle.began()));
        waited_ms > times * (usual_ms + NO_MAJORITY_MS)
    }

    /// The deadline of a phase of the module, or what it would be if all trained like this node; nothing if neither is known.
    fn whole_phase_ms(&self, module: ModuleId) -> Option<u64> {
        let state = self.modules.get(&module)?;
        let own_ms = || {
            let phase_ms = self.trainer.measured()?.phase_ms(self.plan.inner_steps);
            Some((DEADLINE_FACTOR * phase_ms).max(UNMEASURED_STILL_MS / 2))
        };
        state.history.phases().deadline_ms().or_else(own_ms)
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
