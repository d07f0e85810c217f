//! What this node has trained, what it has combined in chains that were given up, and what it has signed before a restart:
//! all that it may say again.

use std::collections::VecDeque;

use super::super::journal::record::{Finished, Record};
use super::super::limits::MAX_REPROPOSED;
use super::super::wire::message::{Counted, SignedUpdate, UpdateHash};
use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, Phase, Version};
use crate::protocol::wire::inner_checkpoint::BaseVersion;

/// A module, a path, the version and the update that it started from, and the bytes.
pub(in crate::protocol) type Contribution = (ModuleId, PathId, (Version, UpdateHash), BlobRef);

/// A contribution counted in a chain that was given up, and not in the one taken. This node combined it, so it has the
/// bytes, and proposes it again where the peer that trained it may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Reproposed {
    pub(in crate::protocol) module: ModuleId,
    /// The update that it was trained from, as far as that is known.
    pub(in crate::protocol) parent_update: UpdateHash,
    pub(in crate::protocol) counted: Counted,
}

/// A node's contributions, for as long as they may be counted.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Contributions {
    /// What this node trained, newest last.
    finished: VecDeque<Finished>,
    reproposed: VecDeque<Reproposed>,
    /// Updates that this node has signed before a restart.
    sealed: Vec<SignedUpdate>,
    /// When all that is outstanding was last offered; nothing if that is to be done now.
    offered_at: Option<Millis>,
}

impl Contributions {
    pub(in crate::protocol) fn is_empty(&self) -> bool {
        self.finished.is_empty()
    }

    /// A phase was trained.
    pub(in crate::protocol) fn add(&mut self, finished: Finished) {
        self.finished.push_back(finished);
    }

    pub(in crate::protocol) fn contains(&self, finished: &Finished) -> bool {
        self.finished.contains(finished)
    }

    /// What was trained of a path, newest first.
    pub(in crate::protocol) fn trained(&self, path: PathId) -> impl Iterator<Item = &Finished> {
        self.finished.iter().rev().filter(move |finished| finished.path == path)
    }

    /// What was trained of a path in a phase last.
    pub(in crate::protocol) fn trained_in(&self, path: PathId, phase: Phase) -> Option<&Finished> {
        self.trained(path).find(|finished| finished.phase == phase)
    }

    /// What the trainer of a path stands on, if it has trained here.
    pub(in crate::protocol) fn base_states(&self, path: PathId) -> &[(BaseVersion, BlobRef)] {
        self.trained(path).next().map_or(&[], |finished| &finished.base_states)
    }

    /// Nothing of a path is trained from where it stood any more: these states can go.
    pub(in crate::protocol) fn release_base_states(&mut self, path: PathId) -> Vec<BlobRef> {
        let of = self.finished.iter_mut().filter(|finished| finished.path == path);
        of.flat_map(|finished| finished.base_states.drain(..)).map(|(_, state)| state).collect()
    }

    /// Takes in what is proposed again; whether it is new and there is room.
    pub(in crate::protocol) fn repropose(&mut self, reproposed: Reproposed) -> bool {
        let takes = self.reproposed.len() < MAX_REPROPOSED && !self.reproposed.contains(&reproposed);
        if takes {
            self.reproposed.push_back(reproposed);
        }
        takes
    }

    /// The same from the journal, which is not bounded again.
    pub(in crate::protocol) fn restore_reproposed(&mut self, reproposed: Reproposed) {
        if !self.reproposed.contains(&reproposed) {
            self.reproposed.push_back(reproposed);
        }
    }

    /// How many are proposed again.
    pub(in crate::protocol) fn reproposed(&self) -> usize {
        self.reproposed.len()
    }

    /// Everything that this node can offer, counted or not.
    pub(in crate::protocol) fn all(&self) -> impl Iterator<Item = Contribution> {
        let trained = self.finished.iter().flat_map(|finished| {
            let of = |(from, blob): &(BaseVersion, BlobRef)| {
                (from.module, finished.path, (from.version, from.update), *blob)
            };
            finished.offers.iter().map(of)
        });
        let reproposed = self.reproposed.iter().map(|reproposed| {
            let counted = reproposed.counted;
            (reproposed.module, counted.path, (counted.parent, reproposed.parent_update), counted.blob)
        });
        trained.chain(reproposed)
    }

    /// Lets go of what these modules will not count any more; says which blobs.
    pub(in crate::protocol) fn retain(&mut self, keeps: impl Fn(ModuleId, Version) -> bool) -> Vec<BlobHash> {
        let old = extract(&mut self.finished, |finished| {
            !finished.offers.iter().any(|(from, _)| keeps(from.module, from.version))
        });
        let dropped = extract(&mut self.reproposed, |it| !keeps(it.module, it.counted.parent));
        let of_old = old.iter().flat_map(|finished| &finished.offers).map(|(_, blob)| blob.hash);
        of_old.chain(dropped.iter().map(|reproposed| reproposed.counted.blob.hash)).collect()
    }

    /// From the journal: an update that was signed before a restart.
    pub(in crate::protocol) fn restore_sealed(&mut self, signed: SignedUpdate) {
        if !self.sealed.contains(&signed) {
            self.sealed.push(signed);
        }
    }

    /// Updates signed before a restart.
    pub(in crate::protocol) fn sealed(&self) -> impl Iterator<Item = &SignedUpdate> {
        self.sealed.iter()
    }

    /// Takes those out for which this holds.
    pub(in crate::protocol) fn take_sealed(&mut self, takes: impl Fn(&SignedUpdate) -> bool) -> Vec<SignedUpdate> {
        self.sealed.extract_if(.., |signed| takes(signed)).collect()
    }

    /// All is to be offered again, at once.
    pub(in crate::protocol) fn offer_again(&mut self) {
        self.offered_at = None;
    }

    /// Whether it is time to offer again what is outstanding.
    pub(in crate::protocol) fn offer_is_due(&self, now: Millis, repeat_ms: u64) -> bool {
        self.offered_at.is_none_or(|at| now.since(at) >= repeat_ms)
    }

    pub(in crate::protocol) fn offered(&mut self, now: Millis) {
        self.offered_at = Some(now);
    }

    /// The blobs of all of them.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        let averages = self.sealed.iter().map(|signed| signed.update.average.hash);
        averages.chain(self.all().map(|(.., blob)| blob.hash))
    }

    /// What the journal says of phases that were trained.
    pub(in crate::protocol) fn finished_records(&self) -> impl Iterator<Item = Record> {
        self.finished.iter().cloned().map(Record::Finished)
    }

    /// And of what is proposed again.
    pub(in crate::protocol) fn reproposed_records(&self) -> impl Iterator<Item = Record> {
        self.reproposed.iter().map(|reproposed| {
            let Reproposed { module, parent_update, counted } = *reproposed;
            Record::Reproposed { module, parent_update, counted }
        })
    }
}

/// Takes out what is gone; the rest stays in its order.
fn extract<T>(list: &mut VecDeque<T>, gone: impl Fn(&T) -> bool) -> Vec<T> {
    let (out, kept): (Vec<T>, Vec<T>) = std::mem::take(list).into_iter().partition(gone);
    *list = kept.into();
    out
}
