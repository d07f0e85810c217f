//! Blobs in memory: of a swarm that is only asked, nothing is left on the disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::names::{BlobHash, BlobRef};
use crate::network::{BlobAccess, BlobSink};
use crate::peer::performing::Blobs;

/// No blob that is asked for has more bytes: they are text and tables, and states of modules.
const MOST_BYTES: u64 = 1 << 32;

/// What has been fetched and not yet been taken.
#[derive(Clone, Default)]
pub(super) struct BlobsInMemory(Arc<Mutex<BTreeMap<BlobHash, Vec<u8>>>>);

impl BlobsInMemory {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<BlobHash, Vec<u8>>> {
        // A blob is put in whole or not at all.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a blob is here.
    pub fn has(&self, hash: BlobHash) -> bool {
        self.lock().contains_key(&hash)
    }

    /// Forgets all but these.
    pub fn keep(&self, hashes: &[BlobHash]) {
        self.lock().retain(|hash, _| hashes.contains(hash));
    }

    /// Puts one in that has been checked.
    pub fn put(&self, hash: BlobHash, bytes: Vec<u8>) {
        self.lock().insert(hash, bytes);
    }

    /// Takes a blob out.
    pub fn take(&self, hash: BlobHash) -> Option<Vec<u8>> {
        self.lock().remove(&hash)
    }
}

impl Blobs for BlobsInMemory {
    fn read(&self, blob: BlobRef) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(self.lock().get(&blob.hash).cloned())
    }
}

impl BlobAccess for BlobsInMemory {
    fn open(&self, _: BlobHash) -> io::Result<Option<(File, u64)>> {
        // A visitor serves nothing.
        Ok(None)
    }

    fn receive(&self, blob: BlobRef) -> io::Result<Box<dyn BlobSink>> {
        if blob.bytes > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, format!("{} bytes to hold in memory", blob.bytes)));
        }
        Ok(Box::new(Sink { blobs: self.clone(), blob, bytes: Vec::new() }))
    }
}

struct Sink {
    blobs: BlobsInMemory,
    blob: BlobRef,
    bytes: Vec<u8>,
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() as u64 > self.blob.bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more bytes than announced"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BlobSink for Sink {
    fn finish(self: Box<Self>) -> io::Result<()> {
        if BlobRef::of(&self.bytes) != self.blob {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not the bytes that were asked for"));
        }
        self.blobs.put(self.blob.hash, self.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_blob_is_there_once_it_is_whole_and_can_be_taken_once() {
        let (blobs, blob) = (BlobsInMemory::default(), BlobRef::of(b"text"));
        let mut sink = blobs.receive(blob).unwrap();
        sink.write_all(b"te").unwrap();
        assert_eq!(blobs.take(blob.hash), None);
        sink.write_all(b"xt").unwrap();
        sink.finish().unwrap();
        blobs.keep(&[blob.hash]);
        assert_eq!(blobs.read(blob).unwrap().as_deref(), Some(&b"text"[..]));
        assert_eq!(blobs.take(blob.hash).as_deref(), Some(&b"text"[..]));
        assert_eq!(blobs.take(blob.hash), None);
        assert!(!blobs.has(blob.hash) && blobs.read(blob).unwrap().is_none());
        let mut wrong = blobs.receive(blob).unwrap();
        wrong.write_all(b"rubb").unwrap();
        assert!(wrong.write_all(b"ish").is_err() && wrong.finish().is_err());
        assert!(blobs.receive(BlobRef { bytes: u64::MAX, ..blob }).is_err());
    }
}
