//! The store as the network sees it.

use std::fs::File;
use std::io;

use crate::names::{BlobHash, BlobRef};
use crate::network::{BlobAccess, BlobSink};
use crate::store::{BlobStore, Receiving};

/// Serves what the store has, and takes in what arrives.
pub struct StoredBlobs(pub BlobStore);

struct Sink(Receiving);

impl BlobAccess for StoredBlobs {
    fn open(&self, hash: BlobHash) -> io::Result<Option<(File, u64)>> {
        self.0.open_file(hash).map_err(io::Error::other)
    }

    fn receive(&self, blob: BlobRef) -> io::Result<Box<dyn BlobSink>> {
        let receiving = self.0.receive(blob).map_err(io::Error::other)?;
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
