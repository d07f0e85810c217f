//! Invariant: along a chain, no contribution is counted twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{ModuleId, Version};
use crate::protocol::limits::VERSIONS_KEPT;
use crate::protocol::wire::message::{ContributionKey, GENESIS, SignedUpdate, UpdateHash};

/// The contributions that each place of each chain has counted since genesis.
#[derive(Debug, Default)]
pub struct CountedOnce {
    places: BTreeMap<(ModuleId, UpdateHash), Place>,
    /// The heads that each peer has had of each module.
    heads: BTreeMap<(usize, ModuleId), BTreeSet<UpdateHash>>,
    /// Contributions that came a version or more late, on any chain.
    pub late: u64,
}

/// The contributions of one update, and its parent.
#[derive(Debug)]
struct Place {
    parent: UpdateHash,
    version: Version,
    counts: BTreeSet<ContributionKey>,
}

impl CountedOnce {
    /// # Errors
    /// If the update counts a contribution that its chain has counted before. Updates with an unchecked parent are
    /// skipped.
    pub fn look(&mut self, hash: UpdateHash, signed: &SignedUpdate) -> Result<(), String> {
        let update = &signed.update;
        let key = (update.module, hash);
        let known_from = update.parent == GENESIS || self.places.contains_key(&(update.module, update.parent));
        if self.places.contains_key(&key) || !known_from {
            return Ok(());
        }
        let mut counts = BTreeSet::new();
        for counted in &update.contributions {
            self.late += u64::from(counted.parent.next() < update.version);
            let before =
                self.back_from(update.module, update.parent).any(|place| place.counts.contains(&counted.key()));
            if before || !counts.insert(counted.key()) {
                return Err(format!(
                    "module {} version {} counts path {}'s contribution to version {} again",
                    update.module, update.version, counted.path, counted.parent
                ));
            }
        }
        self.places.insert(key, Place { parent: update.parent, version: update.version, counts });
        Ok(())
    }

    /// A peer has this head.
    pub fn note_head(&mut self, peer: usize, module: ModuleId, head: UpdateHash) {
        self.heads.entry((peer, module)).or_default().insert(head);
    }

    /// A place and those before it, back to genesis.
    fn back_from(&self, module: ModuleId, place: UpdateHash) -> impl Iterator<Item = &Place> {
        let at = move |place: UpdateHash| self.places.get(&(module, place));
        std::iter::successors(at(place), move |after| at(after.parent))
    }

    /// Whether a peer has had a chain that had counted a contribution so long ago that the peer no longer had to retain
    /// it.
    pub fn had_counted_long_ago(&self, peer: usize, module: ModuleId, contribution: ContributionKey) -> bool {
        let (_, parent, _) = contribution;
        let heads = self.heads.get(&(peer, module)).into_iter().flatten();
        heads.filter_map(|head| Some((head, self.places.get(&(module, *head))?))).any(|(head, place)| {
            place.version.0.saturating_sub(parent.0) >= VERSIONS_KEPT
                && self.back_from(module, *head).any(|place| place.counts.contains(&contribution))
        })
    }

    /// Whether any chain, abandoned or not, has counted a contribution.
    pub fn has_ever_counted(&self, module: ModuleId, contribution: ContributionKey) -> bool {
        let of_module = self.places.iter().filter(|((of, _), _)| *of == module);
        of_module.map(|(_, place)| place).any(|place| place.counts.contains(&contribution))
    }

    /// All contributions of a place's chain since genesis; empty at genesis.
    pub fn counted(&self, module: ModuleId, place: UpdateHash) -> BTreeSet<ContributionKey> {
        self.back_from(module, place).flat_map(|place| &place.counts).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobHash, BlobRef, PathId, PeerKey, Term, Version};
    use crate::protocol::wire::message::{Counted, Update};

    fn update(parent: UpdateHash, version: u64, contribution: (u32, u64)) -> SignedUpdate {
        let (path, to) = contribution;
        let blob = BlobRef::of(&path.to_le_bytes());
        let counted =
            Counted { path: PathId(path), parent: Version(to), steps: 1, uncapped: 1, weight: 1, norm: 0, blob };
        SignedUpdate {
            update: Update {
                module: ModuleId { level: 0, expert: 0 },
                term: Term(1),
                owner: PeerKey([0; 32]),
                version: Version(version),
                parent,
                contributions: vec![counted].into(),
                norm: 0,
                average: blob,
                state: blob,
                weight: version,
            },
            signature: vec![],
        }
    }

    #[test]
    fn a_contribution_counted_twice_on_one_branch_is_found() {
        let (first, second, other) = (BlobHash([1; 32]), BlobHash([2; 32]), BlobHash([3; 32]));
        let mut invariant = CountedOnce::default();
        assert!(invariant.look(first, &update(GENESIS, 1, (0, 0))).is_ok());
        assert!(invariant.look(other, &update(GENESIS, 1, (0, 0))).is_ok());
        assert!(invariant.look(second, &update(first, 2, (0, 0))).is_err());
        assert!(invariant.look(second, &update(first, 2, (0, 1))).is_ok());
    }

    #[test]
    fn a_peer_may_drop_a_contribution_that_its_chain_counted_long_ago() {
        let place = |version: u64| if version == 0 { GENESIS } else { BlobHash([version as u8; 32]) };
        let mut invariant = CountedOnce::default();
        for version in 1..=VERSIONS_KEPT + 1 {
            invariant.look(place(version), &update(place(version - 1), version, (0, version - 1))).unwrap();
        }
        let module = ModuleId { level: 0, expert: 0 };
        let of = |parent: u64| (PathId(0), Version(parent), BlobRef::of(&0u32.to_le_bytes()).hash);
        invariant.note_head(0, module, place(VERSIONS_KEPT));
        invariant.note_head(1, module, place(VERSIONS_KEPT - 1));
        let may = |peer, parent| invariant.had_counted_long_ago(peer, module, of(parent));
        assert!(may(0, 0) && !may(0, 1), "old enough not to be countable any more");
        assert!(!may(1, 0) && !may(2, 0), "the head of another peer does not count");
    }
}
