//! sled with what it lacks: checksums, numbered flushes, and patience with its lock.
//!
//! [`Database::flush`] writes the number of flushes into sled, flushes it, and then writes the number to a file beside
//! it. sled recovers what comes before the first damaged place in its log; so when it has a lower number than the file,
//! it has lost something that had been flushed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::store::durable::{DiskError, open_file, replace};

const CACHE_BYTES: u64 = 16 << 20;
const CHECK_BYTES: usize = 4;

/// The key that holds the number of flushes, and the file beside sled's that does so as well.
const FLUSHES: &str = "flushes";

/// sled lets go of its lock a moment after it has been dropped: how long to wait for that, in all and at a time.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Why the index could not be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The disk, while a broken index was moved aside.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// sled.
    #[error("the index in {}: {source}", folder.display())]
    Sled {
        /// Where.
        folder: PathBuf,
        /// What sled says.
        source: sled::Error,
    },
    /// A value is not what was written.
    #[error("the index holds a damaged entry under {tree}; restart, and it will be built anew")]
    Damaged {
        /// Which tree.
        tree: &'static str,
    },
    /// More than the stated bound.
    #[error("{what} of {bytes} bytes is too large for the index; at most {max_bytes} fit")]
    TooLarge {
        /// For instance `a checkpoint`.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        max_bytes: usize,
    },
}

impl IndexError {
    /// Whether an index built anew would mend it; a full disk or a lock would only hide behind one.
    pub(in crate::store) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Sled { source: sled::Error::Io(error), .. } => {
                matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput)
            }
            Self::Sled { .. } => true,
            Self::Disk(_) | Self::TooLarge { .. } => false,
        }
    }
}

/// An open sled.
pub(in crate::store) struct Database {
    folder: PathBuf,
    db: sled::Db,
    flushes: u64,
}

impl Database {
    /// Opens or makes a sled, and finds out whether it has lost a flush.
    pub fn open(folder: &Path) -> Result<Self, IndexError> {
        let db = open_sled(folder).map_err(|source| IndexError::Sled { folder: folder.to_owned(), source })?;
        let flushes = count_flushes(&db, folder)?;
        Ok(Self { folder: folder.to_owned(), db, flushes })
    }

    /// Opens a tree and checks every entry.
    pub fn tree(&self, name: &'static str) -> Result<Tree, IndexError> {
        Tree::open(&self.db, &self.folder, name)
    }

    /// Writes out what sled holds in memory, and notes that it did.
    pub fn flush(&mut self) -> Result<(), IndexError> {
        let flushes = self.flushes + 1;
        let flushed = self.db.insert(FLUSHES, &flushes.to_le_bytes()).and_then(|_| self.db.flush());
        flushed.map_err(|source| IndexError::Sled { folder: self.folder.clone(), source })?;
        replace(&self.folder.join(FLUSHES), flushes.to_string().as_bytes(), open_file)?;
        self.flushes = flushes;
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "sled gives no sign when another process lets go of it")]
fn open_sled(folder: &Path) -> sled::Result<sled::Db> {
    // LowSpace: this index is small and changes often, and sled's files grow otherwise.
    let config = sled::Config::new().path(folder).cache_capacity(CACHE_BYTES).mode(sled::Mode::LowSpace);
    let mut waited = Duration::ZERO;
    loop {
        match config.open() {
            Err(error) if is_locked(&error) && waited < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_PAUSE);
                waited += LOCK_PAUSE;
            }
            opened => return opened,
        }
    }
}

/// sled gives this error no kind of its own.
fn is_locked(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(error) if error.to_string().contains("could not acquire lock"))
}

/// Counts the flushes, and finds out whether sled has lost one.
fn count_flushes(db: &sled::Db, folder: &Path) -> Result<u64, IndexError> {
    let damaged = || IndexError::Damaged { tree: FLUSHES };
    let path = folder.join(FLUSHES);
    let noted = match fs::read_to_string(&path) {
        Ok(text) => text.parse().map_err(|_| damaged())?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) if error.kind() == ErrorKind::InvalidData => return Err(damaged()),
        Err(error) => return Err(DiskError::when("cannot read", &path)(error).into()),
    };
    let found = db.get(FLUSHES).map_err(|source| IndexError::Sled { folder: folder.to_owned(), source })?;
    let found = match found {
        Some(bytes) => u64::from_le_bytes(bytes.as_ref().try_into().map_err(|_| damaged())?),
        None => 0,
    };
    if found < noted { Err(damaged()) } else { Ok(found) }
}

