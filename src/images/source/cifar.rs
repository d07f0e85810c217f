//! The binary version of CIFAR-10: files of records, each with a class and the pixels of an image of 32 by 32.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::images::source::{Offer, SourceError, visible};

/// Pixels along each side.
pub(in crate::images) const SIDE: usize = 32;
/// Bytes of a record: its class, and the pixels, planar.
pub(super) const RECORD_BYTES: usize = 1 + 3 * SIDE * SIDE;
const CLASSES: usize = 10;
const NAMES: [&str; CLASSES] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
/// The file with the names of the classes, in the same folder.
const NAMES_FILE: &str = "batches.meta.txt";
/// More than ten names need.
const MOST_NAMES_BYTES: u64 = 4096;

/// A file of records.
#[derive(Clone, Debug)]
pub(super) struct CifarFile {
    pub path: PathBuf,
    /// Number of records.
    pub records: u64,
}

/// Whether a folder has the training files of CIFAR-10.
pub(super) fn is_folder(folder: &Path) -> Result<bool, SourceError> {
    let entries = visible(folder)?;
    let is_bin = |name: &str| name.ends_with(".bin");
    let names = || entries.iter().filter(|(_, kind)| !kind.is_dir()).filter_map(|(name, _)| name.to_str());
    if names().any(is_batch) {
        return Ok(true);
    }
    let has_folders = entries.iter().any(|(_, kind)| !kind.is_file());
    if names().any(is_bin) && !has_folders {
        return Err(SourceError::NoBatches { path: folder.to_owned() });
    }
    Ok(false)
}

fn is_batch(name: &str) -> bool {
    name.starts_with("data_batch_") && name.ends_with(".bin")
}

/// A file itself, or the training files of a folder, in order of name.
pub(super) fn files_of(source: &Path) -> Result<Vec<CifarFile>, SourceError> {
    if !fs::metadata(source).map_err(SourceError::disk(source))?.is_dir() {
        return Ok(vec![CifarFile::at(source.to_owned())?]);
    }
    let names = visible(source)?.into_iter().map(|(name, _)| name);
    names.filter(|name| name.to_str().is_some_and(is_batch)).map(|name| CifarFile::at(source.join(name))).collect()
}

impl CifarFile {
    fn at(path: PathBuf) -> Result<Self, SourceError> {
        let found = fs::metadata(&path).map_err(SourceError::disk(&path))?.len();
        let records = found / RECORD_BYTES as u64;
        if found == 0 || !found.is_multiple_of(RECORD_BYTES as u64) {
            return Err(SourceError::Size { path, found });
        }
        Ok(Self { path, records })
    }
}

/// The names of the ten classes, from the file next to the images.
pub(super) fn class_names(files: &[CifarFile]) -> Result<Vec<String>, SourceError> {
    let mut named: Option<Vec<String>> = None;
    let mut folder = None;
    for file in files.iter().filter_map(|file| file.path.parent()) {
        if folder.replace(file) == Some(file) {
            continue;
        }
        let path = file.join(NAMES_FILE);
        let Some(names) = names_in(&path)? else { continue };
        if named.as_ref().is_some_and(|named| *named != names) {
            return Err(SourceError::Names { path });
        }
        named = Some(names);
    }
    Ok(named.unwrap_or_else(|| NAMES.map(str::to_owned).to_vec()))
}

/// One name a line; empty lines are ignored.
fn names_in(path: &Path) -> Result<Option<Vec<String>>, SourceError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(SourceError::disk(path))?,
    };
    let mut text = Vec::new();
    file.take(MOST_NAMES_BYTES + 1).read_to_end(&mut text).map_err(SourceError::disk(path))?;
    let text = String::from_utf8_lossy(&text);
    let names: Vec<String> = text.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let mut different = names.clone();
    different.sort();
    different.dedup();
    if text.len() as u64 > MOST_NAMES_BYTES || names.len() != CLASSES || different.len() != CLASSES {
        return Err(SourceError::Names { path: path.to_owned() });
    }
    Ok(Some(names))
}

/// The records of a file, one after the other; the class is CIFAR's own number. Ends with the first error.
pub(super) struct Records<'a> {
    of: &'a CifarFile,
    file: Option<BufReader<File>>,
    taken: u64,
}

impl<'a> Records<'a> {
    /// Opens the file when the first record is read.
    pub fn of(of: &'a CifarFile) -> Self {
        Self { of, file: None, taken: 0 }
    }

