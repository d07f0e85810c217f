//! A read-only store, to collect a run from the folders of stopped peers.
//!
//! Nothing in the folder changes, not even a torn end of the journal; only sled may write to its own files when the
//! index is read. Meanwhile no peer can start there, since the lock is held in shared mode.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::names::{BlobRef, PathId, RunId};
use crate::store::blobs::{BlobError, BlobStore};
use crate::store::durable::DiskError;
use crate::store::folder::{OpenError, in_use};
use crate::store::index::{Checkpoint, Index, IndexError};
use crate::store::journal::Journal;

pub struct StoreReader {
    pub run: RunId,
    /// What the journal holds, in order.
    pub records: Vec<Vec<u8>>,
    blobs: PathBuf,
    _lock: File,
}

impl StoreReader {
    /// Opens the store of a stopped peer.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        let lock_file = folder.join("lock");
        let lock = File::open(&lock_file).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => OpenError::NotAStore(folder.to_owned()),
            _ => DiskError::when("cannot open", &lock_file)(error).into(),
        })?;
        match lock.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(folder, lock)),
            Err(TryLockError::Error(error)) => return Err(DiskError::when("cannot lock", &lock_file)(error).into()),
        }
        let run_file = folder.join("run");
        let run = std::fs::read(&run_file).ok().and_then(|bytes| String::from_utf8(bytes).ok()?.trim().parse().ok());
        let run = run.ok_or(OpenError::NoRun(run_file))?;
        let records = Journal::read(&folder.join("journal"))?;
        Ok(Self { run, records, blobs: folder.join("blobs"), _lock: lock })
    }

    /// The checkpoints of the paths, from the index; empty without an index.
    pub fn checkpoints(&self) -> Result<Vec<(PathId, Checkpoint)>, IndexError> {
        let folder = self.blobs.with_file_name("index");
        if folder.is_dir() { Index::open_whole(&folder)?.checkpoints() } else { Ok(Vec::new()) }
    }

    /// All blobs, in order.
    pub fn blobs(&self) -> Result<Vec<BlobRef>, DiskError> {
        BlobStore::list_in(&self.blobs)
    }

    /// The verified bytes of a blob, or `None` if it is absent.
    pub fn blob(&self, blob: BlobRef) -> Result<Option<Vec<u8>>, BlobError> {
        BlobStore::look_up(&self.blobs, blob)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::store::StoreFolder;

    const RUN: RunId = RunId([7; 32]);

    #[test]
    fn a_stopped_store_is_read_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = StoreFolder::open(folder.path(), RUN).unwrap();
        store.journal.append(b"head").unwrap();
        let blob = store.blobs.put(b"state").unwrap();
        drop(store);
        let journal = folder.path().join("journal");
        std::fs::OpenOptions::new().append(true).open(&journal).unwrap().write_all(b"torn").unwrap();
        let before = std::fs::read(&journal).unwrap();
        let reader = StoreReader::open(folder.path()).unwrap();
        assert_eq!((reader.run, &reader.records[..]), (RUN, &[b"head".to_vec()][..]));
        assert_eq!(reader.blob(blob).unwrap().unwrap(), b"state");
        assert_eq!(reader.blob(BlobRef::of(b"other")).unwrap(), None);
        assert_eq!(std::fs::read(&journal).unwrap(), before);
        let second = StoreReader::open(folder.path());
        assert!(second.is_ok(), "readers do not shut each other out");
    }

    #[test]
    fn a_running_peers_store_is_said_to_be_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let _running = StoreFolder::open(folder.path(), RUN).unwrap();
        let error = StoreReader::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains(&format!("in use by process {};", std::process::id())), "{error}");
    }

    #[test]
    fn what_is_no_store_is_said_and_not_made_one() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(StoreReader::open(folder.path()), Err(OpenError::NotAStore(_))));
        assert!(matches!(StoreReader::open(&folder.path().join("nowhere")), Err(OpenError::NotAStore(_))));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_blob_that_has_changed_is_refused_and_left_there() {
        let folder = tempfile::tempdir().unwrap();
        let blob = StoreFolder::open(folder.path(), RUN).unwrap().blobs.put(b"state").unwrap();
        let name = blob.hash.to_string();
        let path = folder.path().join("blobs").join(&name[..2]).join(&name);
        std::fs::write(&path, b"stale").unwrap();
        let reader = StoreReader::open(folder.path()).unwrap();
        assert!(matches!(reader.blob(blob), Err(BlobError::Changed { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"stale");
    }
}
