//! The files of a corpus: those that are named, and those of folders and their subfolders, in order of name.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::text::corpus::error::FileFault;

/// All files to read, and what cannot be read among them.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Each with its size in bytes.
    pub(super) files: Vec<(PathBuf, u64)>,
    pub(super) faults: Vec<FileFault>,
    /// Links to folders that are read at another place.
    pub(super) read_before: Vec<PathBuf>,
    /// Folders that were entered, by device and number.
    entered: BTreeSet<(u64, u64)>,
}

/// Lists all paths in the order given. Hidden files of folders are left out. A link is followed, but no folder is read
/// twice, so a circle of links ends.
pub(super) fn list(paths: &[PathBuf]) -> Listing {
    let mut listing = Listing::default();
    paths.iter().for_each(|path| listing.add(path));
    listing
}

impl Listing {
    fn add(&mut self, path: &Path) {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => self.add_folder(path, &found),
            Ok(found) if found.is_file() => self.files.push((path.to_owned(), found.len())),
            Ok(found) => self.fault(path, not_a_file(&found)),
            Err(error) => self.fault(path, explained(path, &error)),
        }
    }

    fn add_folder(&mut self, path: &Path, found: &Metadata) {
        if !self.entered.insert((found.dev(), found.ino())) {
            self.read_before.push(path.to_owned());
            return;
        }
        match names(path) {
            Ok(names) => names.iter().for_each(|name| self.add(name)),
            Err(error) => self.fault(path, error.to_string()),
        }
    }

    fn fault(&mut self, path: &Path, reason: String) {
        self.faults.push(FileFault { path: path.to_owned(), reason });
    }
}

/// What is in a folder, in order of name, without hidden files.
fn names(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            names.push(entry.path());
        }
    }
    names.sort();
    Ok(names)
}

fn not_a_file(found: &Metadata) -> String {
    let kind = found.file_type();
    let what = match (kind.is_fifo(), kind.is_socket()) {
        (true, _) => "a pipe",
        (_, true) => "a socket",
        _ => "a device",
    };
    format!("{what}, and text is read twice; write what comes out of it to a file")
}

fn explained(path: &Path, error: &io::Error) -> String {
    let link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    match fs::read_link(path) {
        Ok(target) if link && error.kind() == ErrorKind::NotFound => {
            format!("a link to {}, which does not exist", target.display())
        }
        Ok(_) if link && error.kind() != ErrorKind::PermissionDenied => format!("a link that leads nowhere: {error}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn links_are_followed_once_and_a_circle_ends() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("in/b")).unwrap();
        fs::create_dir(at("other")).unwrap();
        for name in ["in/c.txt", "in/b/x", "in/.hidden", "other/y"] {
            fs::write(at(name), name).unwrap();
        }
        symlink(at("other"), at("in/a")).unwrap();
        symlink(at("in"), at("in/circle")).unwrap();
        symlink(at("in/c.txt"), at("in/d.txt")).unwrap();
        let listing = list(&[at("in")]);
        let files: Vec<_> = listing.files.iter().map(|(path, _)| path.clone()).collect();
        assert_eq!(files, ["in/a/y", "in/b/x", "in/c.txt", "in/d.txt"].map(at));
        assert_eq!(listing.read_before, [at("in/circle")]);
        assert!(listing.faults.is_empty());
    }

    #[test]
    fn what_is_no_file_is_named_all_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink(at("gone"), at("dangling")).unwrap();
        symlink(at("self"), at("self")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        fs::write(at("text"), "text").unwrap();
        let listing = list(&[folder.path().to_owned(), at("missing")]);
        let said: Vec<String> = listing.faults.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 4, "{said:?}");
        for (line, part) in said.iter().zip(["gone, which does not exist", "leads nowhere", "a socket", "No such file"])
        {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(listing.files.len(), 1);
    }
}
