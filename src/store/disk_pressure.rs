//! What a disk does not take now: full, read-only, over a quota. Whoever has something to write that must not be lost
//! waits until it is written, and is listed here meanwhile, so that the peer acts on nothing that it might forget.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::names::BlobRef;
use crate::store::blobs::{BlobError, BlobStore};

/// Between two attempts to write. A disk gives no sign when there is room again.
pub const RETRY: Duration = Duration::from_secs(2);

/// Who waits, and why. Clones share it.
#[derive(Clone, Debug)]
pub struct Shortage {
    waiting: Arc<watch::Sender<BTreeMap<u64, String>>>,
    next: Arc<AtomicU64>,
}

/// A place on the list, until it is dropped.
#[derive(Debug)]
#[must_use = "the shortage ends when this is dropped"]
pub struct Short {
    number: u64,
    shortage: Shortage,
}

impl Default for Shortage {
    fn default() -> Self {
        Self { waiting: Arc::new(watch::Sender::default()), next: Arc::default() }
    }
}

impl Shortage {
    /// Somebody begins to wait.
    pub fn begin(&self, reason: impl ToString) -> Short {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.send_modify(|waiting| drop(waiting.insert(number, reason.to_string())));
        Short { number, shortage: self.clone() }
    }

    /// Why the first of those who wait does; nothing if nobody waits.
    pub fn reason(&self) -> Option<String> {
        self.waiting.borrow().values().next().cloned()
    }

    /// Whether anybody waits.
    pub fn is_felt(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Wakes whenever somebody begins or ends to wait.
    pub fn watch(&self) -> watch::Receiver<BTreeMap<u64, String>> {
        self.waiting.subscribe()
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        self.shortage.waiting.send_modify(|waiting| drop(waiting.remove(&self.number)));
    }
}

impl BlobStore {
    /// Stores these bytes, and if the disk does not take them now, waits until it does: for threads that have made
    /// them with much work. `waits` is asked before each further attempt.
    ///
    /// # Errors
    /// As [`BlobStore::put`], if waiting does not help or is given up.
    #[expect(clippy::disallowed_methods, reason = "a disk gives no sign when there is room again")]
    pub fn put_patiently(&self, bytes: &[u8], waits: impl Fn() -> bool) -> Result<BlobRef, BlobError> {
        let mut short = None;
        loop {
            match self.put(bytes) {
                Err(error) if error.may_pass() && waits() => {
                    short.get_or_insert_with(|| self.shortage().begin(&error));
                    std::thread::sleep(RETRY);
                }
                written => return written,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BlobHash;

    #[test]
    fn a_shortage_lasts_until_the_last_that_waits_is_served() {
        let shortage = Shortage::default();
        let mut watch = shortage.watch();
        let (first, second) = (shortage.begin("the journal"), shortage.clone().begin("a blob"));
        assert_eq!(shortage.reason().as_deref(), Some("the journal"));
        drop(first);
        assert_eq!(shortage.reason().as_deref(), Some("a blob"));
        drop(second);
        assert!(!shortage.is_felt() && watch.has_changed().unwrap() && watch.borrow_and_update().is_empty());
    }

    #[test]
    fn what_finds_no_room_is_written_when_there_is_some() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::open(folder.path()).unwrap();
        blobs.limit(9);
        // Asked before each attempt: makes room in time for the third.
        let asked = std::cell::Cell::new(0);
        let waits = || {
            asked.set(asked.get() + 1);
            if asked.get() == 2 {
                assert!(blobs.shortage().reason().unwrap().contains("disk_bytes = 9"));
                blobs.limit(10);
            }
            true
        };
        assert_eq!(blobs.put_patiently(b"parameters", waits).unwrap().hash, BlobHash::of(b"parameters"));
        assert!(asked.get() == 2 && !blobs.shortage().is_felt());
        assert!(blobs.put_patiently(b"more", || false).unwrap_err().may_pass());
    }
}
