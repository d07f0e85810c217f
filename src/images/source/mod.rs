//! Sources of images: folders whose subfolders are the classes, or the binary files of CIFAR-10.

pub(super) mod cifar;
mod class_folders;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, FileType};
use std::io;
use std::path::{Path, PathBuf};

use crate::images::source::cifar::{CifarFile, Records};
use crate::images::source::class_folders::ClassFolder;

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("no source of images was given; give a folder of classes, or files of CIFAR-10")]
    None,
    #[error("{} does not exist; give a folder of classes, or files of CIFAR-10", path.display())]
    Missing { path: PathBuf },
    #[error(
        "{} is neither a folder of classes nor a .bin file of CIFAR-10; put single images into a folder of classes",
        path.display()
    )]
    Kind { path: PathBuf },
    #[error("{} has no subfolders; put the images of each class into a folder with the name of the \
        class", path.display())]
    NoClasses { path: PathBuf },
    /// A folder with files of CIFAR-10, but none of those to train on.
    #[error(
        "{} has .bin files, but no data_batch_*.bin; name the files themselves, such as test_batch.bin",
        path.display()
    )]
    NoBatches { path: PathBuf },
    #[error("{} has no .jpg, .jpeg or .png file; add images, or remove the folder", path.display())]
    EmptyClass { path: PathBuf },
    #[error("the name of {} is not UTF-8; rename the folder, since it names the class", path.display())]
    ClassName { path: PathBuf },
    #[error("{}: class {name:?} is not in the file given with --classes-of; remove or rename it", path.display())]
    UnknownClass { path: PathBuf, name: String },
    #[error("{} and {} are sources of different kinds; prepare them separately", first.display(), other.display())]
    Mixed { first: PathBuf, other: PathBuf },
    #[error(
        "{} has {found} bytes, which is not a multiple of {}: it is truncated, or not the binary version of CIFAR-10",
        path.display(), cifar::RECORD_BYTES
    )]
    Size { path: PathBuf, found: u64 },
    #[error("{}: record {record} has class {class}, but CIFAR-10 has 0 to 9; download the file again", path.display())]
    Class { path: PathBuf, record: u64, class: u8 },
    /// Names of classes that are not ten, or differ between files.
    #[error("{} does not name ten different classes; correct the file, or remove it", path.display())]
    Names { path: PathBuf },
    #[error("cannot read {}", path.display())]
    Disk { path: PathBuf, source: io::Error },
}

impl SourceError {
    /// Converts an error of the operating system.
    pub(super) fn disk(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { path: path.to_owned(), source }
    }
}

/// An image of a source, with its class.
pub(super) struct Offer {
    /// The file that it is or is in.
    pub path: PathBuf,
    pub class: u16,
    /// Its pixels, planar, if the file has several images.
    pub pixels: Option<Vec<u8>>,
}

/// The contents of sources.
#[derive(Debug)]
pub(super) struct Found {
    /// The classes, by number.
    pub classes: Vec<String>,
    /// Files that are not images, which are skipped.
    pub other_files: u64,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Folders(Vec<ClassFolder>),
    /// The files, and the number of each of the ten classes.
    Cifar(Vec<CifarFile>, Vec<u16>),
}

impl Found {
    /// Number of images.
    pub fn images(&self) -> u64 {
        match &self.origin {
            Origin::Folders(folders) => folders.iter().map(|folder| folder.files.len() as u64).sum(),
            Origin::Cifar(files, _) => files.iter().map(|file| file.records).sum(),
        }
    }

    /// All images: by source, class and name, or by source and position in the file.
    pub fn offers(&self) -> Box<dyn Iterator<Item = Result<Offer, SourceError>> + '_> {
        match &self.origin {
            Origin::Folders(folders) => {
                let of = |folder: &'_ ClassFolder, name| {
                    Ok(Offer { path: folder.path.join(name), class: folder.class, pixels: None })
                };
                Box::new(folders.iter().flat_map(move |folder| folder.files.iter().map(move |name| of(folder, name))))
            }
            Origin::Cifar(files, numbers) => {
                let numbered = |offer: Offer| Offer { class: numbers[usize::from(offer.class)], ..offer };
                let records = files.iter().flat_map(Records::of);
                Box::new(records.map(move |offer| offer.map(numbered)))
            }
        }
    }
}

