//! Prepares images: decodes those of all sources on all cores and writes one file.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::images::fitting::Fitted;
use crate::images::prepared::{PreparedError, pixel_bytes};
use crate::images::prepared_writer::PreparedWriter;
use crate::images::source::{Found, Offer, SourceError, find};

/// Limits of the images decoded at a time: their number, and the memory of the small images.
const CHUNK: usize = 256;
const CHUNK_BYTES: usize = 64 << 20;

/// Unreadable images that are named.
const FIRST_UNREADABLE: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Prepared(#[from] PreparedError),
    #[error("none of {offered} images can be read; the first failure is {}: {reason}", path.display())]
    NothingReadable { offered: u64, path: PathBuf, reason: String },
    #[error("class {name:?} has no readable image among {offered}; repair them or remove the class")]
    NothingOfClass { name: String, offered: u64 },
}

/// The outcome of preparation in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Images written.
    pub images: u64,
    /// The classes in order of their numbers, with the images written of each.
    pub classes: Vec<(String, u64)>,
    /// Unreadable images, which were left out.
    pub unreadable: u64,
    /// The first of these and their errors.
    pub first_unreadable: Vec<(PathBuf, String)>,
    /// Images that were not square and were cropped.
    pub cut: u64,
    /// Images that were smaller and were enlarged.
    pub enlarged: u64,
    /// Files in the folders of classes that are not JPEG or PNG by name, which were skipped.
    pub other_files: u64,
}

/// Writes the images of the sources to one file, each `side` pixels high and wide. Classes are numbered as in `names`,
/// if given. `told` receives the number of images done and their total. The same sources give the same file.
///
/// # Errors
/// On failure no file is left.
pub fn prepare(
    sources: &[PathBuf],
    side: usize,
    names: Option<&[String]>,
    out: &Path,
    told: &mut dyn FnMut(u64, u64),
) -> Result<Prepared, PrepareError> {
    let found = find(sources, names)?;
    let mut writer = PreparedWriter::begin(out, side, &found.classes)?;
    let mut tally = Tally::new(&found);
    let (mut done, total) = (0, found.images());
    let chunk = (CHUNK_BYTES / pixel_bytes(side)).clamp(1, CHUNK);
    let mut offers = found.offers();
    told(done, total);
    loop {
        let offered = offers.by_ref().take(chunk).collect::<Result<Vec<Offer>, _>>()?;
        if offered.is_empty() {
            break;
        }
        let fitted: Vec<_> = offered.par_iter().map(|offer| offer.fitted(side)).collect();
        done += offered.len() as u64;
        for (offer, fitted) in offered.into_iter().zip(fitted) {
            if let Some(fitted) = tally.count(&offer, fitted) {
                writer.push(&fitted.pixels, offer.class)?;
            }
        }
        told(done, total);
    }
    tally.check(names.is_some())?;
    writer.finish()?;
    Ok(tally.prepared)
}

/// Running counts.
struct Tally {
    prepared: Prepared,
    /// Images found, by class.
    offered: Vec<u64>,
}

impl Tally {
    fn new(found: &Found) -> Self {
        let classes: Vec<_> = found.classes.iter().map(|name| (name.clone(), 0)).collect();
        let offered = vec![0; classes.len()];
        Self { prepared: Prepared { classes, other_files: found.other_files, ..Prepared::default() }, offered }
    }

    /// Counts an image, and returns it if it is to be written.
    fn count(&mut self, offer: &Offer, fitted: Result<Fitted, String>) -> Option<Fitted> {
        let (prepared, class) = (&mut self.prepared, usize::from(offer.class));
        self.offered[class] += 1;
        match fitted {
            Ok(fitted) => {
                prepared.images += 1;
                prepared.classes[class].1 += 1;
                prepared.cut += u64::from(fitted.cut);
                prepared.enlarged += u64::from(fitted.enlarged);
                Some(fitted)
            }
            Err(reason) => {
                prepared.unreadable += 1;
                if prepared.first_unreadable.len() < FIRST_UNREADABLE {
                    prepared.first_unreadable.push((offer.path.clone(), reason));
                }
                None
            }
        }
    }

