//! What a member sees for itself of who contributes what: bytes that were offered before, and lengths far beyond others'.

use std::collections::BTreeMap;

use crate::names::{ModuleId, PathId, PeerKey};
use crate::protocol::Node;
use crate::protocol::limits::{OVERLONG_OCTAVES, TELLING_BYTES};
use crate::protocol::module::chain::Chain;
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::message::{ContributionKey, Counted, Offer, SignedUpdate, UpdateHash};

/// A doubling, in a norm's bits.
const OCTAVE: u16 = 1 << 7;

impl Node {
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
        if self.conducts.has_told(author, offer.blob.hash) {
            return Some((Fault::Stale, None));
        }
        let is_it = |key: &ContributionKey| key.2 == offer.blob.hash && *key != offer.key();
        let counted = state.chain.iter().flat_map(Chain::recent).flat_map(|signed| &signed.update.contributions);
        let key = state.offers.keys().copied().chain(counted.map(Counted::key)).find(is_it)?;
        let first = state.offers.get(&key).map(|(_, author)| *author);
        Some((if key.0 == offer.path { Fault::Stale } else { Fault::Copied }, first))
    }

    /// An update is about to be the new head: whose contributions were as they should be, and whose were overlong. Offers
    /// that were not heard here are nobody's; and what began elsewhere, or long ago, may have further to go.
    pub(in crate::protocol) fn note_conduct(&mut self, module: ModuleId, signed: &SignedUpdate) {
        let Some(state) = self.modules.get(&module) else { return };
        let Some(chain) = &state.chain else { return };
        let mut longest: BTreeMap<PathId, u16> = BTreeMap::new();
        for counted in chain.recent().chain([signed]).flat_map(|signed| &signed.update.contributions) {
            let longest = longest.entry(counted.path).or_default();
            *longest = counted.norm.max(*longest);
        }
        let late = |counted: &Counted| (signed.update.version.0 - 1).saturating_sub(counted.parent.0);
        let full = |counted: &Counted| self.plan.weight(counted.path, (counted.parent, module), late(counted));
        let judge = |counted: &Counted| {
            let heard = state.offers.get(&counted.key()).map(|(offer, author)| (offer.parent_update, *author));
            let (began, author) = heard.or_else(|| self.of_owner(module, signed, counted))?;
            // Without a cap any length is right: where fast paths make more steps than slow ones, lengths differ.
            let fresh = began == signed.update.parent && self.plan.norm_cap > 0.0;
            let in_full = counted.weight == full(counted);
            Some((author, counted.key(), (fresh && is_overlong(counted, &longest), in_full)))
        };
        let judged: Vec<(PeerKey, ContributionKey, (bool, bool))> =
            signed.update.contributions.iter().filter_map(judge).collect();
        for (author, key, judged) in judged {
            match judged {
                (true, _) => self.blame(author, Fault::Overlong, Some(key)),
                (false, true) => self.conducts.counted(author),
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