/// Lists the contents of sources. Classes are numbered as in `names`, if given, else in order of name.
pub(super) fn find(sources: &[PathBuf], names: Option<&[String]>) -> Result<Found, SourceError> {
    let Some(first) = sources.first() else { return Err(SourceError::None) };
    let kinds = sources.iter().map(|source| is_cifar(source)).collect::<Result<Vec<bool>, _>>()?;
    if let Some(other) = kinds.iter().position(|kind| *kind != kinds[0]) {
        return Err(SourceError::Mixed { first: first.clone(), other: sources[other].clone() });
    }
    if kinds[0] {
        let files = sources.iter().map(|source| cifar::files_of(source)).collect::<Result<Vec<_>, _>>()?.concat();
        let own = cifar::class_names(&files)?;
        let known = by_name(names.unwrap_or(&own));
        let numbers = own.iter().map(|name| number_of(name, &known, first)).collect::<Result<_, _>>()?;
        let classes = names.map_or(own, <[String]>::to_vec);
        return Ok(Found { classes, other_files: 0, origin: Origin::Cifar(files, numbers) });
    }
    let (folders, classes, other_files) = class_folders::find(sources, names)?;
    Ok(Found { classes, other_files, origin: Origin::Folders(folders) })
}

/// The numbers of classes, which are at most as many as a file can have.
pub(super) fn by_name(names: &[String]) -> BTreeMap<&str, u16> {
    names.iter().map(String::as_str).zip(0..=u16::MAX).collect()
}

/// The number of a class that is found here.
pub(super) fn number_of(name: &str, known: &BTreeMap<&str, u16>, path: &Path) -> Result<u16, SourceError> {
    let unknown = || SourceError::UnknownClass { path: path.to_owned(), name: name.to_owned() };
    known.get(name).copied().ok_or_else(unknown)
}

/// The contents of a folder without hidden files, in order of name.
pub(super) fn visible(folder: &Path) -> Result<Vec<(OsString, FileType)>, SourceError> {
    let entries = fs::read_dir(folder).map_err(SourceError::disk(folder))?;
    let named = |entry: io::Result<fs::DirEntry>| entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?)));
    let mut found = entries.map(named).collect::<io::Result<Vec<_>>>().map_err(SourceError::disk(folder))?;
    found.retain(|(name, _)| !name.as_encoded_bytes().starts_with(b"."));
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// Whether a source is CIFAR-10 instead of a folder of classes.
fn is_cifar(source: &Path) -> Result<bool, SourceError> {
    match fs::metadata(source) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SourceError::Missing { path: source.to_owned() }),
        Err(error) => Err(SourceError::disk(source)(error)),
        Ok(found) if found.is_dir() => cifar::is_folder(source),
        Ok(_) if source.extension().is_some_and(|ending| ending == "bin") => Ok(true),
        Ok(_) => Err(SourceError::Kind { path: source.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_no_source_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(matches!(find(&[], None), Err(SourceError::None)));
        let error = find(&[at("missing")], None).unwrap_err();
        assert!(matches!(&error, SourceError::Missing { path } if *path == at("missing")), "{error}");
        fs::write(at("one.jpg"), "image").unwrap();
        assert!(matches!(find(&[at("one.jpg")], None), Err(SourceError::Kind { .. })));
        let error = find(&[folder.path().to_owned()], None).unwrap_err();
        assert!(matches!(error, SourceError::NoClasses { .. }), "{error}");
    }

    #[test]
    fn two_kinds_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let batch = folder.path().join("test_batch.bin");
        fs::write(&batch, [0; cifar::RECORD_BYTES]).unwrap();
        fs::create_dir_all(folder.path().join("classes/cat")).unwrap();
        fs::write(folder.path().join("classes/cat/1.png"), "image").unwrap();
        let error = find(&[folder.path().join("classes"), batch.clone()], None).unwrap_err();
        assert!(matches!(&error, SourceError::Mixed { other, .. } if *other == batch), "{error}");
    }
}
