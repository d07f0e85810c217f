//! Faults that a member observes itself in the contributions of others: holders that do not train, bytes that were
//! offered before, and norms far above those of others.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::OuterMode;
use crate::names::{ModuleId, PathId, PeerKey};
use crate::protocol::limits::{
    NOT_CONTRIBUTING_DEADLINES, OVERDUE_MS, OVERLONG_OCTAVES, PASSED_OVER_VERSIONS, TELLING_BYTES,
};
use crate::protocol::module::chain::Chain;
use crate::protocol::path::contributions::Contribution;
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::message::{ContributionKey, Counted, Lease, Offer, SignedUpdate, Update};
use crate::protocol::{Node, Replica};

/// A doubling, in the bits of a norm.
const OCTAVE: u16 = 1 << 7;

impl Node {
    /// Whether a peer is accepted as an owner.
    pub(in crate::protocol) fn is_believed(&self, peer: PeerKey) -> bool {
        self.reputation.is_believed(self.now, peer)
    }

    /// Whether a peer with a lease of this path is not contributing. In a deterministic run it may take all the time that it
    /// needs.
    pub(in crate::protocol) fn is_not_contributing(&self, path: PathId, peer: PeerKey) -> bool {
        if self.plan.deterministic {
            return false;
        }
        let phase = self.phase_about();
        let through = |module| self.plan.slots.goes_through(path, phase, module);
        self.reputation.is_not_contributing(self.now, path, peer, through)
    }

    /// There is a new head. A holder whose path no update has counted for many versions, and that has offered nothing
    /// countable, does not train it, whatever its lease says.
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
            let counts = |path| !update.contributions.of_path(path).is_empty();
            member.leases.iter().filter(trains).map(move |lease| (lease.path, peer, counts(lease.path)))
        });
        self.reputation.note_counted(module, update.version, holders);
    }

    /// There is a new head, and the offers that it counts are still known. Notes whose offers are counted, and the
    /// holders whose offers owners pass over again and again.
    pub(in crate::protocol) fn note_passed_over(&mut self, module: ModuleId, update: &Update) {
        if self.plan.mode != OuterMode::Synchronous || self.plan.slots.are_drawn_anew() {
            return;
        }
        let Some(state) = self.modules.get(&module) else { return };
        let counted = update.contributions.iter().filter_map(|it| {
            let (_, author) = state.offers.get(&it.key())?;
            Some((it.path, *author))
        });
        let counted: Vec<(PathId, PeerKey)> = counted.collect();
        let mut passed_over = state.offers.passed_over(update.version, PASSED_OVER_VERSIONS);
        passed_over.retain(|key| !counted.contains(key));
        counted.into_iter().for_each(|(path, peer)| self.reputation.is_counted(path, peer));
        passed_over.into_iter().for_each(|(path, peer)| self.reputation.passed_over(path, peer));
    }

    /// Whether owners pass over the contributions that this node offers of a path.
    pub(in crate::protocol) fn is_passed_over(&self, path: PathId) -> bool {
        if self.plan.mode != OuterMode::Synchronous || self.plan.slots.are_drawn_anew() {
            return false;
        }
        let head = |module: ModuleId| self.modules.get(&module).and_then(Replica::head).map(|head| head.version);
        let waits = |offer: &Contribution| {
            offer.path == path && head(offer.module).is_some_and(|head| offer.parent.0 + PASSED_OVER_VERSIONS <= head.0)
        };
        let parents: BTreeSet<_> = self.outstanding_offers().filter(waits).map(|offer| offer.parent).collect();
        parents.len() as u64 >= PASSED_OVER_VERSIONS
    }

    /// Checks for holders whose contributions are long overdue.
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

    /// Whether the next update has taken several times its deadline.
    fn is_held_up(&self, module: ModuleId, state: &Replica) -> bool {
        let (Some(head), Some(deadline_ms)) = (state.head(), state.history.phases().deadline_ms()) else {
            return false;
        };
        let waited_ms = self.now.since(state.history.advanced().max(self.lifecycle.began()));
        !self.plan.is_done(module, head) && waited_ms > NOT_CONTRIBUTING_DEADLINES * deadline_ms + OVERDUE_MS
    }

    /// Whether a path holds up this module: it is at the module's phase and has not contributed to it.
    fn stalls(&self, module: ModuleId, state: &Replica, lease: &Lease) -> bool {
        let Some(head) = state.head() else { return false };
        let here = self.plan.phase_of(module, head);
        let stands_here = match self.plan.streaming {
            // This module may be the one of its path that is ahead. The phase in a lease may be any number.
            Some(_) => lease.phase == here || here.0.checked_sub(1) == Some(lease.phase.0),
            None => lease.phase == here,
        };
        Self::is_waited_for(lease.stage)
            && stands_here
            && self.plan.slots.goes_through(lease.path, lease.phase, module)
            && !state.offers.has_offered(lease.path, head.version)
    }

    /// Whether the bytes of an offer were offered before, for another path or another version. Training from other
    /// parameters or on other text yields other bytes, so the first offer is genuine. Returns the fault and, if known,
    /// the author of the first offer.
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
        // Old updates are forgotten, but a fault that was found then is still one.
        if self.reputation.scores().has_told(author, offer.blob.hash) {
            return Some((Fault::Stale, None));
        }
        let bytes = offer.blob.hash;
        let updates = state.history.chain().into_iter().flat_map(Chain::recent);
        let counted = updates.flat_map(|signed| signed.update.contributions.with_bytes(bytes));
        let mut keys = state.offers.with_bytes(bytes).chain(counted.map(Counted::key));
        let key = keys.find(|key| *key != offer.key())?;
        let first = state.offers.get(&key).map(|(_, author)| *author);
        Some((if key.0 == offer.path { Fault::Stale } else { Fault::Copied }, first))
    }

    /// An update is about to become the head. Scores the authors of its contributions: valid, or overlong.
    /// Contributions whose offers were not heard here have no author. A contribution with another base update, or an
    /// old one, may have a larger norm by right.
    pub(in crate::protocol) fn score_contributions(&mut self, module: ModuleId, signed: &SignedUpdate) {
        let Some(state) = self.modules.get(&module) else { return };
        let Some(chain) = state.history.chain() else { return };
        let mut longest: BTreeMap<PathId, u16> = BTreeMap::new();
        for counted in chain.recent().chain([signed]).flat_map(|signed| &signed.update.contributions) {
            let longest = longest.entry(counted.path).or_default();
            *longest = counted.norm.max(*longest);
        }
        let mut norms: Vec<u16> = longest.values().copied().filter(|norm| *norm > 0).collect();
        norms.sort_unstable();
        let classify = |counted: &Counted| {
            let heard = state.offers.get(&counted.key()).map(|(offer, author)| (offer.parent_update, *author));
            let (began, author) = heard?;
            // Without a cap any norm is valid: where fast paths make more steps than slow ones, norms differ.
            let fresh = began == signed.update.parent && self.plan.norm_cap > 0.0;
            let in_full = counted.weight == counted.uncapped;
            Some((author, counted.key(), (fresh && is_overlong(counted, &longest, &norms), in_full)))
        };
        let decided: Vec<(PeerKey, ContributionKey, (bool, bool))> =
            signed.update.contributions.iter().filter_map(classify).collect();
        for (author, key, decided) in decided {
            match decided {
                (true, _) => self.penalize(author, Fault::Overlong, Some(key)),
                (false, true) => self.reputation.counted(author),
                // A capped contribution counts neither for nor against its author.
                (false, false) => {}
            }
        }
    }
}

