//! The format of prepared files: constants, checks of the header, and errors.

use std::collections::BTreeSet;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The first bytes of a prepared file.
pub const MAGIC: [u8; 4] = *b"PSPI";
pub(super) const VERSION: u16 = 1;
/// Size of the header before the names of the classes.
pub(super) const HEAD_BYTES: usize = 18;
/// Offset of the number of images.
pub(super) const COUNT_AT: u64 = 8;
pub(super) const CLASS_BYTES: usize = 2;
pub(super) const NAME_LENGTH_BYTES: usize = 2;
const SIDES: RangeInclusive<usize> = 1..=1024;
const CLASSES: RangeInclusive<usize> = 1..=65_535;
pub(super) const NAME_BYTES: RangeInclusive<usize> = 1..=255;

#[derive(Debug, thiserror::Error)]
pub enum PreparedError {
    #[error("{} is not a prepared file of images; make one with pathswarm prepare", path.display())]
    Kind { path: PathBuf },
    #[error(
        "{} is a prepared file of version {found}, but this program reads version {VERSION}; prepare its images again",
        path.display()
    )]
    Version { path: PathBuf, found: u16 },
    #[error("{}: the {field} is {found}; it must be {expected}", path.display())]
    Header { path: PathBuf, field: &'static str, found: String, expected: &'static str },
    #[error("{} has {found} bytes, but its header says {expected}; prepare its images again", path.display())]
    Size { path: PathBuf, expected: u128, found: u64 },
    #[error("{}: image {image} has class {class}, but there are {classes} classes", path.display())]
    Class { path: PathBuf, image: u64, class: u16, classes: usize },
    #[error("{}: image {image} has {found} bytes, but its size requires {expected}", path.display())]
    Pixels { path: PathBuf, image: u64, expected: usize, found: usize },
    #[error("cannot {doing} {}", path.display())]
    Disk { doing: &'static str, path: PathBuf, source: io::Error },
}

impl PreparedError {
    /// Converts an error of the operating system.
    pub(super) fn disk(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { doing, path: path.to_owned(), source }
    }
}

/// Bytes of the pixels of an image.
pub(super) fn pixel_bytes(side: usize) -> usize {
    3 * side * side
}

/// Checks the side of images of the file `path`.
pub(super) fn check_side(path: &Path, side: usize) -> Result<(), PreparedError> {
    let expected = "from 1 to 1024 pixels";
    require(SIDES.contains(&side), path, "side of the images", || side.to_string(), expected)
}

/// Checks the number of classes.
pub(super) fn check_count(path: &Path, classes: usize) -> Result<(), PreparedError> {
    let expected = "from 1 to 65535";
    require(CLASSES.contains(&classes), path, "number of classes", || classes.to_string(), expected)
}

/// Checks the names of classes. They are shown to people, so control characters are refused.
pub(super) fn check_names(path: &Path, names: &[String]) -> Result<(), PreparedError> {
    check_count(path, names.len())?;
    let mut known = BTreeSet::new();
    for name in names {
        let sane = NAME_BYTES.contains(&name.len()) && !name.contains(char::is_control);
        let expected = "1 to 255 bytes of UTF-8 without control characters";
        require(sane, path, "name of a class", || format!("{name:?}"), expected)?;
        let expected = "the name of no other class";
        require(known.insert(name.as_str()), path, "name of a class", || format!("{name:?}"), expected)?;
    }
    Ok(())
}

/// Refuses a header unless a condition holds.
pub(super) fn require(
    holds: bool,
    path: &Path,
    field: &'static str,
    found: impl FnOnce() -> String,
    expected: &'static str,
) -> Result<(), PreparedError> {
    if holds { Ok(()) } else { Err(PreparedError::Header { path: path.to_owned(), field, found: found(), expected }) }
}
