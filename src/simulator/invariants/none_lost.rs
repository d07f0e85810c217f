//! Invariant: no contribution is lost silently. At the end, each contribution is counted; or another one of the path
//! from the same update is; or it was reported as too old; or it is retained and shown as uncounted; or it went down
//! with the only peer that had it; or it was counted in a chain that was abandoned so long after that its peer no
//! longer had to retain it. One limit is known: a peer that leaves a module after its contribution was counted drops
//! it. If that chain is abandoned later and its owner is gone too, so is the contribution.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{BlobHash, ModuleId, PathId, Version};
use crate::protocol::wire::message::{ContributionKey, UpdateHash};

/// Every contribution that was ever stored on a disk.
#[derive(Debug, Default)]
pub struct NoneLost {
    trained: BTreeMap<(ModuleId, ContributionKey), Trained>,
    told: BTreeMap<(ModuleId, PathId, Version), BTreeSet<usize>>,
    left: BTreeSet<(usize, ModuleId, ContributionKey)>,
}

/// The peers that have trained a contribution, and its base update.
#[derive(Debug, Default)]
struct Trained {
    peers: BTreeSet<usize>,
    from: Option<UpdateHash>,
}

/// The fates of contributions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Counted in a final chain.
    pub counted: usize,
    /// In no chain, since one counts another peer's contribution for the path from the same update.
    pub twice: usize,
    /// Retained and shown as uncounted: the module was done before they came.
    pub uncounted: usize,
    /// Reported as too old.
    pub told: usize,
    /// Counted in an abandoned chain, so long ago that its peer no longer retained it.
    pub given_up: usize,
    /// Gone with their peer; or in a chain that was abandoned after the peer had left the module.
    pub gone: usize,
}

impl Tally {
    /// Adds the fates of another swarm.
    pub fn add(&mut self, other: &Self) {
        self.counted += other.counted;
        self.twice += other.twice;
        self.uncounted += other.uncounted;
        self.told += other.told;
        self.given_up += other.given_up;
        self.gone += other.gone;
    }
}

impl NoneLost {
    /// A peer has finished training this, and its journal has it; with a base update, if only the first from one base
    /// is counted.
    pub fn trained(&mut self, peer: usize, module: ModuleId, contribution: ContributionKey, from: Option<UpdateHash>) {
        let trained = self.trained.entry((module, contribution)).or_default();
        trained.peers.insert(peer);
        trained.from = from;
    }

    /// A peer reports that this has become too old.
    pub fn told(&mut self, peer: usize, module: ModuleId, path: PathId, parent: Version) {
        self.told.entry((module, path, parent)).or_default().insert(peer);
    }

    /// A peer leaves a module, and no longer retains its contributions.
    pub fn left(&mut self, peer: usize, module: ModuleId) {
        let by_it = |trained: &Trained| trained.peers.contains(&peer);
        let of_module = self.trained.iter().filter(|((of, _), trained)| *of == module && by_it(trained));
        self.left.extend(of_module.map(|((_, contribution), _)| (peer, module, *contribution)));
    }

    /// # Errors
    /// The first contribution that no peer knows.
    pub fn settle(
        &self,
        counted: impl Fn(ModuleId, ContributionKey) -> bool,
        shown: &BTreeSet<(ModuleId, ContributionKey)>,
        ever_counted: impl Fn(ModuleId, ContributionKey) -> bool,
        had_counted_long_ago: impl Fn(usize, ModuleId, ContributionKey) -> bool,
        alive: impl Fn(usize) -> bool,
    ) -> Result<Tally, String> {
        let mut tally = Tally::default();
        for ((module, contribution), Trained { peers, from }) in &self.trained {
            let (path, parent, _) = *contribution;
            let place = |blob| (*module, (path, parent, BlobHash(blob)));
            let mut beside = self.trained.range(place([0; 32])..=place([255; 32]));
            let may_be_gone = |peer: &usize| {
                self.left.contains(&(*peer, *module, *contribution)) && ever_counted(*module, *contribution)
            };
            // The owner may have offered it on behalf of its trainer.
            let told = self.told.get(&(*module, path, parent));
            let is_told = told.is_some_and(|told| !told.is_disjoint(peers) || ever_counted(*module, *contribution));
            if counted(*module, *contribution) {
                tally.counted += 1;
            } else if from.is_some()
                && beside.any(|((_, other), trained)| trained.from == *from && counted(*module, *other))
            {
                tally.twice += 1;
            } else if shown.contains(&(*module, *contribution)) {
                tally.uncounted += 1;
            } else if is_told {
                tally.told += 1;
            } else if peers.iter().any(|peer| had_counted_long_ago(*peer, *module, *contribution)) {
                tally.given_up += 1;
            } else if !peers.iter().any(|peer| alive(*peer) && !may_be_gone(peer)) {
                tally.gone += 1;
            } else {
                return Err(format!("path {path}'s contribution to module {module} version {parent}, of {peers:?}"));
            }
        }
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BlobHash;

    #[test]
    fn a_contribution_that_is_not_counted_kept_or_reported_is_found() {
        let module = ModuleId { level: 0, expert: 0 };
        let contribution = |path| (PathId(path), Version(3), BlobHash([path as u8; 32]));
        let mut ledger = NoneLost::default();
        for path in 0..4 {
            ledger.trained(path as usize, module, contribution(path), None);
        }
        let counted = |_, key| key == contribution(0);
        let shown = BTreeSet::from([(module, contribution(1))]);
        let settle =
            |ledger: &NoneLost| ledger.settle(counted, &shown, |_, _| false, |_, _, _| false, |peer| peer != 2);
        assert!(settle(&ledger).is_err_and(|lost| lost.starts_with("path 3's contribution to module 0.0 version 3")));
        let settled = ledger.settle(counted, &shown, |_, _| false, |peer, _, _| peer == 3, |peer| peer != 2);
        assert_eq!(settled.map(|tally| tally.given_up), Ok(1));
        ledger.told(3, module, PathId(3), Version(3));
        assert_eq!(settle(&ledger), Ok(Tally { counted: 1, uncounted: 1, told: 1, gone: 1, ..Tally::default() }));
    }

    #[test]
    fn of_two_contributions_of_a_path_from_the_same_update_one_is_in_a_chain() {
        let module = ModuleId { level: 0, expert: 0 };
        let contribution = |byte| (PathId(1), Version(3), BlobHash([byte; 32]));
        let mut ledger = NoneLost::default();
        for (byte, from) in [(0, 7), (1, 7), (2, 8)] {
            ledger.trained(usize::from(byte), module, contribution(byte), Some(BlobHash([from; 32])));
        }
        let shown = BTreeSet::from([(module, contribution(2))]);
        let settled =
            |first| ledger.settle(|_, key| key == contribution(first), &shown, |_, _| false, |_, _, _| false, |_| true);
        assert_eq!(settled(1), Ok(Tally { counted: 1, twice: 1, uncounted: 1, ..Tally::default() }));
        assert!(settled(2).is_err(), "a contribution from another update is no reason to lose it");
    }
}
