//! Partial blobs: pieces arrive in any order and from any peer, and a partial blob can be resumed.
//!
//! Its file is `partial/<hash>.<bytes>`, as long as the blob will be, next to the hashes of its pieces
//! (`<hash>.<bytes>.tree`). No record is kept of the pieces that have arrived: after a restart or a loss of power, the
//! file is hashed, and pieces with the right hash are kept. So nothing is trusted that did not reach the disk.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::names::{BlobHash, BlobRef};
use crate::pieces::{PIECE_BYTES, PieceSet, PieceTree, Value, piece_bytes, piece_count};
use crate::store::blobs::BlobError;
use crate::store::blobs::quota::{Quota, Reserved};
use crate::store::durable::{DiskError, create_folder, remove_if_there};

pub(crate) const PARTIAL: &str = "partial";

/// Bytes written between two syncs. The disk writes them while the next ones arrive.
const SYNCED_BYTES: u64 = 32 << 20;

/// Age at which the next start removes an unfinished blob.
const PARTIAL_LASTS: Duration = Duration::from_secs(24 * 3600);

/// The partial blobs of one store.
pub(crate) struct Arrivals {
    folder: PathBuf,
    quota: Arc<Quota>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Blobs being received, with the number of receivers.
    active: BTreeMap<BlobRef, (Arc<Arriving>, usize)>,
    /// Space of these and of unfinished blobs.
    reserved: BTreeMap<BlobRef, Reserved>,
}

/// A blob of which some pieces are here.
pub(crate) struct Arriving {
    pub blob: BlobRef,
    pub file: File,
    pub path: PathBuf,
    here: Mutex<PieceSet>,
    pub tree: OnceLock<Arc<PieceTree>>,
    unsynced: AtomicU64,
    syncing: AtomicBool,
}

fn name(blob: BlobRef) -> String {
    format!("{}.{}", blob.hash, blob.bytes)
}

fn parse(name: &str) -> Option<BlobRef> {
    let (hash, bytes) = name.split_once('.')?;
    Some(BlobRef { hash: hash.parse().ok()?, bytes: bytes.parse().ok()? })
}

pub(crate) fn tree_file(path: &Path) -> PathBuf {
    path.with_added_extension("tree")
}

pub(crate) fn remove(path: &Path) -> Result<(), DiskError> {
    remove_if_there(&tree_file(path))?;
    remove_if_there(path).map(drop)
}

