//! Receives a blob in pieces, in any order.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::names::BlobRef;
use crate::pieces::{PIECE_BYTES, PieceSet, PieceTree};
use crate::store::blobs::partial::{Arriving, remove, tree_file};
use crate::store::blobs::{BlobError, BlobStore};
use crate::store::durable::{DiskError, open_file, replace, sync_parent};

/// A blob that is being received. Dropped before [`Receiving::finish`], it can be resumed.
pub struct Receiving {
    arriving: Arc<Arriving>,
    store: BlobStore,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.store.arrivals.end(&self.arriving);
    }
}

impl BlobStore {
    /// Begins or resumes to receive a blob. Until [`Receiving::finish`] it is not in the store, but its pieces can be
    /// served. Several receivers of the same blob share its pieces.
    pub fn receive(&self, blob: BlobRef) -> Result<Receiving, BlobError> {
        Ok(Receiving { arriving: self.arrivals.begin(blob)?, store: self.clone() })
    }
}

impl Receiving {
    /// The hashes of the pieces, if known from before.
    pub fn tree(&self) -> Option<Arc<PieceTree>> {
        self.arriving.tree()
    }

    /// Sets the hashes of the pieces. Returns the pieces that are already here.
    pub fn begin(&self, tree: &Arc<PieceTree>) -> Result<PieceSet, DiskError> {
        let arriving = &self.arriving;
        if tree.blob() == arriving.blob && arriving.tree.set(tree.clone()).is_ok() {
            // A sparse file: missing pieces take no space.
            let sized = arriving.file.set_len(arriving.blob.bytes);
            sized.map_err(DiskError::when("cannot reserve space for", &arriving.path))?;
            if !tree.values().is_empty() {
                replace(&tree_file(&arriving.path), tree.values().as_flattened(), open_file)?;
            }
        }
        Ok(arriving.pieces())
    }

    /// Writes a verified piece.
    pub fn write(&self, piece: u32, bytes: &[u8]) -> Result<(), DiskError> {
        let at = u64::from(piece) * PIECE_BYTES;
        let written = self.arriving.file.write_all_at(bytes, at);
        written.map_err(DiskError::when("cannot write", &self.arriving.path))?;
        self.arriving.here().insert(piece);
        self.arriving.written(bytes.len());
        Ok(())
    }

    /// Called when all pieces are here: syncs the blob and adds it to the store.
    pub fn finish(&self) -> Result<BlobRef, BlobError> {
        let Self { arriving, store } = self;
        let blob = arriving.blob;
        if !arriving.pieces().is_whole() {
            return Err(BlobError::NotWhole { blob });
        }
        if !store.holds(blob)? {
            arriving.file.sync_all().map_err(DiskError::when("cannot sync", &arriving.path))?;
            store.name(&arriving.path, blob)?;
            if let Some(tree) = arriving.tree() {
                store.trees.keep(tree);
            }
        }
        remove(&arriving.path)?;
        sync_parent(&arriving.path)?;
        Ok(blob)
    }
}
