//! The contributions that this node may offer: what it has trained, what it re-proposes from abandoned chains, and the
//! updates that it signed before a restart.

use std::collections::VecDeque;

use super::super::journal::record::{Finished, Record};
use super::super::limits::MAX_REPROPOSED;
use super::super::wire::message::{ContributionKey, Counted, SignedUpdate, UpdateHash};
use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, Phase, Version};
use crate::protocol::wire::inner_checkpoint::BaseVersion;

/// What this node can offer to a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Contribution {
    pub(in crate::protocol) module: ModuleId,
    pub(in crate::protocol) path: PathId,
    /// The base version, and the update that made it.
    pub(in crate::protocol) parent: Version,
    pub(in crate::protocol) parent_update: UpdateHash,
    /// Inner steps that led to it.
    pub(in crate::protocol) steps: u32,
    pub(in crate::protocol) blob: BlobRef,
}

impl Contribution {
    pub(in crate::protocol) fn key(&self) -> ContributionKey {
        (self.path, self.parent, self.blob.hash)
    }
}

/// A re-proposed contribution: an abandoned chain counted it, but the adopted chain does not. This node aggregated it
/// and has the bytes. It re-proposes it because the peer that trained it may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Reproposed {
    pub(in crate::protocol) module: ModuleId,
    /// The base update, as far as known.
    pub(in crate::protocol) parent_update: UpdateHash,
    pub(in crate::protocol) counted: Counted,
}

/// A node's contributions, for as long as they can be counted.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Contributions {
    /// The phases that this node trained, newest last.
    finished: VecDeque<Finished>,
    reproposed: VecDeque<Reproposed>,
    /// The updates that this node signed before a restart.
    sealed: Vec<SignedUpdate>,
    /// When all outstanding contributions were last offered; nothing if they are to be offered now.
    offered_at: Option<Millis>,
}

impl Contributions {
    pub(in crate::protocol) fn is_empty(&self) -> bool {
        self.finished.is_empty()
    }

    /// Adds a trained phase.
    pub(in crate::protocol) fn add(&mut self, finished: Finished) {
        self.finished.push_back(finished);
    }

    pub(in crate::protocol) fn contains(&self, finished: &Finished) -> bool {
        self.finished.contains(finished)
    }

    /// The trained phases of a path, newest first.
    pub(in crate::protocol) fn trained(&self, path: PathId) -> impl Iterator<Item = &Finished> {
        self.finished.iter().rev().filter(move |finished| finished.path == path)
    }

    /// The newest result of a phase of a path.
    pub(in crate::protocol) fn trained_in(&self, path: PathId, phase: Phase) -> Option<&Finished> {
        self.trained(path).find(|finished| finished.phase == phase)
    }

    /// The base states of a path's trainer, if the path was trained here.
    pub(in crate::protocol) fn base_states(&self, path: PathId) -> &[(BaseVersion, BlobRef)] {
        self.trained(path).next().map_or(&[], |finished| &finished.base_states)
    }

    /// Removes the base states of a path, which nothing is trained from any more.
    pub(in crate::protocol) fn release_base_states(&mut self, path: PathId) -> Vec<BlobRef> {
        let of = self.finished.iter_mut().filter(|finished| finished.path == path);
        of.flat_map(|finished| finished.base_states.drain(..)).map(|(_, state)| state).collect()
    }

    /// Adds a re-proposed contribution. Returns whether it is new and fits.
    pub(in crate::protocol) fn repropose(&mut self, reproposed: Reproposed) -> bool {
        let takes = self.reproposed.len() < MAX_REPROPOSED && !self.reproposed.contains(&reproposed);
        if takes {
            self.reproposed.push_back(reproposed);
        }
        takes
    }

    /// Adds one from the journal, without the bound.
    pub(in crate::protocol) fn restore_reproposed(&mut self, reproposed: Reproposed) {
        if !self.reproposed.contains(&reproposed) {
            self.reproposed.push_back(reproposed);
        }
    }

    /// How many contributions are re-proposed.
    pub(in crate::protocol) fn reproposed(&self) -> usize {
        self.reproposed.len()
    }