/// Key and value.
pub(in crate::store) type Entry = (Vec<u8>, Vec<u8>);

/// A tree whose values carry a checksum of tree, key and value.
pub(in crate::store) struct Tree {
    name: &'static str,
    folder: PathBuf,
    tree: sled::Tree,
    /// sled counts by walking through all entries.
    count: usize,
}

impl Tree {
    /// Opens a tree and checks every entry.
    fn open(db: &sled::Db, folder: &Path, name: &'static str) -> Result<Self, IndexError> {
        let fails = |source| IndexError::Sled { folder: folder.to_owned(), source };
        let mut checked = Self { name, folder: folder.to_owned(), tree: db.open_tree(name).map_err(fails)?, count: 0 };
        for entry in checked.tree.iter() {
            let (key, value) = entry.map_err(fails)?;
            checked.opened(&key, &value)?;
            checked.count += 1;
        }
        Ok(checked)
    }

    fn fails(&self) -> impl Fn(sled::Error) -> IndexError {
        |source| IndexError::Sled { folder: self.folder.clone(), source }
    }

    pub fn damaged(&self) -> IndexError {
        IndexError::Damaged { tree: self.name }
    }

    fn check(&self, key: &[u8], value: &[u8]) -> [u8; CHECK_BYTES] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.name.as_bytes()).update(&[0, key.len() as u8]).update(key).update(value);
        let mut check = [0; CHECK_BYTES];
        hasher.finalize_xof().fill(&mut check);
        check
    }

    fn opened(&self, key: &[u8], stored: &[u8]) -> Result<Vec<u8>, IndexError> {
        let (value, check) = stored.split_last_chunk::<CHECK_BYTES>().ok_or_else(|| self.damaged())?;
        if *check == self.check(key, value) { Ok(value.to_vec()) } else { Err(self.damaged()) }
    }

    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), IndexError> {
        let stored = [value, &self.check(key, value)].concat();
        let old = self.tree.insert(key, stored).map_err(self.fails())?;
        self.count += usize::from(old.is_none());
        Ok(())
    }

    /// Where there are as many as there may be, the entry whose key comes next gives way; where keys are random, so is
    /// the choice.
    pub fn insert_bounded(&mut self, key: &[u8], value: &[u8], max: usize) -> Result<(), IndexError> {
        if self.count >= max && !self.tree.contains_key(key).map_err(self.fails())? {
            let next = match self.tree.get_gt(key).map_err(self.fails())? {
                None => self.tree.first().map_err(self.fails())?,
                next => next,
            };
            if let Some((next, _)) = next {
                self.remove(&next)?;
            }
        }
        self.insert(key, value)
    }

    pub fn remove(&mut self, key: &[u8]) -> Result<(), IndexError> {
        let old = self.tree.remove(key).map_err(self.fails())?;
        self.count -= usize::from(old.is_some());
        Ok(())
    }

    pub fn clear(&mut self) -> Result<(), IndexError> {
        self.tree.clear().map_err(self.fails())?;
        self.count = 0;
        Ok(())
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        let stored = self.tree.get(key).map_err(self.fails())?;
        stored.map(|stored| self.opened(key, &stored)).transpose()
    }

    /// All entries whose keys begin so, in order.
    pub fn entries(&self, prefix: &[u8]) -> Result<Vec<Entry>, IndexError> {
        let entry = |entry: sled::Result<(sled::IVec, sled::IVec)>| {
            let (key, stored) = entry.map_err(self.fails())?;
            let value = self.opened(&key, &stored)?;
            Ok((key.to_vec(), value))
        };
        self.tree.scan_prefix(prefix).map(entry).collect()
    }

    /// What lies under the checksums, for tests that damage it.
    #[cfg(test)]
    pub fn raw(&self) -> &sled::Tree {
        &self.tree
    }
}
