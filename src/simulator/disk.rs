//! What a peer has after a crash: blobs that were written whole, and journal records that were synced.

use std::collections::BTreeMap;

use crate::names::{BlobHash, BlobRef};
use crate::protocol::record::Record;

/// A peer's disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    blobs: BTreeMap<BlobHash, Vec<u8>>,
    /// In order.
    pub journal: Vec<Record>,
}

impl Disk {
    /// Keeps a blob.
    pub fn put(&mut self, bytes: Vec<u8>) -> BlobRef {
        let blob = BlobRef::of(&bytes);
        self.blobs.insert(blob.hash, bytes);
        blob
    }

    /// A blob's bytes.
    pub fn get(&self, blob: BlobHash) -> Option<&Vec<u8>> {
        self.blobs.get(&blob)
    }

    /// Drops a blob.
    pub fn remove(&mut self, blob: BlobHash) {
        self.blobs.remove(&blob);
    }

    /// Drops all others.
    pub fn remove_all_but(&mut self, keeps: impl Fn(BlobHash) -> bool) {
        self.blobs.retain(|blob, _| keeps(*blob));
    }

    /// Every blob that is there.
    pub fn names(&self) -> impl Iterator<Item = BlobHash> {
        self.blobs.keys().copied()
    }
}
