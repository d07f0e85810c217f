//! Folders whose subfolders are the classes, each with the images of its class.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType};
use std::path::{Path, PathBuf};

use crate::images::source::{SourceError, by_name, number_of, visible};

/// Extensions of images, in any case.
const ENDINGS: [&str; 3] = ["jpg", "jpeg", "png"];

/// The images of a class in one folder.
#[derive(Debug)]
pub(super) struct ClassFolder {
    pub path: PathBuf,
    pub class: u16,
    /// Names of the images, in order.
    pub files: Vec<OsString>,
}

/// The class folders of all sources, by source and class; the classes by number; and the number of files that are not
/// images.
pub(super) fn find(
    sources: &[PathBuf],
    names: Option<&[String]>,
) -> Result<(Vec<ClassFolder>, Vec<String>, u64), SourceError> {
    let mut found = Vec::new();
    for source in sources {
        found.push(subfolders(source)?);
    }
    let classes = match names {
        Some(names) => names.to_vec(),
        None => found.iter().flatten().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>().into_iter().collect(),
    };
    let known = by_name(&classes);
    let (mut folders, mut other_files) = (Vec::new(), 0);
    for subfolders in found {
        let before = folders.len();
        for (name, path) in subfolders {
            let class = number_of(&name, &known, &path)?;
            let (files, others) = images(&path)?;
            other_files += others;
            folders.push(ClassFolder { path, class, files });
        }
        folders[before..].sort_by_key(|folder| folder.class);
    }
    Ok((folders, classes, other_files))
}

/// The subfolders of a source, at least one, with their names.
fn subfolders(source: &Path) -> Result<Vec<(String, PathBuf)>, SourceError> {
    let mut found = Vec::new();
    for (name, kind) in visible(source)? {
        let path = source.join(&name);
        if is_folder(&path, kind)? {
            match name.into_string() {
                Ok(name) => found.push((name, path)),
                Err(_) => return Err(SourceError::ClassName { path }),
            }
        }
    }
    if found.is_empty() { Err(SourceError::NoClasses { path: source.to_owned() }) } else { Ok(found) }
}

/// Follows links.
fn is_folder(path: &Path, kind: FileType) -> Result<bool, SourceError> {
    if !kind.is_symlink() {
        return Ok(kind.is_dir());
    }
    Ok(fs::metadata(path).map_err(SourceError::disk(path))?.is_dir())
}

/// The names of a folder's images, at least one, and the number of other files.
fn images(folder: &Path) -> Result<(Vec<OsString>, u64), SourceError> {
    let (mut files, mut others) = (Vec::new(), 0);
    for (name, kind) in visible(folder)? {
        let ending = Path::new(&name).extension().and_then(OsStr::to_str).unwrap_or_default();
        if kind.is_dir() {
            continue;
        }
        match ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending)) {
            true => files.push(name),
            false => others += 1,
        }
    }
    if files.is_empty() { Err(SourceError::EmptyClass { path: folder.to_owned() }) } else { Ok((files, others)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::source;

    fn world(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "image").unwrap();
        }
        folder
    }

    fn offered(sources: &[&tempfile::TempDir], names: Option<&[String]>) -> Vec<(String, u16)> {
        let paths: Vec<PathBuf> = sources.iter().map(|source| source.path().to_owned()).collect();
        let found = source::find(&paths, names).unwrap();
        let offers: Vec<_> = found.offers().map(Result::unwrap).collect();
        assert_eq!(offers.len() as u64, found.images());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        offers.iter().map(|offer| (name(&offer.path), offer.class)).collect()
    }

    fn owned(pairs: &[(&str, u16)]) -> Vec<(String, u16)> {
        pairs.iter().map(|(name, class)| ((*name).to_owned(), *class)).collect()
    }

    #[test]
    fn images_come_by_source_class_and_name() {
        let one = world(&["dog/b.png", "dog/a.JPG", "cat/z.jpeg", "read.me", "cat/notes.txt", "cat/deep/x.png"]);
        let two = world(&["cat/a.png", "bird/a.png", ".hidden/a.png", "cat/.a.png"]);
        let expected = [("z.jpeg", 1), ("a.JPG", 2), ("b.png", 2), ("a.png", 0), ("a.png", 1)];
        assert_eq!(offered(&[&one, &two], None), owned(&expected));
        let found = source::find(&[one.path().to_owned(), two.path().to_owned()], None).unwrap();
        assert_eq!(found.classes, ["bird", "cat", "dog"]);
        assert_eq!(found.other_files, 1);
    }

    #[test]
    fn another_files_classes_number_these() {
        let folder = world(&["cat/1.png", "dog/2.png"]);
        let names = ["dog", "emu", "cat"].map(str::to_owned);
        assert_eq!(offered(&[&folder], Some(&names)), owned(&[("2.png", 0), ("1.png", 2)]));
        let error = source::find(&[folder.path().to_owned()], Some(&names[..2])).unwrap_err();
        assert!(matches!(&error, SourceError::UnknownClass { name, .. } if name == "cat"), "{error}");
    }

    #[test]
    fn a_class_without_images_is_named() {
        let folder = world(&["cat/1.png", "dog/notes.txt"]);
        let error = source::find(&[folder.path().to_owned()], None).unwrap_err();
        assert!(matches!(&error, SourceError::EmptyClass { path } if path.ends_with("dog")), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_folder_is_a_class_and_a_name_that_is_no_text_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let (folder, elsewhere) = (world(&["cat/1.png"]), world(&["2.png"]));
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("dog")).unwrap();
        assert_eq!(offered(&[&folder], None), owned(&[("1.png", 0), ("2.png", 1)]));
        if fs::create_dir(folder.path().join(OsStr::from_bytes(b"\xff"))).is_ok() {
            let error = source::find(&[folder.path().to_owned()], None).unwrap_err();
            assert!(matches!(error, SourceError::ClassName { .. }), "{error}");
        }
    }
}
