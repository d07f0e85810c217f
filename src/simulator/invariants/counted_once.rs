//! Along a chain, no contribution is counted twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::ModuleId;
use crate::protocol::limits::VERSIONS_KEPT;
use crate::protocol::module::chain::TooDeep;
use crate::protocol::wire::message::{ContributionKey, GENESIS, Head, SignedUpdate, UpdateHash};

type Counted = BTreeSet<ContributionKey>;

/// What each place of each chain has counted since genesis.
#[derive(Debug, Default)]
pub struct CountedOnce {
    places: BTreeMap<(ModuleId, UpdateHash), Place>,
    /// Contributions that came a version or more late, on whatever chain.
    pub late: u64,
}

/// What one update counts, and which it follows.
#[derive(Debug)]
struct Place {
    parent: UpdateHash,
    /// And what each of these weighs.
    counts: BTreeMap<ContributionKey, u32>,
}

impl CountedOnce {
    /// # Errors
    /// If the update counts what its chain has counted before. An update whose parent was never looked at is skipped.
    pub fn look(&mut self, hash: UpdateHash, signed: &SignedUpdate) -> Result<(), String> {
        let update = &signed.update;
        let key = (update.module, hash);
        let known_from = update.parent == GENESIS || self.places.contains_key(&(update.module, update.parent));
        if self.places.contains_key(&key) || !known_from {
            return Ok(());
        }
        let mut counts = BTreeMap::new();
        for counted in &update.contributions {
            self.late += u64::from(counted.parent.next() < update.version);
            let before =
                self.back_from(update.module, update.parent).any(|place| place.counts.contains_key(&counted.key()));
            if before || counts.insert(counted.key(), counted.weight).is_some() {
                return Err(format!(
                    "module {} version {} counts path {}'s contribution to version {} again",
                    update.module, update.version, counted.path, counted.parent
                ));
            }
        }
        self.places.insert(key, Place { parent: update.parent, counts });
        Ok(())
    }

    /// A place and those before it, back to genesis.
    fn places_from(&self, module: ModuleId, place: UpdateHash) -> impl Iterator<Item = (UpdateHash, &Place)> {
        let at = move |place: UpdateHash| Some((place, self.places.get(&(module, place))?));
        std::iter::successors(at(place), move |(_, after)| at(after.parent))
    }

    fn back_from(&self, module: ModuleId, place: UpdateHash) -> impl Iterator<Item = &Place> {
        self.places_from(module, place).map(|(_, place)| place)
    }

    /// What a chain that was given up had counted too long ago.
    ///
    /// # Errors
    /// If it is anything but what this chain has counted since it parted from the one that goes on, which has not, and
    /// what was too old for it; or weighs anything else.
    pub fn given_up(&self, module: ModuleId, part: &TooDeep, goes_on: Head) -> Result<Counted, String> {
        let stays: BTreeSet<UpdateHash> = self.places_from(module, goes_on.update).map(|(hash, _)| hash).collect();
        let counted = self.counted(module, goes_on.update);
        let gone = self.places_from(module, part.head).take_while(|(hash, _)| !stays.contains(hash));
        let (mut lost, mut weight, mut versions) = (Counted::new(), 0, 0);
        for (_, place) in gone {
            versions += 1;
            let is_kept = versions <= part.version.0 - part.until.0;
            let is_lost =
                |(_, parent, _): &ContributionKey| !is_kept || part.version.0.saturating_sub(parent.0) >= VERSIONS_KEPT;
            for (key, counts) in place.counts.iter().filter(|(key, _)| is_lost(key) && !counted.contains(key)) {
                lost.insert(*key);
                weight += u64::from(*counts);
            }
        }
        if (versions, weight) != (part.version.0 - part.after.0, part.weight) {
            return Err(format!(
                "of module {module} {versions} versions and a weight of {weight} are lost, not {part:?}"
            ));
        }
        Ok(lost)
    }

    /// Whether any chain, given up since or not, has counted a contribution.
    pub fn has_ever_counted(&self, module: ModuleId, contribution: ContributionKey) -> bool {
        let of_module = self.places.iter().filter(|((of, _), _)| *of == module);
        of_module.map(|(_, place)| place).any(|place| place.counts.contains_key(&contribution))
    }

    /// Everything that a place's chain has counted since genesis; nothing at genesis.
    pub fn counted(&self, module: ModuleId, place: UpdateHash) -> BTreeSet<ContributionKey> {
        self.back_from(module, place).flat_map(|place| place.counts.keys()).copied().collect()
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
        let counted = Counted { path: PathId(path), parent: Version(to), weight: 1, norm: 0, blob };
        SignedUpdate {
            update: Update {
                module: ModuleId { level: 0, expert: 0 },
                term: Term(1),
                owner: PeerKey([0; 32]),
                version: Version(version),
                parent,
                contributions: vec![counted],
                norm: 0,
                average: blob,
                state: blob,
                weight: version,
            },
            signature: vec![],
        }
    }

    #[test]
    fn counting_twice_is_found_and_on_another_branch_it_is_not_twice() {
        let (first, second, other) = (BlobHash([1; 32]), BlobHash([2; 32]), BlobHash([3; 32]));
        let mut invariant = CountedOnce::default();
        assert!(invariant.look(first, &update(GENESIS, 1, (0, 0))).is_ok());
        assert!(invariant.look(other, &update(GENESIS, 1, (0, 0))).is_ok());
        assert!(invariant.look(second, &update(first, 2, (0, 0))).is_err());
        assert!(invariant.look(second, &update(first, 2, (0, 1))).is_ok());
    }
}
