//! Content-addressed files: parameters, outer gradients, token sets. A blob is complete or absent.
//!
//! A blob with hash `abcdef..` is the file `ab/abcdef..`. It is written under `incoming/`, synced, renamed, and its
//! folder synced. So a file with its name has all its bytes, unless the disk damages it, which [`BlobStore::get`]
//! detects. The next start removes what a crash left under `incoming/`.

pub(super) mod incoming_file;
pub(super) mod partial;
pub(super) mod quota;
pub(super) mod receive;
pub(super) mod retry;
pub(super) mod serve;
pub(super) mod stream;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::durable::{DiskError, OpenMedium, create_folder, open_file, remove_if_there, sync_parent};
use crate::names::{BlobHash, BlobRef};
use crate::pieces::{MOST_PIECES, PIECE_BYTES};
use crate::store::blobs::incoming_file::Incoming;
use crate::store::blobs::partial::{Arrivals, PARTIAL};
use crate::store::blobs::quota::Quota;
use crate::store::blobs::serve::Trees;
use crate::store::disk_pressure::DiskPressure;

pub(super) const INCOMING: &str = "incoming";

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(
        "blob {hash} was damaged on the disk and has been removed: fetch it again from another peer, and check this \
         disk"
    )]
    Rotten { hash: BlobHash },
    #[error("blob {hash} is damaged on the disk; check this disk")]
    Changed { hash: BlobHash },
    #[error("blob {hash} has {bytes} bytes, at most {max_bytes} expected")]
    TooLarge { hash: BlobHash, bytes: u64, max_bytes: u64 },
    #[error("blob {} is not complete yet", blob.hash)]
    NotWhole { blob: BlobRef },
    #[error("blob {} of {} bytes exceeds the largest size of a blob ({} \
        bytes)", blob.hash, blob.bytes, MOST_PIECES * PIECE_BYTES)]
    TooManyPieces { blob: BlobRef },
}

impl BlobError {
    /// Whether the same write may succeed later: see [`DiskError::is_transient`].
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Disk(error) if error.is_transient())
    }

    /// For callers that use [`io::Error`]. Keeps the kind of an error of the disk.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Disk(error) => error.into_io(),
            other => io::Error::other(other),
        }
    }
}

/// A folder of blobs. Clones share it. All methods may be called from any thread, and block.
#[derive(Clone)]
pub struct BlobStore {
    pub(super) folder: Arc<Path>,
    /// Number of the next file under `incoming/`.
    next: Arc<AtomicU64>,
    open: OpenMedium,
    quota: Arc<Quota>,
    pub(super) arrivals: Arc<Arrivals>,
    pub(super) trees: Arc<Trees>,
    pressure: DiskPressure,
}

impl BlobStore {
    /// Opens or creates the folder, and removes incomplete files of a crash. Only one process may have it open.
    pub fn open(folder: &Path) -> Result<Self, DiskError> {
        Self::open_on(folder, open_file)
    }

    fn open_on(folder: &Path, open: OpenMedium) -> Result<Self, DiskError> {
        let incoming = folder.join(INCOMING);
        create_folder(&incoming)?;
        for entry in read_folder(&incoming)? {
            remove_if_there(&entry)?;
        }
        let store = Self::on(folder, open);
        *store.quota.used_bytes() = store.list()?.iter().map(|blob| blob.bytes).sum();
        store.arrivals.find()?;
        Ok(store)
    }

    fn on(folder: &Path, open: OpenMedium) -> Self {
        let (next, trees, pressure, quota) = (Arc::default(), Arc::default(), DiskPressure::default(), Quota::with(0));
        let arrivals = Arrivals::of(folder, quota.clone());
        Self { folder: folder.into(), next, open, quota, arrivals, trees, pressure }
    }

    /// Sets the quota of all blobs together. Existing blobs stay.
    pub fn limit(&self, most_bytes: u64) {
        self.quota.limit(most_bytes);
    }

    /// Size of all blobs, including those being written.
    pub fn used_bytes(&self) -> u64 {
        *self.quota.used_bytes()
    }

    /// The writes that wait for the disk.
    pub fn disk_pressure(&self) -> &DiskPressure {
        &self.pressure
    }

    fn path_of(&self, hash: BlobHash) -> PathBuf {
        let name = hash.to_string();
        self.folder.join(&name[..2]).join(name)
    }

