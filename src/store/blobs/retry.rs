//! Writes that wait until the disk accepts them.

use crate::names::BlobRef;
use crate::store::blobs::{BlobError, BlobStore};
use crate::store::disk_pressure::RETRY;

impl BlobStore {
    /// Stores bytes that took much work, and waits while the disk does not accept them. `waits` is called before each
    /// further attempt and can stop it.
    #[expect(clippy::disallowed_methods, reason = "a disk gives no sign when there is room again")]
    pub fn put_with_retry(&self, bytes: &[u8], waits: impl Fn() -> bool) -> Result<BlobRef, BlobError> {
        let mut short = None;
        loop {
            match self.put(bytes) {
                Err(error) if error.is_transient() && waits() => {
                    short.get_or_insert_with(|| self.disk_pressure().begin(&error));
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
    fn what_finds_no_room_is_written_when_there_is_some() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::open(folder.path()).unwrap();
        blobs.limit(9);
        // Called before each attempt; frees space in time for the third.
        let asked = std::cell::Cell::new(0);
        let waits = || {
            asked.set(asked.get() + 1);
            if asked.get() == 2 {
                assert!(blobs.disk_pressure().reason().unwrap().contains("disk_bytes = 9"));
                blobs.limit(10);
            }
            true
        };
        assert_eq!(blobs.put_with_retry(b"parameters", waits).unwrap().hash, BlobHash::of(b"parameters"));
        assert!(asked.get() == 2 && !blobs.disk_pressure().is_active());
        assert!(blobs.put_with_retry(b"more", || false).unwrap_err().is_transient());
    }
}
