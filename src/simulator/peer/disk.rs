//! A peer's disk after a crash: complete blobs, and synced journal records.
//!
//! Unsynced changes may or may not survive: a removed blob may reappear, and an incomplete record is ignored.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{BlobHash, BlobRef, ModuleId, PathId, Phase};
use crate::protocol::journal::record::{Record, read_lists};
use crate::protocol::wire::amended::Amended;
use crate::sampling::WorkerSlots;
use crate::simulator::rng::SeededRng;

/// Removals that may be undone.
const UNSYNCED_REMOVALS: usize = 8;

/// A journal with more records, and twice as many as after the last rewrite, is rewritten, as in a peer.
const JOURNAL_RECORDS: usize = 128;

/// A peer's disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    blobs: BTreeMap<BlobHash, Vec<u8>>,
    removed: Vec<(BlobHash, Vec<u8>)>,
    /// The amendment of the run that this peer has stored.
    pub amendment: Option<Amended>,
    /// In order.
    pub journal: Vec<Record>,
    rewritten: usize,
}

impl Disk {
    /// With these blobs.
    pub fn with<'a>(blobs: impl IntoIterator<Item = &'a Vec<u8>>) -> Self {
        let mut disk = Self::default();
        for bytes in blobs {
            disk.put(bytes.clone());
        }
        disk
    }

    /// Of a peer that has these paths from the start of the run.
    pub fn placed(slots: &WorkerSlots, paths: &[PathId], genesis: &BTreeMap<ModuleId, Vec<u8>>) -> Self {
        let modules: BTreeSet<ModuleId> = paths.iter().flat_map(|path| slots.modules(*path, Phase(0))).collect();
        let mut disk = Self::default();
        for (module, bytes) in modules.into_iter().filter_map(|module| Some((module, genesis.get(&module)?))) {
            let state = disk.put(bytes.clone());
            disk.journal.push(Record::Genesis { module, state });
        }
        disk.journal.extend(paths.iter().map(|path| Record::Lease { path: *path, held: true, standby: false }));
        disk
    }

    /// Stores a blob.
    pub fn put(&mut self, bytes: Vec<u8>) -> BlobRef {
        let blob = BlobRef::of(&bytes);
        self.blobs.insert(blob.hash, bytes);
        blob
    }

    /// A blob's bytes.
    pub fn get(&self, blob: BlobHash) -> Option<&Vec<u8>> {
        self.blobs.get(&blob)
    }

    /// The journal's records as they are read at a start: lists of contributions are in blobs.
    pub fn records(&self) -> Vec<Record> {
        let mut records = self.journal.clone();
        records.iter_mut().flat_map(Record::updates_mut).for_each(|signed| signed.update.contributions.forget());
        read_lists(&mut records, |list| self.get(list.hash).cloned());
        records
    }

    /// Rewrites a long journal, once everything that goes with these records is written.
    pub fn rewrite_if_long(&mut self, records: impl FnOnce() -> Vec<Record>) {
        if self.journal.len() > JOURNAL_RECORDS.max(2 * self.rewritten) {
            self.journal = records();
            self.rewritten = self.journal.len();
        }
    }

    pub fn remove(&mut self, blob: BlobHash) {
        let Some(bytes) = self.blobs.remove(&blob) else { return };
        if self.removed.len() >= UNSYNCED_REMOVALS {
            self.removed.remove(0);
        }
        self.removed.push((blob, bytes));
    }

    /// The machine crashes: some of the last removals are undone.
    pub fn crash(&mut self, rng: &mut SeededRng) {
        let returned = std::mem::take(&mut self.removed).into_iter().filter(|_| rng.chance(0.5));
        self.blobs.extend(returned);
    }

    pub fn remove_all_but(&mut self, keeps: impl Fn(BlobHash) -> bool) {
        self.blobs.retain(|blob, _| keeps(*blob));
    }

    pub fn names(&self) -> impl Iterator<Item = BlobHash> {
        self.blobs.keys().copied()
    }
}