    /// Stores bytes, unless they are stored already.
    pub fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        let blob = BlobRef::of(bytes);
        if self.size(blob.hash)? == Some(blob.bytes) {
            return Ok(blob);
        }
        let mut incoming = self.incoming(blob.bytes)?.known(blob.hash);
        incoming.take(bytes)?;
        Ok(self.keep(incoming)?)
    }

    pub(super) fn incoming(&self, bytes: u64) -> Result<Incoming, DiskError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(INCOMING).join(number.to_string());
        let reserved = self.arrivals.reserve(bytes, &path)?;
        Incoming::new(path, self.open, reserved)
    }

    /// Syncs an incoming file and renames it to its blob.
    pub(super) fn keep(&self, mut incoming: Incoming) -> Result<BlobRef, DiskError> {
        incoming.sync()?;
        let blob = incoming.described();
        self.name(&incoming.path, blob)?;
        Ok(blob)
    }

    /// Renames a synced file to its blob.
    pub(super) fn name(&self, file: &Path, blob: BlobRef) -> Result<(), DiskError> {
        let path = self.path_of(blob.hash);
        create_folder(path.parent().unwrap_or(&self.folder))?;
        {
            let mut used = self.quota.used_bytes();
            let there = self.size(blob.hash)?.unwrap_or(0);
            fs::rename(file, &path).map_err(DiskError::when("cannot name", &path))?;
            *used = (*used + blob.bytes).saturating_sub(there);
        }
        sync_parent(&path)
    }

    /// The verified bytes of a blob, or `None` if it is absent. A damaged blob is removed, so that it can be fetched
    /// again.
    pub fn get(&self, hash: BlobHash, max_bytes: u64) -> Result<Option<Vec<u8>>, BlobError> {
        match self.read(hash, max_bytes)? {
            Some(contents) if BlobHash::of(&contents) != hash => {
                self.remove(hash)?;
                Err(BlobError::Rotten { hash })
            }
            contents => Ok(contents),
        }
    }

    /// The bytes under this name, not verified.
    fn read(&self, hash: BlobHash, max_bytes: u64) -> Result<Option<Vec<u8>>, BlobError> {
        let Some((file, bytes)) = self.open_file(hash)? else { return Ok(None) };
        if bytes > max_bytes {
            return Err(BlobError::TooLarge { hash, bytes, max_bytes });
        }
        let mut contents = Vec::with_capacity(usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(1));
        file.take(bytes).read_to_end(&mut contents).map_err(DiskError::when("cannot read", &self.path_of(hash)))?;
        Ok(Some(contents))
    }

    /// The verified bytes of a blob in a folder that stays unchanged: nothing is created, locked or removed.
    pub(super) fn look_up(folder: &Path, blob: BlobRef) -> Result<Option<Vec<u8>>, BlobError> {
        let store = Self::on(folder, open_file);
        match store.read(blob.hash, blob.bytes)? {
            Some(contents) if BlobHash::of(&contents) != blob.hash => Err(BlobError::Changed { hash: blob.hash }),
            contents => Ok(contents),
        }
    }

    /// An open blob and its size, to send; the receiver verifies it. It can be read to its end even if the blob is
    /// removed.
    pub fn open_file(&self, hash: BlobHash) -> Result<Option<(File, u64)>, DiskError> {
        let path = self.path_of(hash);
        let opened = File::open(&path).and_then(|file| {
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        });
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DiskError::when("cannot open", &path)(error)),
        }
    }

    /// Size of a blob, if it is here.
    pub fn size(&self, hash: BlobHash) -> Result<Option<u64>, DiskError> {
        let path = self.path_of(hash);
        match fs::metadata(&path) {
            Ok(about) => Ok(Some(about.len())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DiskError::when("cannot look at", &path)(error)),
        }
    }

    /// Whether a blob is here.
    pub fn has(&self, hash: BlobHash) -> Result<bool, DiskError> {
        Ok(self.size(hash)?.is_some())
    }

    /// Whether a blob of this hash and size is here. Another size is false.
    pub fn holds(&self, blob: BlobRef) -> Result<bool, DiskError> {
        Ok(self.size(blob.hash)? == Some(blob.bytes))
    }

    /// Removes a blob and its partial file. Returns whether it was here.
    pub fn remove(&self, hash: BlobHash) -> Result<bool, DiskError> {
        self.arrivals.discard(hash)?;
        let mut used = self.quota.used_bytes();
        let there = self.size(hash)?.unwrap_or(0);
        let removed = remove_if_there(&self.path_of(hash))?;
        *used = used.saturating_sub(there);
        Ok(removed)
    }

    /// The blobs of a folder that stays unchanged.
    pub(super) fn list_in(folder: &Path) -> Result<Vec<BlobRef>, DiskError> {
        Self::on(folder, open_file).list()
    }

    /// All blobs, by hash.
    pub fn list(&self) -> Result<Vec<BlobRef>, DiskError> {
        let mut blobs = Vec::new();
        for folder in read_folder(&self.folder)? {
            let passes_through = folder.file_name().is_some_and(|name| name == INCOMING || name == PARTIAL);
            if !folder.is_dir() || passes_through {
                continue;
            }
            for path in read_folder(&folder)? {
                let Some(Ok(hash)) = path.file_name().and_then(|name| name.to_str()).map(str::parse) else { continue };
                // A blob removed in the meantime is not listed.
                if let Some(bytes) = self.size(hash)? {
                    blobs.push(BlobRef { hash, bytes });
                }
            }
        }
        blobs.sort_unstable();
        Ok(blobs)
    }

    /// Removes every blob that is not in `kept`. Returns the number of bytes freed.
    pub fn remove_all_but(&self, kept: &BTreeSet<BlobHash>) -> Result<u64, DiskError> {
        let mut freed = 0;
        for blob in self.list()?.into_iter().filter(|blob| !kept.contains(&blob.hash)) {
            if self.remove(blob.hash)? {
                freed += blob.bytes;
            }
        }
        Ok(freed)
    }
}

