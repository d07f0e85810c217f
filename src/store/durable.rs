//! Durable writes: written, synced, renamed, and the folder synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// An error of the operating system, with the operation, the path, and advice if there is any.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}: {source}{}", path.display(), advice(source))]
pub struct DiskError {
    pub doing: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

/// As [`DiskError::is_transient`], from the kind of error alone.
pub fn is_transient(kind: ErrorKind) -> bool {
    !matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory)
}

fn advice(error: &io::Error) -> &'static str {
    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
        return "; this is a limit on open files, not a full disk: raise it with `ulimit -n`";
    }
    match error.kind() {
        ErrorKind::StorageFull => {
            "; free some space on this disk, or move the run's folder to a larger one; no stored data is lost"
        }
        ErrorKind::FileTooLarge => "; allow larger files (ulimit -f), or use another disk; no stored data is lost",
        ErrorKind::QuotaExceeded => "; raise that limit; no stored data is lost",
        ErrorKind::PermissionDenied => "; make it readable and writable for this user",
        ErrorKind::ReadOnlyFilesystem => "; mount the disk for writing, or move the run's folder to another one",
        _ => "",
    }
}

impl DiskError {
    /// Whether the same write may succeed later: the disk is full, over a quota, read-only, or fails now and then. If a
    /// folder is missing, waiting does not help.
    pub fn is_transient(&self) -> bool {
        is_transient(self.source.kind())
    }

    /// For `map_err`.
    pub(crate) fn when(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { doing, path, source }
    }

    /// For callers that use [`io::Error`]. Keeps the kind.
    pub fn into_io(self) -> io::Error {
        io::Error::new(self.source.kind(), self)
    }
}

/// A file that is being written. Tests replace it by a disk that fills up.
pub(crate) trait Medium: Write + Send {
    /// Waits until all bytes have reached the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Truncates the file to `bytes`; the next write appends there.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

impl Medium for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

/// Opens or creates a file for writing at its end.
pub(crate) type OpenMedium = fn(&Path) -> io::Result<Box<dyn Medium>>;

/// The real disk.
pub(crate) fn open_file(path: &Path) -> io::Result<Box<dyn Medium>> {
    Ok(Box::new(OpenOptions::new().append(true).create(true).open(path)?))
}

/// Creates a folder and its parents, and syncs each into its parent.
pub(crate) fn create_folder(folder: &Path) -> Result<(), DiskError> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent().filter(|parent| *parent != Path::new("")) {
        create_folder(parent)?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(DiskError::when("cannot make the folder", folder)(error))
        }
        _ => sync_parent(folder),
    }
}

/// Syncs the folder of `path`, so that its entry survives a loss of power.
pub(crate) fn sync_parent(path: &Path) -> Result<(), DiskError> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    File::open(parent).and_then(|folder| folder.sync_all()).map_err(DiskError::when("cannot sync the folder", parent))
}

/// Replaces the contents of `path` atomically: after a crash it has either the old contents or the new ones.
pub(crate) fn replace(path: &Path, contents: &[u8], open: OpenMedium) -> Result<(), DiskError> {
    write_beside(path, contents, open)?;
    put_in_place(path)
}

/// The first half of [`replace`]: writes and syncs the new file next to the old one, and returns it, open at its end.
pub(crate) fn write_beside(path: &Path, contents: &[u8], open: OpenMedium) -> Result<Box<dyn Medium>, DiskError> {
    let temporary = temporary_for(path);
    remove_if_there(&temporary)?;
    let write = || {
        let mut medium = open(&temporary).map_err(DiskError::when("cannot make", &temporary))?;
        medium.write_all(contents).map_err(DiskError::when("cannot write", &temporary))?;
        medium.sync().map_err(DiskError::when("cannot sync", &temporary))?;
        Ok(medium)
    };
    write().inspect_err(|_| {
        // The first error is reported; the next start removes the file.
        let _ = fs::remove_file(&temporary);
    })
}

/// The second half of [`replace`].
pub(crate) fn put_in_place(path: &Path) -> Result<(), DiskError> {
    fs::rename(temporary_for(path), path).map_err(DiskError::when("cannot replace", path))?;
    sync_parent(path)
}

/// The path for [`write_beside`].
pub(crate) fn temporary_for(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Removes a file. Returns whether it existed.
pub(crate) fn remove_if_there(path: &Path) -> Result<bool, DiskError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(DiskError::when("cannot remove", path)(error)),
    }
}

/// Disks that fail, for the tests of this folder.
#[cfg(test)]
pub(super) mod failing {
    use super::*;

    /// Capacity of [`full_disk`], for each file.
    pub const CAPACITY_BYTES: usize = 200;

    struct FullDisk {
        file: File,
        free: usize,
    }

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.free == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            let written = self.file.write(&bytes[..bytes.len().min(self.free)])?;
            self.free -= written;
            Ok(written)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Medium for FullDisk {
        fn sync(&mut self) -> io::Result<()> {
            self.file.sync_all()
        }

        fn cut(&mut self, bytes: u64) -> io::Result<()> {
            self.file.set_len(bytes)
        }
    }

    /// A file that takes [`CAPACITY_BYTES`]; then the disk is full.
    pub fn full_disk(path: &Path) -> io::Result<Box<dyn Medium>> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Box::new(FullDisk { file, free: CAPACITY_BYTES }))
    }

    struct NeverSynced(File);

    impl Write for NeverSynced {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Medium for NeverSynced {
        fn sync(&mut self) -> io::Result<()> {
            Err(io::Error::other("the disk has gone"))
        }

        fn cut(&mut self, bytes: u64) -> io::Result<()> {
            self.0.set_len(bytes)
        }
    }

    /// A file on a disk that takes bytes but fails to sync.
    pub fn never_synced(path: &Path) -> io::Result<Box<dyn Medium>> {
        Ok(Box::new(NeverSynced(OpenOptions::new().append(true).create(true).open(path)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, b"old", open_file).unwrap();
        let long = vec![7; failing::CAPACITY_BYTES + 1];
        let error = replace(&path, &long, failing::full_disk).err().unwrap();
        assert!(error.to_string().contains("free some space"), "{error}");
        assert!(error.to_string().contains("file.new"), "{error}");
        assert!(replace(&path, b"new", failing::never_synced).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        replace(&path, b"new", open_file).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