impl Arrivals {
    pub fn of(folder: &Path, quota: Arc<Quota>) -> Arc<Self> {
        Arc::new(Self { folder: folder.join(PARTIAL), quota, table: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Files and table agree whenever the lock is released.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the unfinished blobs of earlier processes, and removes old ones.
    pub fn find(&self) -> Result<(), DiskError> {
        create_folder(&self.folder)?;
        let read = || -> io::Result<Vec<PathBuf>> { fs::read_dir(&self.folder)?.map(|it| Ok(it?.path())).collect() };
        let mut table = self.lock();
        for path in read().map_err(DiskError::when("cannot read the folder", &self.folder))? {
            let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let age = fs::metadata(&path).and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
            let is_old = age.is_some_and(|age| age > PARTIAL_LASTS);
            match parse(file_name) {
                Some(blob) if !is_old && tree_file(&path).exists() => {
                    table.reserved.insert(blob, self.quota.take_anyway(blob.bytes));
                }
                Some(_) => remove(&path)?,
                None if file_name.ends_with(".tree") && path.with_extension("").exists() => {}
                None => drop(remove_if_there(&path)?),
            }
        }
        Ok(())
    }

    /// Reserves space for a file, if needed by removing unfinished blobs.
    pub fn reserve(&self, bytes: u64, path: &Path) -> Result<Reserved, DiskError> {
        match self.quota.take(bytes, path) {
            Err(_) if self.give_up_idle()? => self.quota.take(bytes, path),
            taken => taken,
        }
    }

    /// Removes unfinished blobs without a receiver. Returns whether there were any.
    fn give_up_idle(&self) -> Result<bool, DiskError> {
        let mut table = self.lock();
        let Table { active, reserved } = &mut *table;
        let before = reserved.len();
        for blob in reserved.keys().filter(|blob| !active.contains_key(blob)) {
            remove(&self.folder.join(name(*blob)))?;
        }
        reserved.retain(|blob, _| active.contains_key(blob));
        Ok(reserved.len() < before)
    }

    /// Removes an unfinished blob.
    pub fn discard(&self, hash: BlobHash) -> Result<(), DiskError> {
        let mut table = self.lock();
        let Table { active, reserved } = &mut *table;
        let idle: Vec<BlobRef> =
            reserved.keys().filter(|blob| blob.hash == hash && !active.contains_key(blob)).copied().collect();
        for blob in idle {
            remove(&self.folder.join(name(blob)))?;
            reserved.remove(&blob);
        }
        Ok(())
    }

    /// The pieces of a blob that is being received, so that they can be served.
    pub fn active(&self, blob: BlobRef) -> Option<Arc<Arriving>> {
        self.lock().active.get(&blob).map(|(arriving, _)| arriving.clone())
    }

    pub fn begin(&self, blob: BlobRef) -> Result<Arc<Arriving>, BlobError> {
        let path = self.folder.join(name(blob));
        if piece_count(blob.bytes).is_none() {
            return Err(BlobError::TooManyPieces { blob });
        }
        let is_known = self.lock().reserved.contains_key(&blob);
        let taken = (!is_known).then(|| self.reserve(blob.bytes, &path)).transpose()?;
        let mut table = self.lock();
        if let Some((arriving, users)) = table.active.get_mut(&blob) {
            *users += 1;
            return Ok(arriving.clone());
        }
        let taken = table.reserved.remove(&blob).or(taken);
        let arriving = Arc::new(Arriving::open(blob, path)?);
        table.active.insert(blob, (arriving.clone(), 1));
        // Removed in the meantime: it counts all the same.
        table.reserved.insert(blob, taken.unwrap_or_else(|| self.quota.take_anyway(blob.bytes)));
        Ok(arriving)
    }

    /// Ends a reception. The partial file stays if it can be resumed.
    pub fn end(&self, arriving: &Arriving) {
        let mut table = self.lock();
        let Some((_, users)) = table.active.get_mut(&arriving.blob) else { return };
        *users -= 1;
        if *users > 0 {
            return;
        }
        table.active.remove(&arriving.blob);
        let several = arriving.tree.get().is_some_and(|tree| !tree.values().is_empty());
        if !several || arriving.here().count() == 0 || arriving.here().is_whole() {
            table.reserved.remove(&arriving.blob);
            // If this fails, the next start removes it.
            let _ = remove(&arriving.path);
        }
    }
}

impl Arriving {
    fn open(blob: BlobRef, path: PathBuf) -> Result<Self, BlobError> {
        let count = piece_count(blob.bytes).ok_or(BlobError::TooManyPieces { blob })?;
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(DiskError::when("cannot make", &path))?;
        let arriving = Self {
            blob,
            file,
            path,
            here: Mutex::new(PieceSet::none(count)),
            tree: OnceLock::new(),
            unsynced: AtomicU64::new(0),
            syncing: AtomicBool::new(false),
        };
        if let Some(tree) = arriving.stored_tree() {
            arriving.go_on_with(tree)?;
        }
        Ok(arriving)
    }

    pub fn here(&self) -> MutexGuard<'_, PieceSet> {
        // A piece is marked or not, at any moment.
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stored hashes of the pieces, if they match the blob's hash.
    fn stored_tree(&self) -> Option<PieceTree> {
        let bytes = fs::read(tree_file(&self.path)).ok()?;
        let (values, rest) = bytes.as_chunks::<{ size_of::<Value>() }>();
        PieceTree::of_values(self.blob, values.to_vec()).filter(|_| rest.is_empty())
    }

    /// Keeps the pieces of the file that verify.
    fn go_on_with(&self, tree: PieceTree) -> Result<(), DiskError> {
        let mut contents = Vec::new();
        let mut here = self.here();
        for piece in 0..tree.values().len() as u32 {
            contents.resize(piece_bytes(self.blob.bytes, piece), 0);
            if self.file.read_exact_at(&mut contents, u64::from(piece) * PIECE_BYTES).is_err() {
                break;
            }
            if tree.verifies(piece, &contents) {
                here.insert(piece);
            }
        }
        // Set only once.
        let _ = self.tree.set(Arc::new(tree));
        Ok(())
    }

    /// Starts a sync now and then, so that little is left at the end. An error shows up there, too.
    pub fn written(self: &Arc<Self>, bytes: usize) {
        let unsynced = self.unsynced.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if unsynced < SYNCED_BYTES || self.syncing.swap(true, Ordering::Relaxed) {
            return;
        }
        self.unsynced.store(0, Ordering::Relaxed);
        let arriving = self.clone();
        std::thread::spawn(move || {
            // If the disk fails, the sync at the end fails as well.
            let _ = arriving.file.sync_data();
            arriving.syncing.store(false, Ordering::Relaxed);
        });
    }

    /// A copy of the set of pieces that are here.
    pub fn pieces(&self) -> PieceSet {
        self.here().clone()
    }

    pub fn tree(&self) -> Option<Arc<PieceTree>> {
        self.tree.get().cloned()
    }

    pub fn read(&self, piece: u32, into: &mut Vec<u8>) -> Result<bool, DiskError> {
        if !self.here().has(piece) {
            return Ok(false);
        }
        into.resize(piece_bytes(self.blob.bytes, piece), 0);
        let read = self.file.read_exact_at(into, u64::from(piece) * PIECE_BYTES);
        read.map_err(DiskError::when("cannot read", &self.path))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::value_of;
    use crate::store::{BlobStore, Receiving};

    fn noise(bytes: u64) -> Vec<u8> {
        let mut noise = vec![0; bytes as usize];
        blake3::Hasher::new().update(b"arriving").finalize_xof().fill(&mut noise);
        noise
    }

    fn tree_of(contents: &[u8]) -> Arc<PieceTree> {
        let values = contents.chunks(PIECE_BYTES as usize).zip(0..).map(|(piece, index)| value_of(index, piece));
        Arc::new(PieceTree::of_values(BlobRef::of(contents), values.collect()).unwrap())
    }

    fn piece(contents: &[u8], piece: usize) -> &[u8] {
        contents.chunks(PIECE_BYTES as usize).nth(piece).unwrap()
    }

    fn begun(store: &BlobStore, contents: &[u8]) -> Receiving {
        let receiving = store.receive(BlobRef::of(contents)).unwrap();
        receiving.begin(&tree_of(contents)).unwrap();
        receiving.write(2, piece(contents, 2)).unwrap();
        receiving.write(0, piece(contents, 0)).unwrap();
        receiving
    }

    fn finish(receiving: &Receiving, contents: &[u8], missing: &[usize]) -> Result<BlobRef, BlobError> {
        missing.iter().for_each(|index| receiving.write(*index as u32, piece(contents, *index)).unwrap());
        receiving.finish()
    }

    #[test]
    fn pieces_come_in_any_order_and_the_blob_shows_when_all_are_here() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let contents = noise(3 * PIECE_BYTES + 5);
        let blob = BlobRef::of(&contents);
        let receiving = begun(&store, &contents);
        assert!(matches!(receiving.finish(), Err(BlobError::NotWhole { .. })));
        assert!(!store.has(blob.hash).unwrap() && store.list().unwrap().is_empty());
        assert_eq!(finish(&receiving, &contents, &[1, 3]).unwrap(), blob);
        drop(receiving);
        assert!(store.get(blob.hash, blob.bytes).unwrap().unwrap() == contents);
        assert_eq!(store.used_bytes(), blob.bytes);
        assert_eq!(fs::read_dir(folder.path().join(PARTIAL)).unwrap().count(), 0);
    }

    #[test]
    fn what_was_left_half_way_is_gone_on_with_after_a_restart_as_far_as_it_verifies() {
        let folder = tempfile::tempdir().unwrap();
        let contents = noise(3 * PIECE_BYTES + 5);
        let blob = BlobRef::of(&contents);
        // Like a kill: the destructor does not run.
        std::mem::forget(begun(&BlobStore::open(folder.path()).unwrap(), &contents));
        let store = BlobStore::open(folder.path()).unwrap();
        assert_eq!(store.used_bytes(), blob.bytes, "its space is taken");
        let receiving = store.receive(blob).unwrap();
        let here = receiving.begin(&receiving.tree().unwrap()).unwrap();
        assert_eq!((here.count(), here.has(0), here.has(2)), (2, true, true));
        drop(receiving);
        // The disk loses a piece in the meantime.
        let file = OpenOptions::new().write(true).open(folder.path().join(PARTIAL).join(name(blob))).unwrap();
        file.write_all_at(b"rot", 7).unwrap();
        let receiving = BlobStore::open(folder.path()).unwrap().receive(blob).unwrap();
        assert_eq!(receiving.begin(&tree_of(&contents)).unwrap().count(), 1);
        assert_eq!(finish(&receiving, &contents, &[0, 1, 3]).unwrap(), blob);
    }

    #[test]
    fn nothing_is_left_of_a_blob_of_which_nothing_came_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let contents = noise(3 * PIECE_BYTES);
        drop(store.receive(BlobRef::of(&contents)).unwrap());
        let receiving = store.receive(BlobRef::of(&contents)).unwrap();
        receiving.begin(&tree_of(&contents)).unwrap();
        drop(receiving);
        let files = || fs::read_dir(folder.path().join(PARTIAL)).unwrap().count();
        assert_eq!((files(), store.used_bytes()), (0, 0));
        drop(begun(&store, &contents));
        assert_eq!((files(), store.used_bytes()), (2, 3 * PIECE_BYTES));
        let path = folder.path().join(PARTIAL).join(name(BlobRef::of(&contents)));
        let long_ago = fs::metadata(&path).unwrap().modified().unwrap() - 2 * PARTIAL_LASTS;
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        assert_eq!((files(), store.used_bytes()), (0, 0));
    }

    #[test]
    fn what_nobody_needs_any_more_is_not_kept_half_way() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let contents = noise(3 * PIECE_BYTES);
        drop(begun(&store, &contents));
        assert!(!store.remove(BlobRef::of(&contents).hash).unwrap());
        assert_eq!(store.used_bytes(), 0);
    }

    #[test]
    fn two_who_receive_the_same_blob_share_its_pieces_and_its_room() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let contents = noise(3 * PIECE_BYTES);
        let blob = BlobRef::of(&contents);
        let (one, other) = (begun(&store, &contents), store.receive(blob).unwrap());
        assert_eq!((other.begin(&tree_of(&contents)).unwrap().count(), store.used_bytes()), (2, blob.bytes));
        drop(one);
        assert_eq!(finish(&other, &contents, &[1]).unwrap(), blob);
        assert_eq!(other.finish().unwrap(), blob, "again");
        drop(other);
        assert_eq!(store.used_bytes(), blob.bytes);
    }

    #[test]
    fn what_was_left_half_way_makes_room_for_what_is_stored_now() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        store.limit(4 * PIECE_BYTES);
        let contents = noise(3 * PIECE_BYTES);
        let receiving = begun(&store, &contents);
        let other = noise(2 * PIECE_BYTES + 1);
        assert!(store.put(&other).unwrap_err().is_transient(), "it is being received");
        drop(receiving);
        store.put(&other).unwrap();
        assert_eq!(store.used_bytes(), 2 * PIECE_BYTES + 1);
    }

    #[test]
    fn a_billion_pieces_are_refused_before_a_file_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let blob = BlobRef { hash: BlobHash([1; 32]), bytes: 1_000_000_000 * PIECE_BYTES };
        assert!(matches!(store.receive(blob), Err(BlobError::TooManyPieces { .. })));
        assert_eq!((fs::read_dir(folder.path().join(PARTIAL)).unwrap().count(), store.used_bytes()), (0, 0));
    }
}
