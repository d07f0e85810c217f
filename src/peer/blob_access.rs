//! The store as the network sees it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use crate::names::{BlobHash, BlobRef};
use crate::network::{BlobAccess, BlobSink};
use crate::store::{BlobError, BlobStore, Receiving};

/// Takes in what arrives once there is a store, and serves what it has once it is known what of it is private.
///
/// The network comes first: a newcomer's store is made when somebody has answered.
#[derive(Clone, Default)]
pub struct StoredBlobs(Arc<Stored>);

#[derive(Default)]
struct Stored {
    blobs: OnceLock<BlobStore>,
    /// These stay here, whoever asks.
    private: OnceLock<BTreeSet<BlobHash>>,
}

impl StoredBlobs {
    /// From now on, this is the store.
    pub fn take_in(&self, blobs: BlobStore) {
        // A second one would be the same folder's.
        let _ = self.0.blobs.set(blobs);
    }

    /// From now on, all of it but what is private is served.
    pub fn serve_all_but(&self, private: BTreeSet<BlobHash>) {
        // It is the same whenever a peer of the run starts.
        let _ = self.0.private.set(private);
    }
}

struct Sink(Receiving);

impl BlobAccess for StoredBlobs {
    fn open(&self, hash: BlobHash) -> io::Result<Option<(File, u64)>> {
        let may = self.0.private.get().is_some_and(|private| !private.contains(&hash));
        let blobs = self.0.blobs.get().filter(|_| may);
        blobs.map_or(Ok(None), |blobs| blobs.open_file(hash)).map_err(io::Error::other)
    }

    fn receive(&self, blob: BlobRef) -> io::Result<Box<dyn BlobSink>> {
        let blobs = self.0.blobs.get().ok_or_else(|| io::Error::other("there is no store yet"))?;
        let receiving = blobs.receive(blob).map_err(BlobError::into_io)?;
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
        self.0.finish().map(drop).map_err(BlobError::into_io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_served_to_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::open(folder.path()).unwrap();
        let (text, update) = (blobs.put(b"the run's text").unwrap(), blobs.put(b"an update").unwrap());
        let access = StoredBlobs::default();
        assert!(access.open(update.hash).unwrap().is_none(), "there is no store yet");
        access.take_in(blobs);
        assert!(access.open(update.hash).unwrap().is_none(), "nobody has said what is private");
        access.serve_all_but(BTreeSet::from([text.hash]));
        assert!(access.open(text.hash).unwrap().is_none());
        assert!(access.open(update.hash).unwrap().is_some());
    }
}