/// Whether the norm of a contribution is many times the recent maximum of most other paths. The reference is the median
/// of these maxima, the upper one of an even number, so that one converged path of three does not make the other two
/// overlong. It uses maxima because a phase that was ended early has a small norm. With only two paths it is unknown
/// which one is right.
///
/// `norms` are the positive maxima of all paths, in order.
fn is_overlong(counted: &Counted, longest: &BTreeMap<PathId, u16>, norms: &[u16]) -> bool {
    let own = longest.get(&counted.path).filter(|norm| **norm > 0);
    let others = norms.len() - usize::from(own.is_some());
    let middle = others / 2;
    // Where the own maximum comes before the middle of the others, they are one further on.
    let before = own.is_some_and(|own| norms.partition_point(|norm| norm < own) <= middle);
    let usual = norms.get(middle + usize::from(before)).filter(|_| others > 1);
    usual.is_some_and(|usual| counted.norm >= usual.saturating_add(OVERLONG_OCTAVES * OCTAVE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobRef, Version};

    #[test]
    fn a_norm_is_overlong_relative_to_the_maxima_of_most_other_paths() {
        let of = |lengths: &[f32], path: u32| {
            let norm_of = |length: f32| (length.to_bits() >> 16) as u16;
            let longest =
                lengths.iter().enumerate().map(|(path, length)| (PathId(path as u32), norm_of(*length))).collect();
            let norm = norm_of(lengths[path as usize]);
            let counted = Counted {
                path: PathId(path),
                parent: Version(0),
                steps: 1,
                uncapped: 1,
                weight: 1,
                norm,
                blob: BlobRef::of(b""),
            };
            let mut norms: Vec<u16> = lengths.iter().map(|length| norm_of(*length)).filter(|norm| *norm > 0).collect();
            norms.sort_unstable();
            is_overlong(&counted, &longest, &norms)
        };
        assert!(of(&[1.0, 1.0, 10.0], 2) && !of(&[1.0, 1.0, 10.0], 0));
        assert!(!of(&[1.0, 10.0], 0) && !of(&[1.0, 10.0], 1), "unknown with two paths");
        assert!(of(&[10.0, 1.0, 1.2, 0.9, 10.0], 0), "two outliers of five");
        assert!(!of(&[3.9, 1.0, 1.0], 0) && of(&[4.0, 1.0, 1.0], 0));
        assert!(!of(&[1.6, 0.3, 1.8], 0) && !of(&[1.6, 0.3, 1.8], 2), "one path of three has converged");
        assert!(!of(&[5.0], 0) && !of(&[5.0, 1.0, 0.0], 0), "no reference");
    }
}
