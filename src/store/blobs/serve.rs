//! Serves blobs to other peers: complete ones, and the pieces of partial ones.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::names::BlobRef;
use crate::pieces::{PIECE_BYTES, PieceSet, PieceTree, piece_bytes, piece_count, value_of};
use crate::store::blobs::partial::Arriving;
use crate::store::blobs::{BlobError, BlobStore};
use crate::store::durable::DiskError;

/// Cached hashes of pieces: 2^19 x 32 bytes = 16 MiB, for 128 GiB of blobs.
const CACHED_VALUES: usize = 1 << 19;

/// The trees of blobs that were served lately.
#[derive(Default)]
pub(crate) struct Trees {
    kept: Mutex<VecDeque<Arc<PieceTree>>>,
    /// One tree is computed at a time, so that a second task finds the same one in the cache.
    making: Mutex<()>,
}

impl Trees {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<PieceTree>>> {
        // A tree is in the cache or not, at any moment.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn keep(&self, tree: Arc<PieceTree>) {
        let mut kept = self.lock();
        kept.retain(|other| other.blob() != tree.blob());
        kept.push_front(tree);
        while kept.iter().map(|tree| tree.values().len()).sum::<usize>() > CACHED_VALUES {
            kept.pop_back();
        }
    }

    fn of(&self, blob: BlobRef) -> Option<Arc<PieceTree>> {
        self.lock().iter().find(|tree| tree.blob() == blob).cloned()
    }
}

/// A blob, or its pieces, to send. It can be read even if the blob is removed.
pub struct Served {
    blob: BlobRef,
    from: From,
    store: BlobStore,
}

enum From {
    Whole(File),
    Part(Arc<Arriving>),
}

impl BlobStore {
    /// The pieces of a blob that are here; `None` if there are none, or the size differs.
    pub fn serve(&self, blob: BlobRef) -> Result<Option<Served>, DiskError> {
        let whole = self.open_file(blob.hash)?.filter(|(_, bytes)| *bytes == blob.bytes);
        let from = whole.map(|(file, _)| From::Whole(file));
        let from = from.or_else(|| self.arrivals.active(blob).map(From::Part));
        Ok(from.filter(|_| piece_count(blob.bytes).is_some()).map(|from| Served { blob, from, store: self.clone() }))
    }
}

impl Served {
    pub fn pieces(&self) -> PieceSet {
        match &self.from {
            From::Whole(_) => PieceSet::all(piece_count(self.blob.bytes).unwrap_or(0)),
            From::Part(arriving) => arriving.pieces(),
        }
    }

    /// The hashes of all pieces; `None` while they are unknown. The first call reads the whole blob.
    pub fn tree(&self) -> Result<Option<Arc<PieceTree>>, BlobError> {
        let file = match &self.from {
            From::Whole(file) => file,
            From::Part(arriving) => return Ok(arriving.tree()),
        };
        if let Some(tree) = PieceTree::single(self.blob) {
            return Ok(Some(Arc::new(tree)));
        }
        let _turn = self.store.trees.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = self.store.trees.of(self.blob) {
            return Ok(Some(tree));
        }
        let mut values = Vec::new();
        let mut contents = Vec::new();
        for piece in 0..piece_count(self.blob.bytes).unwrap_or(0) {
            self.read_at(file, piece, &mut contents)?;
            values.push(value_of(piece, &contents));
        }
        let Some(tree) = PieceTree::of_values(self.blob, values).map(Arc::new) else {
            self.store.remove(self.blob.hash)?;
            return Err(BlobError::Rotten { hash: self.blob.hash });
        };
        self.store.trees.keep(tree.clone());
        Ok(Some(tree))
    }

    /// Reads a piece. Returns whether it is here.
    pub fn read(&self, piece: u32, into: &mut Vec<u8>) -> Result<bool, DiskError> {
        match &self.from {
            From::Whole(file) => self.read_at(file, piece, into).map(|()| true),
            From::Part(arriving) => arriving.read(piece, into),
        }
    }

    fn read_at(&self, file: &File, piece: u32, into: &mut Vec<u8>) -> Result<(), DiskError> {
        into.resize(piece_bytes(self.blob.bytes, piece), 0);
        let read = file.read_exact_at(into, u64::from(piece) * PIECE_BYTES);
        read.map_err(DiskError::when("cannot read a blob in", &self.store.folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BlobHash;

    #[test]
    fn a_blob_that_arrives_is_served_on_piece_by_piece() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (store, donor) = (BlobStore::open(folder.path()).unwrap(), BlobStore::open(other.path()).unwrap());
        let contents: Vec<u8> = (0..2 * PIECE_BYTES + 9).map(|at| (at / 7) as u8).collect();
        let blob = donor.put(&contents).unwrap();
        let given = donor.serve(blob).unwrap().unwrap();
        let tree = given.tree().unwrap().unwrap();
        assert!(given.pieces().is_whole());
        assert!(store.serve(blob).unwrap().is_none());

        let receiving = store.receive(blob).unwrap();
        let served = store.serve(blob).unwrap().unwrap();
        assert!(served.tree().unwrap().is_none() && served.pieces().count() == 0);
        receiving.begin(&tree).unwrap();
        let mut piece = Vec::new();
        assert!(given.read(1, &mut piece).unwrap() && tree.verifies(1, &piece));
        receiving.write(1, &piece).unwrap();
        assert!(served.read(1, &mut piece).unwrap() && tree.verifies(1, &piece));
        assert!(!served.read(0, &mut piece).unwrap());
        assert_eq!((served.pieces().count(), served.tree().unwrap()), (1, Some(tree)));
    }

    #[test]
    fn another_size_is_not_here_and_a_rotten_blob_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let blob = store.put(&vec![1; 2 * PIECE_BYTES as usize]).unwrap();
        assert!(store.serve(BlobRef { bytes: 7, ..blob }).unwrap().is_none());
        assert!(store.serve(BlobRef { hash: BlobHash([0; 32]), ..blob }).unwrap().is_none());
        let name = blob.hash.to_string();
        std::fs::write(folder.path().join(&name[..2]).join(&name), vec![2; 2 * PIECE_BYTES as usize]).unwrap();
        assert!(matches!(store.serve(blob).unwrap().unwrap().tree(), Err(BlobError::Rotten { .. })));
        assert!(!store.has(blob.hash).unwrap());
    }
}
