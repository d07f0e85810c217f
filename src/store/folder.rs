//! A store's folder, for one process at a time and one run.
//!
//! ```text
//! lock        held by the process that has the store open
//! run         the run's id, in hexadecimal
//! blobs/      ab/abcdef.., incoming/
//! journal     what must survive a crash
//! index/      sled
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::blobs::BlobStore;
use super::durable::{DiskError, create_folder, open_file, replace};
use super::index::{Index, IndexError};
use super::journal::{Journal, JournalError};
use crate::names::{PeerKey, RunId};

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{} is in use by {holder}; stop that one, or use another folder", folder.display())]
    InUse { folder: PathBuf, holder: String },
    #[error("{} is the store of another run, {found}; this is run {expected}: use another folder", folder.display())]
    OtherRun { folder: PathBuf, found: RunId, expected: RunId },
    #[error("{} does not hold the id of a run; restore the right id, or use another folder", .0.display())]
    NoRun(PathBuf),
    #[error("{} is not the store of a peer", .0.display())]
    NotAStore(PathBuf),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// An open store. [`super::actor::start`] gives it its threads.
pub struct StoreFolder {
    pub blobs: BlobStore,
    pub journal: Journal,
    /// The records of the journal, in order.
    pub records: Vec<Vec<u8>>,
    pub index: Index,
    pub(super) lock: File,
}

/// A store that only this process writes to; its run may not be known yet.
pub struct LockedStore {
    folder: PathBuf,
    pub blobs: BlobStore,
    lock: File,
}

impl LockedStore {
    /// Locks the folder, and creates it if needed.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        create_folder(folder)?;
        let lock = take_lock(folder)?;
        Ok(Self { blobs: BlobStore::open(&folder.join("blobs"))?, folder: folder.to_owned(), lock })
    }

    /// The peers that were remembered here, with their addresses.
    pub fn peers(&self) -> Result<Vec<(PeerKey, Vec<String>)>, OpenError> {
        Ok(Index::open(&self.folder.join("index"))?.peers()?)
    }

    /// Opens the rest, as the store of this run.
    pub fn of_run(self, run: RunId) -> Result<StoreFolder, OpenError> {
        let Self { folder, blobs, lock } = self;
        claim(&folder, run)?;
        let index = Index::open(&folder.join("index"))?;
        let (journal, records) = Journal::open_synced(&folder.join("journal"), index.synced()?)?;
        Ok(StoreFolder { blobs, journal, records, index, lock })
    }
}

impl StoreFolder {
    /// Opens the store of a run, or creates an empty one.
    pub fn open(folder: &Path, run: RunId) -> Result<Self, OpenError> {
        LockedStore::open(folder)?.of_run(run)
    }
}

/// The lock is released when the file is closed, also by a crash.
fn take_lock(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join("lock");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(DiskError::when("cannot open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use(folder, file)),
        Err(TryLockError::Error(error)) => return Err(DiskError::when("cannot lock", &path)(error).into()),
    }
    let mut number = || -> std::io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    number().map_err(DiskError::when("cannot write", &path))?;
    Ok(file)
}

/// Reads the process id that the lock's holder wrote into it, for the message.
pub(super) fn in_use(folder: &Path, lock: File) -> OpenError {
    let mut holder = String::new();
    let _ = lock.take(20).read_to_string(&mut holder);
    let holder =
        holder.trim().parse::<u32>().map_or_else(|_| "another process".to_owned(), |id| format!("process {id}"));
    OpenError::InUse { folder: folder.to_owned(), holder }
}

/// Makes this the store of the run, unless it belongs to another.
fn claim(folder: &Path, run: RunId) -> Result<(), OpenError> {
    let path = folder.join("run");
    match fs::read_to_string(&path) {
        Ok(text) => {
            let found = text.trim().parse().map_err(|_| OpenError::NoRun(path))?;
            let ours = found == run;
            ours.then_some(()).ok_or(OpenError::OtherRun { folder: folder.to_owned(), found, expected: run })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(replace(&path, format!("{run}\n").as_bytes(), open_file)?)
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(OpenError::NoRun(path)),
        Err(error) => Err(DiskError::when("cannot read", &path)(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId([7; 32]);

    fn refusal(folder: &Path, run: RunId) -> String {
        StoreFolder::open(folder, run).err().unwrap().to_string()
    }

    #[test]
    fn a_store_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("runs/small");
        let mut store = StoreFolder::open(&folder, RUN).unwrap();
        assert!(store.records.is_empty());
        store.journal.append(b"term 1").unwrap();
        let blob = store.blobs.put(b"parameters").unwrap();
        drop(store);
        let store = StoreFolder::open(&folder, RUN).unwrap();
        assert_eq!(store.records, [b"term 1".to_vec()]);
        assert!(store.blobs.has(blob.hash).unwrap());
        assert_eq!(fs::read_to_string(folder.join("run")).unwrap(), format!("{RUN}\n"));
    }

    #[test]
    fn two_cannot_have_one_store_open() {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreFolder::open(folder.path(), RUN).unwrap();
        let refusal = refusal(folder.path(), RUN);
        assert!(refusal.contains(&format!("in use by process {};", std::process::id())), "{refusal}");
        drop(store);
        StoreFolder::open(folder.path(), RUN).unwrap();
    }

    #[test]
    fn a_store_belongs_to_one_run() {
        let folder = tempfile::tempdir().unwrap();
        drop(StoreFolder::open(folder.path(), RUN).unwrap());
        let refused = refusal(folder.path(), RunId([8; 32]));
        assert!(refused.contains("the store of another run, 07070707"), "{refused}");
        for wrong in [&b"something"[..], b"", &[255, 254]] {
            fs::write(folder.path().join("run"), wrong).unwrap();
            assert!(refusal(folder.path(), RUN).contains("does not hold the id of a run"));
        }
    }

    #[test]
    fn a_broken_index_costs_only_the_index() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = StoreFolder::open(folder.path(), RUN).unwrap();
        store.journal.append(b"head").unwrap();
        drop(store);
        fs::write(folder.path().join("index/db"), b"rubbish").unwrap();
        let store = StoreFolder::open(folder.path(), RUN).unwrap();
        assert_eq!(store.records, [b"head".to_vec()]);
        assert!(store.index.peers().unwrap().is_empty());
    }
}