    fn read(&mut self) -> Result<Offer, SourceError> {
        let path = &self.of.path;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufReader::new(File::open(path).map_err(SourceError::disk(path))?)),
        };
        let mut class = [0];
        let mut pixels = vec![0; RECORD_BYTES - 1];
        file.read_exact(&mut class).and_then(|()| file.read_exact(&mut pixels)).map_err(SourceError::disk(path))?;
        let [class] = class;
        if usize::from(class) >= CLASSES {
            return Err(SourceError::Class { path: path.clone(), record: self.taken, class });
        }
        Ok(Offer { path: path.clone(), class: class.into(), pixels: Some(pixels) })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Offer, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.taken == self.of.records {
            return None;
        }
        let read = self.read();
        self.taken = if read.is_ok() { self.taken + 1 } else { self.of.records };
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::source;

    /// A file of records with these classes, whose pixels depend on their index.
    fn records(classes: &[u8]) -> Vec<u8> {
        let record = |(place, class): (usize, &u8)| [&[*class], &[place as u8; RECORD_BYTES - 1][..]].concat();
        classes.iter().enumerate().flat_map(record).collect()
    }

    fn classes(sources: &[PathBuf], names: Option<&[String]>) -> Vec<u16> {
        let found = source::find(sources, names).unwrap();
        let classes: Vec<u16> = found.offers().map(|offer| offer.unwrap().class).collect();
        assert_eq!(classes.len() as u64, found.images());
        classes
    }

    #[test]
    fn a_folder_gives_what_is_trained_on_and_a_file_itself() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("test_batch.bin"), records(&[3])).unwrap();
        let error = source::find(&[folder.path().to_owned()], None).unwrap_err();
        assert!(matches!(error, SourceError::NoBatches { .. }), "{error}");
        fs::write(at("data_batch_2.bin"), records(&[9, 8])).unwrap();
        fs::write(at("data_batch_1.bin"), records(&[0, 1])).unwrap();
        assert_eq!(classes(&[folder.path().to_owned()], None), [0, 1, 9, 8]);
        assert_eq!(classes(&[at("test_batch.bin")], None), [3]);
        let found = source::find(&[folder.path().to_owned()], None).unwrap();
        assert_eq!(found.classes, NAMES);
        let offers: Vec<Offer> = found.offers().map(Result::unwrap).collect();
        assert_eq!(offers[1].pixels.as_deref(), Some(&[1; 3 * SIDE * SIDE][..]));
    }

    #[test]
    fn the_names_beside_the_files_count_and_may_be_numbered_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let batch = folder.path().join("test_batch.bin");
        fs::write(&batch, records(&[0, 9])).unwrap();
        fs::write(folder.path().join(NAMES_FILE), "j\ni\nh\ng\nf\ne\nd\nc\nb\na\n\n").unwrap();
        let found = source::find(std::slice::from_ref(&batch), None).unwrap();
        assert_eq!(found.classes.concat(), "jihgfedcba");
        let mut sorted = found.classes;
        sorted.sort();
        assert_eq!(classes(std::slice::from_ref(&batch), Some(&sorted)), [9, 0]);
        let error = source::find(std::slice::from_ref(&batch), Some(&sorted[1..])).unwrap_err();
        assert!(matches!(&error, SourceError::UnknownClass { name, .. } if name == "a"), "{error}");
        fs::write(folder.path().join(NAMES_FILE), "only\ntwo").unwrap();
        assert!(matches!(source::find(&[batch], None), Err(SourceError::Names { .. })));
    }

    #[test]
    fn a_file_of_another_size_is_refused_with_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let batch = folder.path().join("test_batch.bin");
        for bytes in [0, 1, RECORD_BYTES + 1] {
            fs::write(&batch, vec![0; bytes]).unwrap();
            let error = source::find(std::slice::from_ref(&batch), None).unwrap_err();
            assert!(matches!(error, SourceError::Size { found, .. } if found == bytes as u64), "{error}");
        }
    }

    #[test]
    fn a_record_of_no_class_is_named_and_ends_the_reading() {
        let folder = tempfile::tempdir().unwrap();
        let batch = folder.path().join("test_batch.bin");
        fs::write(&batch, records(&[9, 10, 1])).unwrap();
        let found = source::find(&[batch], None).unwrap();
        let offers: Vec<_> = found.offers().collect();
        assert_eq!(offers.len(), 2);
        assert!(matches!(offers[1], Err(SourceError::Class { record: 1, class: 10, .. })));
    }
}