    /// Every contribution that this node can offer, counted or not.
    pub(in crate::protocol) fn all(&self) -> impl Iterator<Item = Contribution> {
        let trained = self.finished.iter().flat_map(|finished| {
            let of = |(from, blob): &(BaseVersion, BlobRef)| Contribution {
                module: from.module,
                path: finished.path,
                parent: from.version,
                parent_update: from.update,
                steps: u32::try_from(finished.steps).unwrap_or(u32::MAX),
                blob: *blob,
            };
            finished.offers.iter().map(of)
        });
        let reproposed = self.reproposed.iter().map(|reproposed| {
            let Counted { path, parent, steps, blob, .. } = reproposed.counted;
            Contribution {
                module: reproposed.module,
                path,
                parent,
                parent_update: reproposed.parent_update,
                steps,
                blob,
            }
        });
        trained.chain(reproposed)
    }

    /// Drops the contributions that these modules can no longer count. Returns their blobs.
    pub(in crate::protocol) fn retain(&mut self, keeps: impl Fn(ModuleId, Version) -> bool) -> Vec<BlobHash> {
        let old = extract(&mut self.finished, |finished| {
            !finished.offers.iter().any(|(from, _)| keeps(from.module, from.version))
        });
        let dropped = extract(&mut self.reproposed, |it| !keeps(it.module, it.counted.parent));
        let of_old = old.iter().flat_map(|finished| &finished.offers).map(|(_, blob)| blob.hash);
        of_old.chain(dropped.iter().map(|reproposed| reproposed.counted.blob.hash)).collect()
    }

    /// From the journal: an update signed before a restart.
    pub(in crate::protocol) fn restore_sealed(&mut self, signed: SignedUpdate) {
        if !self.sealed.contains(&signed) {
            self.sealed.push(signed);
        }
    }

    /// The updates signed before a restart.
    pub(in crate::protocol) fn sealed(&self) -> impl Iterator<Item = &SignedUpdate> {
        self.sealed.iter()
    }

    /// Removes and returns the sealed updates that match.
    pub(in crate::protocol) fn take_sealed(&mut self, takes: impl Fn(&SignedUpdate) -> bool) -> Vec<SignedUpdate> {
        self.sealed.extract_if(.., |signed| takes(signed)).collect()
    }

    /// All contributions are to be offered again at once.
    pub(in crate::protocol) fn offer_again(&mut self) {
        self.offered_at = None;
    }

    /// Whether the outstanding contributions are due to be offered again.
    pub(in crate::protocol) fn offer_is_due(&self, now: Millis, repeat_ms: u64) -> bool {
        self.offered_at.is_none_or(|at| now.since(at) >= repeat_ms)
    }

    pub(in crate::protocol) fn offered(&mut self, now: Millis) {
        self.offered_at = Some(now);
    }

    /// The blobs of all contributions and sealed averages.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        let averages = self.sealed.iter().map(|signed| signed.update.average);
        let lists = self.sealed.iter().filter_map(|signed| signed.update.contributions.list());
        averages.chain(lists).map(|blob| blob.hash).chain(self.all().map(|contribution| contribution.blob.hash))
    }

    /// The journal records of trained phases.
    pub(in crate::protocol) fn finished_records(&self) -> impl Iterator<Item = Record> {
        self.finished.iter().cloned().map(Record::Finished)
    }

    /// The journal records of re-proposed contributions.
    pub(in crate::protocol) fn reproposed_records(&self) -> impl Iterator<Item = Record> {
        self.reproposed.iter().map(|reproposed| {
            let Reproposed { module, parent_update, counted } = *reproposed;
            Record::Reproposed { module, parent_update, counted }
        })
    }
}

/// Removes the matching entries. The rest keeps its order.
fn extract<T>(list: &mut VecDeque<T>, gone: impl Fn(&T) -> bool) -> Vec<T> {
    let (out, kept): (Vec<T>, Vec<T>) = std::mem::take(list).into_iter().partition(gone);
    *list = kept.into();
    out
}
