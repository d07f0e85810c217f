//! A folder that is written next to its place and moved there atomically.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::durable::{DiskError, create_folder, open_file, sync_parent};

#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{} cannot be replaced; name a folder inside it", .0.display())]
    NoName(PathBuf),
    #[error("{} is being written by another process; wait for it, or name another folder", .0.display())]
    Busy(PathBuf),
}

/// A folder on its way to its place. It is removed when dropped before; what a crash left is removed when the same
/// folder is begun again.
pub struct StagedFolder {
    target: PathBuf,
    beside: PathBuf,
    _lock: File,
}

impl StagedFolder {
    /// Begins a folder to replace `target`, in a hidden one next to it.
    pub fn begin(target: &Path) -> Result<Self, StagingError> {
        let target = std::path::absolute(target).map_err(DiskError::when("cannot find", target))?;
        let name = target.file_name().ok_or_else(|| StagingError::NoName(target.clone()))?;
        let beside = target.with_file_name(format!(".{}.unfinished", name.to_string_lossy()));
        create_folder(&beside)?;
        let lock = File::open(&beside).map_err(DiskError::when("cannot open", &beside))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StagingError::Busy(target)),
            Err(TryLockError::Error(error)) => return Err(DiskError::when("cannot lock", &beside)(error).into()),
        }
        let staged = Self { target, beside, _lock: lock };
        // Killed between the two renames: the earlier folder is restored.
        if !staged.target.exists() && staged.replaced().exists() {
            let failed = DiskError::when("cannot restore", &staged.target);
            fs::rename(staged.replaced(), &staged.target).map_err(failed)?;
        }
        for left in [staged.folder(), staged.scratch(), staged.replaced()] {
            remove_folder(&left)?;
        }
        create_folder(&staged.folder())?;
        Ok(staged)
    }

    /// The folder that becomes the target.
    fn folder(&self) -> PathBuf {
        self.beside.join("folder")
    }

    fn replaced(&self) -> PathBuf {
        self.beside.join("replaced")
    }

    /// A path for temporary data. It does not exist yet.
    pub fn scratch(&self) -> PathBuf {
        self.beside.join("scratch")
    }

    /// Writes a file, such as `modules/0.1.safetensors`, and syncs it.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<(), DiskError> {
        let path = self.folder().join(name);
        create_folder(path.parent().unwrap_or(&self.folder()))?;
        let mut file = open_file(&path).map_err(DiskError::when("cannot make", &path))?;
        file.write_all(contents).map_err(DiskError::when("cannot write", &path))?;
        file.sync().map_err(DiskError::when("cannot sync", &path))?;
        sync_parent(&path)
    }

    /// Moves the folder to its place, and then removes the earlier one.
    pub fn put_in_place(self) -> Result<(), DiskError> {
        let failed = DiskError::when("cannot replace", &self.target);
        let replaced = match fs::rename(&self.target, self.replaced()) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(failed(error)),
        };
        if let Err(error) = fs::rename(self.folder(), &self.target) {
            if replaced {
                fs::rename(self.replaced(), &self.target).map_err(DiskError::when("cannot restore", &self.target))?;
            }
            return Err(failed(error));
        }
        sync_parent(&self.target)
    }
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        // If this fails, it is removed when the same folder is begun again.
        let _ = fs::remove_dir_all(&self.beside);
    }
}

fn remove_folder(folder: &Path) -> Result<(), DiskError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(DiskError::when("cannot remove", folder)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_appears_whole_and_replaces_the_old_one() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("deep/run");
        let staged = StagedFolder::begin(&target).unwrap();
        staged.write("a", b"1").unwrap();
        staged.write("modules/b", b"2").unwrap();
        assert!(!target.exists());
        staged.put_in_place().unwrap();
        assert_eq!(fs::read(target.join("modules/b")).unwrap(), b"2");
        let staged = StagedFolder::begin(&target).unwrap();
        staged.write("c", b"3").unwrap();
        staged.put_in_place().unwrap();
        assert_eq!(names(&target), ["c"]);
        assert_eq!(names(&home.path().join("deep")), ["run"]);
    }

    #[test]
    fn what_is_not_finished_leaves_nothing_and_the_old_one_alone() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("run");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("old"), b"").unwrap();
        let staged = StagedFolder::begin(&target).unwrap();
        staged.write("new", b"").unwrap();
        drop(staged);
        assert_eq!((names(&target), names(home.path())), (vec!["old".to_owned()], vec!["run".to_owned()]));
    }

    #[test]
    fn what_a_crash_left_is_gone_and_two_do_not_mix() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("run");
        let left = home.path().join(".run.unfinished/folder");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("half"), b"").unwrap();
        let staged = StagedFolder::begin(&target).unwrap();
        assert!(matches!(StagedFolder::begin(&target), Err(StagingError::Busy(_))));
        staged.write("whole", b"").unwrap();
        staged.put_in_place().unwrap();
        assert_eq!(names(&target), ["whole"]);
        assert!(matches!(StagedFolder::begin(Path::new("/")), Err(StagingError::NoName(_))));
    }
}
