//! Fetched blobs in memory: a client leaves nothing on the disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::names::{BlobHash, BlobRef};
use crate::network::{BlobAccess, BlobSink, BlobSource, PeerAccess};
use crate::pieces::{PieceSet, PieceTree, piece_count};

/// Limit of a blob: text, tables, and states of modules.
const MOST_BYTES: u64 = 1 << 32;

/// Fetched blobs that have not been taken.
#[derive(Clone, Default)]
pub(in crate::peer) struct MemoryBlobs(Arc<Mutex<BTreeMap<BlobHash, Vec<u8>>>>);

impl MemoryBlobs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<BlobHash, Vec<u8>>> {
        // A blob is stored completely or not at all.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of a blob.
    pub fn get(&self, hash: BlobHash) -> Option<Vec<u8>> {
        self.lock().get(&hash).cloned()
    }

    pub fn has(&self, hash: BlobHash) -> bool {
        self.lock().contains_key(&hash)
    }

    /// Drops all but these.
    pub fn keep(&self, hashes: &[BlobHash]) {
        self.lock().retain(|hash, _| hashes.contains(hash));
    }

    /// Stores a verified blob again.
    pub fn put(&self, hash: BlobHash, bytes: Vec<u8>) {
        self.lock().insert(hash, bytes);
    }

    /// Removes and returns a blob.
    pub fn take(&self, hash: BlobHash) -> Option<Vec<u8>> {
        self.lock().remove(&hash)
    }
}

/// A client serves and hears nothing.
impl PeerAccess for MemoryBlobs {}

impl BlobAccess for MemoryBlobs {
    fn open(&self, _: BlobRef) -> io::Result<Option<Box<dyn BlobSource>>> {
        // A client serves nothing.
        Ok(None)
    }

    fn receive(&self, blob: BlobRef) -> io::Result<Box<dyn BlobSink>> {
        if blob.bytes > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, format!("{} bytes to hold in memory", blob.bytes)));
        }
        Ok(Box::new(Sink { blobs: self.clone(), blob, arrived: Mutex::default() }))
    }
}

struct Sink {
    blobs: MemoryBlobs,
    blob: BlobRef,
    arrived: Mutex<BTreeMap<u32, Vec<u8>>>,
}

impl Sink {
    fn arrived(&self) -> MutexGuard<'_, BTreeMap<u32, Vec<u8>>> {
        // A piece is stored completely or not at all.
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlobSink for Sink {
    fn tree(&self) -> Option<Arc<PieceTree>> {
        None
    }

    fn begin(&self, _: &Arc<PieceTree>) -> io::Result<PieceSet> {
        Ok(PieceSet::none(piece_count(self.blob.bytes).unwrap_or(0)))
    }

    fn write(&self, piece: u32, bytes: &[u8]) -> io::Result<()> {
        self.arrived().insert(piece, bytes.to_vec());
        Ok(())
    }

    fn finish(&self) -> io::Result<()> {
        let whole: Vec<u8> = std::mem::take(&mut *self.arrived()).into_values().flatten().collect();
        if whole.len() as u64 != self.blob.bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not all of its pieces are here"));
        }
        self.blobs.put(self.blob.hash, whole);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::PIECE_BYTES;

    #[test]
    fn a_blob_is_there_once_it_is_whole_and_can_be_taken_once() {
        let contents = vec![7; PIECE_BYTES as usize + 1];
        let (blobs, blob) = (MemoryBlobs::default(), BlobRef::of(&contents));
        let (first, last) = contents.split_at(PIECE_BYTES as usize);
        let sink = blobs.receive(blob).unwrap();
        sink.write(1, last).unwrap();
        assert!(sink.finish().is_err());
        assert_eq!(blobs.take(blob.hash), None);
        sink.write(1, last).unwrap();
        sink.write(0, first).unwrap();
        sink.finish().unwrap();
        blobs.keep(&[blob.hash]);
        assert!(blobs.get(blob.hash).unwrap() == contents);
        assert!(blobs.take(blob.hash).unwrap() == contents);
        assert_eq!(blobs.take(blob.hash), None);
        assert!(blobs.get(blob.hash).is_none());
        assert!(blobs.receive(BlobRef { bytes: u64::MAX, ..blob }).is_err());
    }
}