    /// Every class must have an image, except classes that only `names` lists.
    fn check(&self, listed: bool) -> Result<(), PrepareError> {
        let prepared = &self.prepared;
        if let (0, Some((path, reason))) = (prepared.images, prepared.first_unreadable.first()) {
            let (path, reason) = (path.clone(), reason.clone());
            return Err(PrepareError::NothingReadable { offered: prepared.unreadable, path, reason });
        }
        let empty = |((_, written), offered): &(&(String, u64), &u64)| *written == 0 && (!listed || **offered > 0);
        match prepared.classes.iter().zip(&self.offered).find(empty) {
            Some(((name, _), offered)) => Err(PrepareError::NothingOfClass { name: name.clone(), offered: *offered }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use image::{Rgb, RgbImage};

    use super::*;
    use crate::images::PreparedReader;

    /// A folder of classes, with images of one shade and of the given sizes.
    fn world(images: &[(&str, u8, (u32, u32))]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, shade, (width, height)) in images {
            let path = folder.path().join("in").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            RgbImage::from_pixel(*width, *height, Rgb([*shade; 3])).save(path).unwrap();
        }
        folder
    }

    fn prepared(folder: &tempfile::TempDir, names: Option<&[String]>) -> Result<Prepared, PrepareError> {
        let out = folder.path().join("out.images");
        let prepared = prepare(&[folder.path().join("in")], 4, names, &out, &mut |_, _| {});
        assert_eq!(out.exists(), prepared.is_ok());
        prepared
    }

    /// The first byte and the class of each image.
    fn shades(folder: &tempfile::TempDir) -> Vec<(u8, u8)> {
        let mut reader = PreparedReader::open(&folder.path().join("out.images")).unwrap();
        let (mut shades, mut record) = (Vec::new(), Vec::new());
        while reader.next(&mut record).unwrap() {
            assert_eq!(record.len(), 3 * 16 + 2);
            shades.push((record[0], record[48]));
        }
        shades
    }

    #[test]
    fn images_are_written_in_order_and_counted() {
        let images = [
            ("dog/1.png", 10, (4, 4)),
            ("cat/2.png", 20, (8, 4)),
            ("cat/1.png", 30, (2, 2)),
            ("dog/2.png", 40, (3, 9)),
        ];
        let folder = world(&images);
        std::fs::write(folder.path().join("in/cat/3.png"), "no image").unwrap();
        std::fs::write(folder.path().join("in/cat/4.jpg"), "none either").unwrap();
        std::fs::write(folder.path().join("in/cat/5.webp"), "unknown").unwrap();
        let made = prepared(&folder, None).unwrap();
        assert_eq!((made.images, made.unreadable, made.cut, made.enlarged, made.other_files), (4, 2, 2, 2, 1));
        assert_eq!(made.classes, [("cat".to_owned(), 2), ("dog".to_owned(), 2)]);
        assert_eq!(made.first_unreadable.len(), 2);
        let (path, reason) = &made.first_unreadable[0];
        assert!(path.ends_with("cat/3.png") && !reason.is_empty(), "{reason}");
        assert_eq!(shades(&folder), [(30, 0), (20, 0), (10, 1), (40, 1)]);
    }

    #[test]
    fn the_same_sources_give_the_same_file_and_progress_reaches_its_end() {
        let names: Vec<String> = (0..300).map(|number| format!("c{}/{number:03}.png", number % 3)).collect();
        let images: Vec<_> = names.iter().enumerate().map(|(i, name)| (name.as_str(), i as u8, (5, 5))).collect();
        let folder = world(&images);
        let out = folder.path().join("out.images");
        let mut files = Vec::new();
        for _ in 0..2 {
            let mut told = Vec::new();
            let mut hear = |done, total| told.push((done, total));
            prepare(&[folder.path().join("in")], 3, None, &out, &mut hear).unwrap();
            assert_eq!(told, [(0, 300), (256, 300), (300, 300)]);
            files.push(std::fs::read(&out).unwrap());
        }
        assert_eq!(files[0], files[1]);
    }

    #[test]
    fn a_class_of_which_nothing_is_left_is_named() {
        let folder = world(&[("cat/1.png", 1, (4, 4)), ("dog/1.png", 1, (4, 4))]);
        std::fs::write(folder.path().join("in/dog/1.png"), "broken").unwrap();
        let error = prepared(&folder, None).unwrap_err();
        assert!(matches!(&error, PrepareError::NothingOfClass { name, offered: 1 } if name == "dog"), "{error}");
        let names = ["dog", "cat"].map(str::to_owned);
        assert!(matches!(prepared(&folder, Some(&names)), Err(PrepareError::NothingOfClass { .. })));
        std::fs::write(folder.path().join("in/cat/1.png"), "broken").unwrap();
        let error = prepared(&folder, None).unwrap_err();
        assert!(matches!(&error, PrepareError::NothingReadable { offered: 2, .. }), "{error}");
    }

    #[test]
    fn a_class_that_only_the_list_has_may_be_missing() {
        let folder = world(&[("cat/1.png", 9, (4, 4))]);
        let names = ["ant", "bee", "cat"].map(str::to_owned);
        let made = prepared(&folder, Some(&names)).unwrap();
        assert_eq!(made.classes.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!(shades(&folder), [(9, 2)]);
    }

    #[test]
    fn a_side_that_no_file_can_have_is_refused() {
        let folder = world(&[("cat/1.png", 9, (4, 4))]);
        for side in [0, 1025] {
            let out = folder.path().join("out.images");
            let error = prepare(&[folder.path().join("in")], side, None, &out, &mut |_, _| {}).unwrap_err();
            assert!(error.to_string().contains("from 1 to 1024"), "{error}");
        }
    }
}
