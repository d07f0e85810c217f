//! A blob's file during writing: it is hashed on the way, and removed if it is not kept.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::names::{BlobHash, BlobRef};
use crate::store::blobs::quota::Reserved;
use crate::store::durable::{DiskError, Medium, OpenMedium};

/// The source of the hash.
enum Name {
    /// Computed while writing.
    Hashed(Box<blake3::Hasher>),
    /// Known before; hashing again would delay a trainer.
    Known(BlobHash),
}

/// A file under `incoming/`, removed when dropped unless it was renamed.
pub(crate) struct Incoming {
    pub path: PathBuf,
    medium: Box<dyn Medium>,
    name: Name,
    pub bytes: u64,
    _reserved: Reserved,
}

impl Incoming {
    /// Creates a file at this path, in reserved space.
    pub fn new(path: PathBuf, open: OpenMedium, reserved: Reserved) -> Result<Self, DiskError> {
        let medium = open(&path).map_err(DiskError::when("cannot make", &path))?;
        Ok(Self { path, medium, name: Name::Hashed(Box::default()), bytes: 0, _reserved: reserved })
    }

    /// Declares the hash of the contents.
    pub fn known(mut self, hash: BlobHash) -> Self {
        self.name = Name::Known(hash);
        self
    }

    /// Waits until all bytes are on the disk.
    pub fn sync(&mut self) -> Result<(), DiskError> {
        self.medium.sync().map_err(DiskError::when("cannot sync", &self.path))
    }

    pub fn take(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.medium.write_all(bytes).map_err(DiskError::when("cannot write", &self.path))?;
        if let Name::Hashed(hasher) = &mut self.name {
            hasher.update(bytes);
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    pub fn described(&self) -> BlobRef {
        let hash = match &self.name {
            Name::Hashed(hasher) => BlobHash(*hasher.finalize().as_bytes()),
            Name::Known(hash) => *hash,
        };
        BlobRef { hash, bytes: self.bytes }
    }
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes).map_err(DiskError::into_io)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // If this fails, the next start removes it.
        let _ = fs::remove_file(&self.path);
    }
}
