//! Which chains this node follows: what a donor sent counts as much as the members that are on it.

use crate::names::{ModuleId, PeerKey, Version};
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::limits::{ATTESTED_MS, MEMBERS_HEARD_MS, NO_MAJORITY_MS, STUCK_MS};
use crate::protocol::module::attestation::{Attestation, Attester, Followers, is_outvoted};
use crate::protocol::module::chain::Chain;
use crate::protocol::module::validate::check_update;
use crate::protocol::wire::message::{Head, SignedUpdate};

impl Node {
    /// The other members of a module that were heard lately and are not quarantined. A member that is silent for a moment
    /// is still against what it has not seen, so that no silence makes a majority of one.
    pub(in crate::protocol) fn attesters(&self, module: ModuleId) -> impl Iterator<Item = Attester<'_>> {
        let state = self.modules.get(&module);
        let owner = state.and_then(|state| state.leadership.owner());
        // A member that was on another chain may have come to this node's, or gone back since.
        let shown = move |peer, head: Head| {
            let on_mine = state?.history.chain()?.update_of(head.version) == Some(head.update);
            let shown = state?.catch_up.shown_by(peer);
            Some(shown).filter(|shown| !on_mine && shown.last().is_some_and(|(version, _)| *version <= head.version))
        };
        let heads = self.membership.roster().heads_lately(self.now, module, ATTESTED_MS);
        heads.filter(|(peer, _)| !self.reputation.scores().is_quarantined(self.now, *peer)).map(move |(peer, head)| {
            let silent = state.is_some_and(|state| state.catch_up.is_silent(peer));
            Attester { peer, head, owner: owner == Some(peer), shown: shown(peer, head).unwrap_or(&[]), silent }
        })
    }

    /// How many members have no state yet, and cannot attest anything.
    fn stateless(&self, module: ModuleId) -> usize {
        let stateless = self.membership.roster().stateless(self.now, module);
        stateless.filter(|peer| !self.reputation.scores().is_quarantined(self.now, *peer)).count()
    }

    /// What the members say about a chain.
    fn attestation(&self, module: ModuleId, chain: &Chain) -> Attestation {
        let mine = self.modules.get(&module).and_then(|state| state.history.valid_head());
        Attestation::of(chain, mine, self.attesters(module), self.stateless(module))
    }

    /// Notes whether most members are on other chains than this node.
    pub(in crate::protocol) fn note_outvoted(&mut self, module: ModuleId) {
        let Some(state) = self.modules.get(&module) else { return };
        let base = state.history.chain().map_or(Version(0), Chain::base);
        let is_far_behind = |it: &Attester| it.head.version > Version(0) && it.head.version < base;
        let far_behind = self.attesters(module).filter(is_far_behind);
        let far_behind: Vec<_> = far_behind.map(|it| (it.peer, (it.head.version, it.head.update))).collect();
        let chain = state.history.chain().filter(|_| state.history.invalidated_since().is_none());
        let outvoted = chain.is_some_and(|chain| is_outvoted(chain, self.attesters(module), self.stateless(module)));
        if let Some(state) = self.modules.get_mut(&module) {
            far_behind.into_iter().for_each(|(peer, head)| state.catch_up.note_far_behind(peer, head));
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
        let outvoted = state.catch_up.outvoted_ms(self.now).is_some();
        let attested = match heavier {
            true => self.attested(module, chain) >= Some(chain.head().version),
            false => outvoted && self.attestation(module, chain).majority() == Some(chain.head().version),
        };
        attested || self.gives_up_for(module, chain)
    }

    /// The latest version of a chain that the members attest, or the owner does where this node does not doubt what follows.
    /// An owner lets another member go first, so it alone is one update ahead at most.
    pub(in crate::protocol) fn attested(&self, module: ModuleId, chain: &Chain) -> Option<Version> {
        let state = self.modules.get(&module)?;
        let mine = state.history.valid_head();
        let attestation = self.attestation(module, chain);
        if mine.is_some() && !attestation.extends {
            return attestation.half();
        }
        let Some(mine) = mine else {
            // Of as many members on either side, the owner's may be right, and nobody is of use without a state.
            let waited = state.doubt.listened_ms(self.now) >= NO_MAJORITY_MS;
            let with_owner = attestation.half().filter(|half| attestation.by_owner() >= Some(*half));
            return attestation.majority().max(with_owner.max(attestation.third()).filter(|_| waited));
        };
        let by_members = attestation.third();
        if state.leadership.has_stepped_down() || !self.believes_next(module, chain) {
            return by_members;
        }
        let by_owner = attestation.by_owner();
        let owned = chain
            .next_after(mine)
            .filter(|next| by_owner >= Some(next.update.version) || state.leadership.has_signed(&next.update));
        by_members.max(owned.map(|next| next.update.version))
    }

    /// This node's chain with these updates after it, if they follow each other.
    pub(in crate::protocol) fn extended(&self, module: ModuleId, updates: &[SignedUpdate]) -> Option<Chain> {
        let mut longer = self.modules.get(&module)?.history.chain()?.clone();
        for signed in updates {
            longer.fits(&signed.update).then_some(())?;
            longer.push(signed.clone());
        }
        Some(longer)
    }

    /// Whether the updates of a chain that follow this node's own head are possible, and the next one is not doubted.
    fn believes_next(&self, module: ModuleId, chain: &Chain) -> bool {
        self.continues_well(module, chain) && !self.counts_unheard(module, chain)
    }

    /// Whether this node gives its chain up for one that the members do not attest either. It was outvoted for a
    /// while, or nobody has followed it to its head, and more members are at that head than at its own. Or its chain has
    /// not moved for long, and so many are on the other that one of them is honest.
    fn gives_up_for(&self, module: ModuleId, chain: &Chain) -> bool {
        let Some(state) = self.modules.get(&module) else { return false };
        let Some(mine) = state.history.chain().filter(|_| state.history.valid_head().is_some()) else { return false };
        let outvoted = state.catch_up.outvoted_ms(self.now).is_some_and(|ms| ms >= NO_MAJORITY_MS);
        let attestation = self.attestation(module, chain);
        let at_head = attestation.at_least(chain.head().version);
        let Followers { with, silent, behind, elsewhere } = Followers::of(mine, self.attesters(module));
        let moved = state.history.advanced().max(self.lifecycle.began());
        let behind_ms = state.catch_up.behind_since().map_or(0, |since| self.now.since(since.max(moved)));
        let stuck = behind_ms >= STUCK_MS;
        let heavier = state.history.gives_way_to(&chain.head());
        let alone = heavier && stuck && with == 0;
        let with = if alone { 0 } else { with + silent };
        let least = if heavier { with + 1 } else { with + 2 };
        let more = (outvoted || alone) && at_head >= least.max(behind).max(elsewhere);
        let third = heavier && stuck && attestation.third() == Some(chain.head().version);
        !attestation.extends && (more || third) && self.continues_well(module, chain)
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

    /// The other members do not attest what a donor sent. It is not an offence: the donor may be ahead of all others.
    pub(in crate::protocol) fn report_unattested(&mut self, module: ModuleId, donor: PeerKey) {
        let now = self.now;
        if let Some(state) = self.modules.get_mut(&module) {
            state.catch_up.unattested(now);
        }
        self.act(Action::Report(Report::Unattested { module, by: donor }));
    }
}
