//! The disk quota of a machine: bytes of blobs in use, and their limit.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sizes::in_words;
use crate::store::durable::DiskError;

/// A count of bytes with a limit. Blobs being written count in full from the beginning.
#[derive(Debug)]
pub(crate) struct Quota {
    used_bytes: Mutex<u64>,
    most_bytes: AtomicU64,
}

/// Reserved bytes, released when dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    bytes: u64,
    quota: Arc<Quota>,
}

impl Quota {
    /// An unlimited quota with so many bytes in use.
    pub fn with(used_bytes: u64) -> Arc<Self> {
        Arc::new(Self { used_bytes: Mutex::new(used_bytes), most_bytes: AtomicU64::new(u64::MAX) })
    }

    /// Sets the limit. Existing blobs stay.
    pub fn limit(&self, most_bytes: u64) {
        self.most_bytes.store(most_bytes, Ordering::Relaxed);
    }

    /// The count. It is locked while a blob is added or removed, so that none counts twice.
    pub fn used_bytes(&self) -> MutexGuard<'_, u64> {
        // Every holder leaves a correct sum.
        self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves space for a file that is about to be written.
    pub fn take(self: &Arc<Self>, bytes: u64, path: &Path) -> Result<Reserved, DiskError> {
        let most_bytes = self.most_bytes.load(Ordering::Relaxed);
        let mut used = self.used_bytes();
        if used.saturating_add(bytes) > most_bytes {
            let reached = format!(
                "{} more than the {} that blobs take would exceed disk_bytes = {most_bytes}",
                in_words(bytes),
                in_words(*used)
            );
            return Err(DiskError::when("cannot write", path)(io::Error::new(ErrorKind::QuotaExceeded, reached)));
        }
        *used += bytes;
        Ok(Reserved { bytes, quota: self.clone() })
    }

    /// Counts an existing file, even beyond the limit.
    pub fn take_anyway(self: &Arc<Self>, bytes: u64) -> Reserved {
        *self.used_bytes() += bytes;
        Reserved { bytes, quota: self.clone() }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut used = self.quota.used_bytes();
        *used = used.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use crate::names::{BlobHash, BlobRef};
    use crate::store::BlobStore;

    #[test]
    fn blobs_take_no_more_than_the_machine_gives() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        store.limit(100);
        let first = store.put(&[1; 60]).unwrap();
        store.put(&[1; 60]).unwrap();
        let error = store.put(&[2; 41]).unwrap_err();
        assert!(
            error.is_transient() && error.to_string().contains("41 B more than the 60 B that blobs take"),
            "{error}"
        );
        assert!(error.to_string().contains("disk_bytes = 100") && error.to_string().contains("raise that limit"));
        // A blob being received counts from the beginning.
        let receiving = store.receive(BlobRef::of(&[3; 40])).unwrap();
        assert!(store.put(&[2; 1]).is_err());
        drop(receiving);
        store.put(&[2; 40]).unwrap();
        assert_eq!(store.used_bytes(), 100);
        store.remove(first.hash).unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        assert_eq!(store.used_bytes(), 40);
        store.limit(10);
        assert!(store.put(&[4; 1]).is_err() && store.get(BlobHash::of(&[2; 40]), 40).unwrap().is_some());
    }
}
