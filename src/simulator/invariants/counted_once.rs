//! Along a chain, no contribution is counted twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::ModuleId;
use crate::protocol::message::{ContributionKey, GENESIS, SignedUpdate, UpdateHash};

type Counted = BTreeSet<ContributionKey>;

/// What each place of each chain has counted since genesis.
#[derive(Debug, Default)]
pub struct CountedOnce {
    places: BTreeMap<(ModuleId, UpdateHash), Counted>,
    /// Contributions that came a version or more late, on whatever chain.
    pub late: u64,
}

impl CountedOnce {
    /// # Errors
    /// If the update counts what its chain has counted before. An update whose parent was never looked at is skipped.
    pub fn look(&mut self, hash: UpdateHash, signed: &SignedUpdate) -> Result<(), String> {
        let update = &signed.update;
        let key = (update.module, hash);
        if self.places.contains_key(&key) {
            return Ok(());
        }
        let before = match self.places.get(&(update.module, update.parent)) {
            Some(counted) => counted.clone(),
            None if update.parent == GENESIS => Counted::new(),
            None => return Ok(()),
        };
        let mut after = before;
        for counted in &update.contributions {
            self.late += u64::from(counted.parent.next() < update.version);
            if !after.insert(counted.key()) {
                return Err(format!(
                    "module {} version {} counts path {}'s contribution to version {} again",
                    update.module, update.version, counted.path, counted.parent
                ));
            }
        }
        self.places.insert(key, after);
        Ok(())
    }

    /// Whether any chain, given up since or not, has counted a contribution.
    pub fn has_ever_counted(&self, module: ModuleId, contribution: ContributionKey) -> bool {
        let of_module = self.places.iter().filter(|((of, _), _)| *of == module);
        of_module.map(|(_, counted)| counted).any(|counted| counted.contains(&contribution))
    }

    /// Everything that a place's chain has counted since genesis; nothing at genesis.
    pub fn counted(&self, module: ModuleId, place: UpdateHash) -> Option<&BTreeSet<ContributionKey>> {
        self.places.get(&(module, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobHash, BlobRef, PathId, PeerKey, Term, Version};
    use crate::protocol::message::{Counted, Update};

    fn update(parent: UpdateHash, version: u64, contribution: (u32, u64)) -> SignedUpdate {
        let (path, to) = contribution;
        let blob = BlobRef::of(&path.to_le_bytes());
        let counted = Counted { path: PathId(path), parent: Version(to), weight: 1, blob };
        SignedUpdate {
            update: Update {
                module: ModuleId { level: 0, expert: 0 },
                term: Term(1),
                owner: PeerKey([0; 32]),
                version: Version(version),
                parent,
                contributions: vec![counted],
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
