//! Holders that are not contributing: their lease says that a path is trained, but its contributions do not arrive.
//!
//! For this node, such a peer no longer holds the path. Another peer may take it, and owners do not wait for it. The
//! peer counts as a holder again when it offers a contribution of the path. The same applies to the paths of a failed
//! owner through the module that it owned. While it is not accepted as owner, and until it offers a contribution there,
//! nobody knows whether it follows its successor. It also applies to all paths of a peer
//! that was quarantined ([`super::score`]), until a contribution of it is counted in full. Otherwise it would take back
//! its path each time its quarantine ends.

use std::collections::{BTreeMap, BTreeSet};

use super::super::limits::{MAX_MEMBERS, UNCOUNTED_VERSIONS};
use crate::names::{ModuleId, PathId, PeerKey, Version};

/// Peers that hold paths and are not contributing.
#[derive(Debug, Default)]
pub(super) struct NotContributing {
    holders: BTreeSet<(PathId, PeerKey)>,
    /// Holders that go on offering contributions of which none is counted: no owner can fetch them.
    passed_over: BTreeSet<(PathId, PeerKey)>,
    /// Failed owners of these modules that have offered nothing there since.
    failed_owners: BTreeSet<(ModuleId, PeerKey)>,
    /// The module's version when a holder was first seen to train a path, or when the path was last counted.
    counted: BTreeMap<(ModuleId, PathId, PeerKey), Version>,
}

impl NotContributing {
    /// Whether a holder of a path is not contributing, given the modules of the path.
    pub(super) fn has(&self, path: PathId, peer: PeerKey, goes_through: impl Fn(ModuleId) -> bool) -> bool {
        let keeps_to_itself = |(module, failed): &(ModuleId, PeerKey)| *failed == peer && goes_through(*module);
        self.holders.contains(&(path, peer))
            || self.passed_over.contains(&(path, peer))
            || self.failed_owners.iter().any(keeps_to_itself)
    }

    /// The peer has offered a contribution of the path.
    pub(super) fn contributes(&mut self, module: ModuleId, path: PathId, peer: PeerKey) {
        self.holders.remove(&(path, peer));
        self.failed_owners.remove(&(module, peer));
    }

    /// The peer has failed as the owner of a module.
    pub(super) fn failed_owner(&mut self, module: ModuleId, owner: PeerKey) {
        if self.failed_owners.len() < MAX_MEMBERS {
            self.failed_owners.insert((module, owner));
        }
    }

    /// A module has a new version. `holders` tells, for each peer that claims to train a path through it, whether the
    /// update counts the path. A path that no update has counted for many versions is not trained.
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

    /// A holder's contributions to several versions were offered, and none is counted.
    pub(super) fn passed_over(&mut self, path: PathId, peer: PeerKey) {
        if self.passed_over.len() < MAX_MEMBERS {
            self.passed_over.insert((path, peer));
        }
    }

    /// Whether owners pass over the contributions that the peer offers for the path.
    pub(super) fn is_passed_over(&self, path: PathId, peer: PeerKey) -> bool {
        self.passed_over.contains(&(path, peer))
    }

    /// A contribution that the peer offered for the path is counted.
    pub(super) fn is_counted(&mut self, path: PathId, peer: PeerKey) {
        self.passed_over.remove(&(path, peer));
    }

    /// Contributions of these holders are long overdue.
    pub(super) fn overdue(&mut self, mut holders: Vec<(PathId, PeerKey)>) {
        holders.truncate(MAX_MEMBERS.saturating_sub(self.holders.len()));
        self.holders.extend(holders);
    }

    /// Forgets failed owners that are accepted again, and holders that are gone.
    pub(super) fn retain(&mut self, failed: impl Fn(PeerKey) -> bool, alive: impl Fn(PeerKey) -> bool) {
        self.failed_owners.retain(|(_, peer)| failed(*peer));
        self.holders.retain(|(_, peer)| alive(*peer));
        self.passed_over.retain(|(_, peer)| alive(*peer));
    }

    /// Number of entries in all tables.
    pub(super) fn count(&self) -> usize {
        self.holders.len() + self.passed_over.len() + self.failed_owners.len() + self.counted.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_counted_contribution_gives_a_path_back_whose_holder_was_passed_over() {
        let (path, peer) = (PathId(1), PeerKey([1; 32]));
        let module = ModuleId { level: 0, expert: 0 };
        let mut holders = NotContributing::default();
        holders.passed_over(path, peer);
        holders.contributes(module, path, peer);
        assert!(holders.has(path, peer, |_| true), "it offers, as it did before");
        holders.is_counted(path, peer);
        assert!(!holders.has(path, peer, |_| true));
    }
}
