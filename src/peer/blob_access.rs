//! The store as the network sees it.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use crate::names::{BlobHash, BlobRef};
use crate::network::{BlobAccess, BlobSink};
use crate::store::{BlobStore, Receiving};

/// Serves what the store has, and takes in what arrives; nothing before there is a store.
///
/// The network comes first: a newcomer's store is made when somebody has answered.
#[derive(Clone, Default)]
pub struct StoredBlobs(Arc<OnceLock<BlobStore>>);

impl StoredBlobs {
    /// With a store from the beginning.
    pub fn of(blobs: BlobStore) -> Self {
        Self(Arc::new(OnceLock::from(blobs)))
    }

    /// From now on, this is the store.
    pub fn set(&self, blobs: BlobStore) {
        // A second one would be the same folder's.
        let _ = self.0.set(blobs);
    }
}

struct Sink(Receiving);

impl BlobAccess for StoredBlobs {
    fn open(&self, hash: BlobHash) -> io::Result<Option<(File, u64)>> {
        self.0.get().map_or(Ok(None), |blobs| blobs.open_file(hash)).map_err(io::Error::other)
    }

    fn receive(&self, blob: BlobRef) -> io::Result<Box<dyn BlobSink>> {
        let blobs = self.0.get().ok_or_else(|| io::Error::other("there is no store yet"))?;
        let receiving = blobs.receive(blob).map_err(io::Error::other)?;
        Ok(Box::new(Sink(receiving)))
    }
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl BlobSink for Sink {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.0.finish().map(drop).map_err(io::Error::other)
    }
}
