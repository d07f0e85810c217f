//! What a member sees for itself of how others contribute: holders that do not train, bytes that were offered before, and
//! lengths far beyond others'.

use std::collections::BTreeMap;

use crate::config::OuterMode;
use crate::names::{ModuleId, PathId, PeerKey};
use crate::protocol::limits::{NOT_CONTRIBUTING_DEADLINES, OVERDUE_MS, OVERLONG_OCTAVES, TELLING_BYTES};
use crate::protocol::module::chain::Chain;
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::message::{ContributionKey, Counted, Lease, Offer, SignedUpdate, Update, UpdateHash};
use crate::protocol::{Node, Replica};

/// A doubling, in a norm's bits.
const OCTAVE: u16 = 1 << 7;

impl Node {
    /// Whether a peer is believed as an owner.
    pub(in crate::protocol) fn is_believed(&self, peer: PeerKey) -> bool {
        self.reputation.is_believed(self.now, peer)
    }

    /// Whether a peer that has this lease of a path is not believed to train it.
    pub(in crate::protocol) fn is_not_contributing(&self, path: PathId, peer: PeerKey) -> bool {
        let phase = self.phase_about();
        let through = |module| self.plan.slots.goes_through(path, phase, module);
        self.reputation.is_not_contributing(self.now, path, peer, through)
    }

    /// A new head: a holder whose path no update has counted for many versions, and that has offered nothing that could be,
    /// does not train it, whatever its lease says. An owner that spoils its own contributions offers them to itself alone.
    pub(in crate::protocol) fn note_counted(&mut self, module: ModuleId, update: &Update) {
        if self.plan.mode != OuterMode::Synchronous || self.plan.slots.are_drawn_anew() {
            return;
        }
        let plan = &self.plan;
        let living = self.membership.roster().living(self.now, module);
        let holders = living.flat_map(|(peer, member)| {
            let trains = |lease: &&Lease| {
                Self::is_waited_for(lease.stage) && plan.slots.goes_through(lease.path, lease.phase, module)
            };
            let counts = |path| update.contributions.iter().any(|counted| counted.path == path);
            member.leases.iter().filter(trains).map(move |lease| (lease.path, peer, counts(lease.path)))
        });
        self.reputation.note_counted(module, update.version, holders);
    }

    /// Looks for holders whose contributions are long overdue.
    pub(in crate::protocol) fn watch_holders(&mut self) {
        let mut overdue: Vec<(PathId, PeerKey)> = Vec::new();
        for (module, state) in self.modules.iter().filter(|(module, state)| self.is_held_up(**module, state)) {
            for (peer, member) in self.membership.roster().living(self.now, *module) {
                let stalled = member.leases.iter().filter(|lease| self.stalls(*module, state, lease));
                overdue.extend(stalled.map(|lease| (lease.path, peer)));
            }
        }
        let (roster, now) = (self.membership.roster(), self.now);
        let alive = |peer| roster.member(peer).is_some_and(|member| roster.alive(now, member));
        self.reputation.note_overdue(now, overdue, alive);
    }

    /// The next update has taken several times as long as it should have.
    fn is_held_up(&self, module: ModuleId, state: &Replica) -> bool {
        let (Some(head), Some(deadline_ms)) = (state.head(), state.history.phases().deadline_ms()) else {
            return false;
        };
        let waited_ms = self.now.since(state.history.advanced().max(self.lifecycle.began()));
        !self.plan.is_done(module, head) && waited_ms > NOT_CONTRIBUTING_DEADLINES * deadline_ms + OVERDUE_MS
    }

    /// The path waits for nothing but itself, as far as this module tells: it stands where the module does, and has not
    /// contributed to it.
    fn stalls(&self, module: ModuleId, state: &Replica, lease: &Lease) -> bool {
        let Some(head) = state.head() else { return false };
        let here = self.plan.phase_of(module, head);
        let stands_here = match self.plan.streaming {
            // The module may be the one of its path that is ahead. What a lease says may be any number.
            Some(_) => lease.phase == here || here.0.checked_sub(1) == Some(lease.phase.0),
            None => lease.phase == here,
        };
        Self::is_waited_for(lease.stage)
            && stands_here
            && self.plan.slots.goes_through(lease.path, lease.phase, module)
            && !state.offers.has_offered(lease.path, head.version)
    }

    /// Whether the bytes of an offer were offered before, for another path or another version: what is trained from other
    /// parameters or on other text comes to other bytes. The first that offers has it; who that was, if that is known.
    pub(in crate::protocol) fn seen_before(
        &self,
        module: ModuleId,
        author: PeerKey,
        offer: &Offer,
    ) -> Option<(Fault, Option<PeerKey>)> {
        let state = self.modules.get(&module).filter(|_| !self.plan.is_router(module))?;
        if offer.blob.bytes < TELLING_BYTES.max(self.plan.offer_bytes(module) / 64) {
            return None;
        }
        // Updates are forgotten after a while, and what was wrong then is wrong now.
        if self.reputation.scores().has_told(author, offer.blob.hash) {
            return Some((Fault::Stale, None));
        }
        let is_it = |key: &ContributionKey| key.2 == offer.blob.hash && *key != offer.key();
        let counted =
            state.history.chain().into_iter().flat_map(Chain::recent).flat_map(|signed| &signed.update.contributions);
        let key = state.offers.keys().chain(counted.map(Counted::key)).find(is_it)?;
        let first = state.offers.get(&key).map(|(_, author)| *author);
        Some((if key.0 == offer.path { Fault::Stale } else { Fault::Copied }, first))
    }

