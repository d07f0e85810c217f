//! Holders that do not train: a lease says that a path is trained, but what it should contribute does not come.
//!
//! Such a peer holds the path no longer, as far as this node is concerned: another may take it up, and owners do not
//! wait for it. When it offers something for the path, it counts again. So it is with the paths through a module that a
//! peer has failed as the owner of, while it is not believed, until it offers anything there: it may take itself for the
//! owner still, and offer to nobody else. And so it is with all paths of a peer that was quarantined ([`super::score`]), until
//! something of it is counted in full: it would take back its path each time that its quarantine ends.

use std::collections::{BTreeMap, BTreeSet};

use super::super::limits::{MAX_MEMBERS, UNCOUNTED_VERSIONS};
use crate::names::{ModuleId, PathId, PeerKey, Version};

/// Peers that hold paths, and are not believed to train them.
#[derive(Debug, Default)]
pub(super) struct NotContributing {
    holders: BTreeSet<(PathId, PeerKey)>,
    /// Failed as owners of these modules, and have offered nothing there since.
    failed_owners: BTreeSet<(ModuleId, PeerKey)>,
    /// The module's version when a holder was first seen to train a path, or when that was counted last.
    counted: BTreeMap<(ModuleId, PathId, PeerKey), Version>,
}

impl NotContributing {
    /// Whether a peer is not believed to train a path, given which modules the path goes through.
    pub(super) fn has(&self, path: PathId, peer: PeerKey, goes_through: impl Fn(ModuleId) -> bool) -> bool {
        let keeps_to_itself = |(module, failed): &(ModuleId, PeerKey)| *failed == peer && goes_through(*module);
        self.holders.contains(&(path, peer)) || self.failed_owners.iter().any(keeps_to_itself)
    }

    /// It has offered something for the path.
    pub(super) fn contributes(&mut self, module: ModuleId, path: PathId, peer: PeerKey) {
        self.holders.remove(&(path, peer));
        self.failed_owners.remove(&(module, peer));
    }

    /// It has failed as the owner of a module.
    pub(super) fn failed_owner(&mut self, module: ModuleId, owner: PeerKey) {
        if self.failed_owners.len() < MAX_MEMBERS {
            self.failed_owners.insert((module, owner));
        }
    }

    /// A module has a new version. These peers hold these paths through it, and train them as they say; of each, whether the
    /// update counts the path. A path that none has counted for many versions is not trained.
    pub(super) fn note_counted(
        &mut self,
        module: ModuleId,
        version: Version,
        holders: impl Iterator<Item = (PathId, PeerKey, bool)>,
    ) {
        let mut here = BTreeMap::new();
        for (path, peer, counts) in holders {
            let known = self.counted.get(&(module, path, peer)).copied().filter(|_| !counts);
            here.insert((module, path, peer), known.unwrap_or(version));
        }
        self.counted.retain(|(of, ..), _| *of != module);
        let room = MAX_MEMBERS.saturating_sub(self.counted.len());
        for (key, since) in here.into_iter().take(room) {
            let (_, path, peer) = key;
            if version.0.saturating_sub(since.0) >= UNCOUNTED_VERSIONS {
                self.holders.insert((path, peer));
            }
            self.counted.insert(key, since);
        }
    }

    /// These holders' contributions are long overdue.
    pub(super) fn overdue(&mut self, mut holders: Vec<(PathId, PeerKey)>) {
        holders.truncate(MAX_MEMBERS.saturating_sub(self.holders.len()));
        self.holders.extend(holders);
    }

    /// Forgets failed owners that are believed again, and holders that are gone.
    pub(super) fn retain(&mut self, failed: impl Fn(PeerKey) -> bool, alive: impl Fn(PeerKey) -> bool) {
        self.failed_owners.retain(|(_, peer)| failed(*peer));
        self.holders.retain(|(_, peer)| alive(*peer));
    }

    /// How many entries there are in all tables.
    pub(super) fn count(&self) -> usize {
        self.holders.len() + self.failed_owners.len() + self.counted.len()
    }
}