fn read_folder(folder: &Path) -> Result<Vec<PathBuf>, DiskError> {
    let paths = || -> io::Result<Vec<PathBuf>> { fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect() };
    paths().map_err(DiskError::when("cannot read the folder", folder))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::store::durable::failing;

    fn files(folder: &Path) -> usize {
        let count = |path: PathBuf| if path.is_dir() { files(&path) } else { 1 };
        read_folder(folder).unwrap().into_iter().map(count).sum()
    }

    #[test]
    fn a_blob_is_found_under_its_hash_and_again_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let blob = store.put(b"parameters").unwrap();
        assert_eq!(blob, BlobRef::of(b"parameters"));
        assert_eq!(store.put(b"parameters").unwrap(), blob);
        let name = blob.hash.to_string();
        assert!(folder.path().join(&name[..2]).join(&name).is_file());
        let store = BlobStore::open(folder.path()).unwrap();
        assert_eq!(store.get(blob.hash, 10).unwrap().unwrap(), b"parameters");
        assert_eq!(store.list().unwrap(), [blob]);
        assert!(matches!(store.get(blob.hash, 9), Err(BlobError::TooLarge { bytes: 10, .. })));
        assert!(store.get(BlobHash::of(b"else"), 10).unwrap().is_none());
        assert!(store.holds(blob).unwrap() && !store.holds(BlobRef { bytes: 9, ..blob }).unwrap());
        assert!(store.remove(blob.hash).unwrap());
        assert!(!store.remove(blob.hash).unwrap() && !store.has(blob.hash).unwrap());
    }

    #[test]
    fn what_a_crash_left_over_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let kept = store.put(b"whole").unwrap();
        let mut incoming = store.incoming(8).unwrap();
        incoming.write_all(b"grad").unwrap();
        // Like a kill: the destructor does not run.
        std::mem::forget(incoming);
        assert_eq!(files(folder.path()), 2);
        let store = BlobStore::open(folder.path()).unwrap();
        assert_eq!(files(folder.path()), 1);
        assert_eq!(store.list().unwrap(), [kept]);
    }

    #[test]
    fn a_full_disk_is_reported_and_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open_on(folder.path(), failing::full_disk).unwrap();
        let small = store.put(&[1; failing::CAPACITY_BYTES]).unwrap();
        let large = vec![2; failing::CAPACITY_BYTES + 1];
        let error = store.put(&large).unwrap_err().to_string();
        assert!(error.contains("incoming") && error.contains("free some space"), "{error}");
        assert_eq!(files(folder.path()), 1);
        assert!(store.get(small.hash, 1000).unwrap().is_some());
    }

    #[test]
    fn a_blob_that_was_not_synced_does_not_show() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open_on(folder.path(), failing::never_synced).unwrap();
        assert!(store.put(b"gone").is_err());
        assert_eq!(files(folder.path()), 0);
    }

    #[test]
    fn a_rotten_blob_is_removed_so_that_it_can_be_fetched_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let blob = store.put(b"parameters").unwrap();
        fs::write(store.path_of(blob.hash), b"parameterS").unwrap();
        assert!(matches!(store.get(blob.hash, 10), Err(BlobError::Rotten { .. })));
        assert!(!store.has(blob.hash).unwrap());
        store.put(b"parameters").unwrap();
        assert!(store.get(blob.hash, 10).unwrap().is_some());
    }

    #[test]
    fn what_nothing_refers_to_goes() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let kept = store.put(b"needed").unwrap();
        store.put(b"old").unwrap();
        store.put(b"older").unwrap();
        assert_eq!(store.remove_all_but(&[kept.hash].into()).unwrap(), 8);
        assert_eq!(store.list().unwrap(), [kept]);
    }

    #[test]
    fn threads_that_store_the_same_blob_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20u8).for_each(|i| assert!(store.put(&[i; 100]).is_ok())));
            }
        });
        assert_eq!((store.list().unwrap().len(), files(folder.path()), store.used_bytes()), (20, 20, 2_000));
    }
}