    /// An update is about to be the new head: whose contributions were as they should be, and whose were overlong. Offers
    /// that were not heard here are nobody's; and what began elsewhere, or long ago, may have further to go.
    pub(in crate::protocol) fn score_contributions(&mut self, module: ModuleId, signed: &SignedUpdate) {
        let Some(state) = self.modules.get(&module) else { return };
        let Some(chain) = state.history.chain() else { return };
        let mut longest: BTreeMap<PathId, u16> = BTreeMap::new();
        for counted in chain.recent().chain([signed]).flat_map(|signed| &signed.update.contributions) {
            let longest = longest.entry(counted.path).or_default();
            *longest = counted.norm.max(*longest);
        }
        let late = |counted: &Counted| (signed.update.version.0 - 1).saturating_sub(counted.parent.0);
        let full = |counted: &Counted| self.plan.weight(counted.path, (counted.parent, module), late(counted));
        let classify = |counted: &Counted| {
            let heard = state.offers.get(&counted.key()).map(|(offer, author)| (offer.parent_update, *author));
            let (began, author) = heard.or_else(|| self.of_owner(module, signed, counted))?;
            // Without a cap any length is right: where fast paths make more steps than slow ones, lengths differ.
            let fresh = began == signed.update.parent && self.plan.norm_cap > 0.0;
            let in_full = counted.weight == full(counted);
            Some((author, counted.key(), (fresh && is_overlong(counted, &longest), in_full)))
        };
        let decided: Vec<(PeerKey, ContributionKey, (bool, bool))> =
            signed.update.contributions.iter().filter_map(classify).collect();
        for (author, key, decided) in decided {
            match decided {
                (true, _) => self.penalize(author, Fault::Overlong, Some(key)),
                (false, true) => self.reputation.counted(author),
                // What was capped speaks neither for it nor against it.
                (false, false) => {}
            }
        }
    }
}

impl Node {
    /// An owner says nothing of what it offers to itself: what nobody else has offered, for a path that it holds, is its own.
    fn of_owner(&self, module: ModuleId, signed: &SignedUpdate, counted: &Counted) -> Option<(UpdateHash, PeerKey)> {
        let update = &signed.update;
        let mut living = self.membership.roster().living(self.now, module).filter(|(peer, _)| *peer == update.owner);
        let holds = living.any(|(_, member)| member.leases.iter().any(|lease| lease.path == counted.path));
        let in_time = counted.parent.next() == update.version;
        (holds && in_time).then_some((update.parent, update.owner))
    }
}

/// Whether a contribution is many times as long as the longest of late of most other paths; of an even number, the greater
/// middle one counts: one of three that has come to rest must not make the two others overlong. A phase that was ended early
/// comes to little, so the longest. Of two paths nobody knows which is as it should be.
fn is_overlong(counted: &Counted, longest: &BTreeMap<PathId, u16>) -> bool {
    let others = longest.iter().filter(|(path, norm)| **path != counted.path && **norm > 0);
    let mut others: Vec<u16> = others.map(|(_, norm)| *norm).collect();
    others.sort_unstable();
    let usual = others.get(others.len() / 2).filter(|_| others.len() > 1);
    usual.is_some_and(|usual| counted.norm >= usual.saturating_add(OVERLONG_OCTAVES * OCTAVE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobRef, Version};

    #[test]
    fn a_contribution_is_measured_by_what_most_others_come_to_at_their_longest() {
        let of = |lengths: &[f32], path: u32| {
            let norm = |length: f32| (length.to_bits() >> 16) as u16;
            let longest =
                lengths.iter().enumerate().map(|(path, length)| (PathId(path as u32), norm(*length))).collect();
            let norm = norm(lengths[path as usize]);
            let counted = Counted { path: PathId(path), parent: Version(0), weight: 1, norm, blob: BlobRef::of(b"") };
            is_overlong(&counted, &longest)
        };
        assert!(of(&[1.0, 1.0, 10.0], 2) && !of(&[1.0, 1.0, 10.0], 0));
        assert!(!of(&[1.0, 10.0], 0) && !of(&[1.0, 10.0], 1), "of two nobody knows");
        assert!(of(&[10.0, 1.0, 1.2, 0.9, 10.0], 0), "two of five");
        assert!(!of(&[3.9, 1.0, 1.0], 0) && of(&[4.0, 1.0, 1.0], 0));
        assert!(!of(&[1.6, 0.3, 1.8], 0) && !of(&[1.6, 0.3, 1.8], 2), "one of three has come to rest");
        assert!(!of(&[5.0], 0) && !of(&[5.0, 1.0, 0.0], 0), "nobody to be measured by");
    }
}
