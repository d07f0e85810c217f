//! Reads prepared files, images of one size with their classes, which `pathswarm prepare` writes.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::images::prepared::{
    CLASS_BYTES, HEAD_BYTES, MAGIC, NAME_BYTES, NAME_LENGTH_BYTES, PreparedError, VERSION, check_count, check_names,
    check_side, pixel_bytes, require,
};

/// A prepared file that is being read. Allocations are bounded by the size of the file.
#[derive(Debug)]
pub struct PreparedReader {
    path: PathBuf,
    file: BufReader<File>,
    /// Pixels along a side of an image.
    pub side: usize,
    /// Number of images.
    pub images: u64,
    classes: Vec<String>,
    /// Images read.
    taken: u64,
    /// Bytes read.
    read: u64,
}

impl PreparedReader {
    /// Opens a file, whose length must match its header.
    pub fn open(path: &Path) -> Result<Self, PreparedError> {
        let disk = || PreparedError::disk("read", path);
        let file = File::open(path).map_err(disk())?;
        let bytes = file.metadata().map_err(disk())?.len();
        let mut reader = Self {
            path: path.to_owned(),
            file: BufReader::with_capacity(1 << 16, file),
            side: 0,
            images: 0,
            classes: Vec::new(),
            taken: 0,
            read: 0,
        };
        if bytes < HEAD_BYTES as u64 {
            return Err(PreparedError::Kind { path: path.to_owned() });
        }
        let mut head = [0; HEAD_BYTES];
        reader.fill(&mut head)?;
        let [magic @ .., a, b, c, d, e, f, g, h, i, j, k, l, m, n] = head;
        let [version, side, classes] = [[a, b], [c, d], [m, n]].map(u16::from_le_bytes);
        if magic != MAGIC {
            return Err(PreparedError::Kind { path: path.to_owned() });
        }
        if version != VERSION {
            return Err(PreparedError::Version { path: path.to_owned(), found: version });
        }
        reader.side = side.into();
        reader.images = u64::from_le_bytes([e, f, g, h, i, j, k, l]);
        check_side(path, reader.side)?;
        check_count(path, classes.into())?;
        reader.read_names(classes.into(), bytes)?;
        check_names(path, &reader.classes)?;
        Ok(reader)
    }

    /// Reads the names of `classes` classes. The expected size of the file becomes exact on the way.
    fn read_names(&mut self, classes: usize, found: u64) -> Result<(), PreparedError> {
        let record = (pixel_bytes(self.side) + CLASS_BYTES) as u128;
        let shortest = (classes * (NAME_LENGTH_BYTES + NAME_BYTES.start())) as u128;
        let mut expected = HEAD_BYTES as u128 + shortest + record * u128::from(self.images);
        let holds = |path: &Path, expected, enough: bool| match enough {
            true => Ok(()),
            false => Err(PreparedError::Size { path: path.to_owned(), expected, found }),
        };
        holds(&self.path, expected, expected <= u128::from(found))?;
        for _ in 0..classes {
            let mut length = [0; NAME_LENGTH_BYTES];
            self.fill(&mut length)?;
            let length = usize::from(u16::from_le_bytes(length));
            let sane = NAME_BYTES.contains(&length);
            require(sane, &self.path, "length of a class's name", || length.to_string(), "from 1 to 255 bytes")?;
            expected += (length - NAME_BYTES.start()) as u128;
            holds(&self.path, expected, expected <= u128::from(found))?;
            let mut name = vec![0; length];
            self.fill(&mut name)?;
            let name = String::from_utf8(name);
            let shown = || name.as_ref().map_or_else(|error| format!("{:?}", error.as_bytes()), Clone::clone);
            require(name.is_ok(), &self.path, "name of a class", shown, "UTF-8")?;
            self.classes.extend(name);
        }
        holds(&self.path, expected, expected == u128::from(found))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), PreparedError> {
        self.file.read_exact(bytes).map_err(PreparedError::disk("read", &self.path))?;
        self.read += bytes.len() as u64;
        Ok(())
    }

    /// Reads the next image into `record`: its pixels, followed by its class. Returns false at the end.
    pub fn next(&mut self, record: &mut Vec<u8>) -> Result<bool, PreparedError> {
        record.clear();
        if self.taken == self.images {
            return Ok(false);
        }
        record.resize(pixel_bytes(self.side) + CLASS_BYTES, 0);
        self.fill(record)?;
        let class = class_of(record);
        if usize::from(class) >= self.classes.len() {
            let (path, image, classes) = (self.path.clone(), self.taken, self.classes.len());
            return Err(PreparedError::Class { path, image, class, classes });
        }
        self.taken += 1;
        Ok(true)
    }

    /// The names of the classes, in order of their numbers.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Bytes read of the file.
    pub fn read_bytes(&self) -> u64 {
        self.read
    }
}

/// The class at the end of a record.
fn class_of(record: &[u8]) -> u16 {
    record.last_chunk().map_or(0, |class| u16::from_le_bytes(*class))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: [&[u8]; 7] = [
        b"PSPI\x01\0\x01\0",
        &[2, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0],
        b"\x03\0cat\x04\0b\xc3\xa4r",
        &[],
        &[10, 20, 30, 1, 0],
        &[40, 50, 60, 0, 0],
    ];

    fn opened(bytes: &[u8]) -> Result<PreparedReader, PreparedError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        PreparedReader::open(file.path())
    }

    fn refused(at: usize, to: &[u8]) -> PreparedError {
        let mut bytes = BYTES.concat();
        bytes[at..at + to.len()].copy_from_slice(to);
        opened(&bytes).unwrap_err()
    }

    #[test]
    fn the_format_does_not_change_unnoticed() {
        let mut reader = opened(&BYTES.concat()).unwrap();
        assert_eq!((reader.side, reader.images), (1, 2));
        assert_eq!(reader.classes(), ["cat", "bär"]);
        assert_eq!(reader.read_bytes(), 29);
        let mut record = Vec::new();
        assert!(reader.next(&mut record).unwrap());
        assert_eq!(record, [10, 20, 30, 1, 0]);
        assert!(reader.next(&mut record).unwrap());
        assert_eq!(record, [40, 50, 60, 0, 0]);
        assert_eq!(reader.read_bytes(), BYTES.concat().len() as u64);
        assert!(!reader.next(&mut record).unwrap());
        assert!(record.is_empty());
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
        assert!(matches!(opened(b"PSPI").unwrap_err(), PreparedError::Kind { .. }));
        assert!(matches!(refused(0, b"PSTK"), PreparedError::Kind { .. }));
        assert!(matches!(refused(4, &[2]), PreparedError::Version { found: 2, .. }));
        for (at, to, field) in [
            (6, &[0, 0][..], "side of the images"),
            (6, &[1, 4], "side of the images"),
            (16, &[0, 0], "number of classes"),
            (18, &[0, 0], "length of a class's name"),
            (18, &[0, 1], "length of a class's name"),
            (20, &[0xff], "name of a class"),
            (20, b"\n", "name of a class"),
        ] {
            let error = refused(at, to).to_string();
            assert!(error.contains(field), "{error}");
        }
        let twice = b"PSPI\x01\0\x01\0\0\0\0\0\0\0\0\0\x02\0\x01\0a\x01\0a";
        assert!(opened(twice).unwrap_err().to_string().contains("no other class"));
        let missing = PreparedReader::open(Path::new("missing.images")).unwrap_err();
        assert!(matches!(missing, PreparedError::Disk { .. }) && missing.to_string().contains("missing.images"));
    }

    #[test]
    fn a_cut_file_is_refused_and_so_is_a_long_one() {
        let whole = BYTES.concat();
        for length in HEAD_BYTES..whole.len() {
            let error = opened(&whole[..length]).unwrap_err();
            assert!(matches!(error, PreparedError::Size { found, .. } if found == length as u64), "{error}");
        }
        let expected = whole.len() as u128;
        let error = opened(&[&whole[..], &[0]].concat()).unwrap_err();
        assert!(matches!(error, PreparedError::Size { expected: e, .. } if e == expected), "{error}");
        let huge = refused(8, &[0xff; 8]);
        assert!(matches!(huge, PreparedError::Size { expected, .. } if expected > u128::from(u64::MAX)), "{huge}");
    }

    #[test]
    fn an_image_of_no_class_is_named() {
        let mut bytes = BYTES.concat();
        let last = bytes.len() - 2;
        bytes[last] = 2;
        let mut reader = opened(&bytes).unwrap();
        let mut record = Vec::new();
        assert!(reader.next(&mut record).unwrap());
        let error = reader.next(&mut record).unwrap_err();
        assert!(matches!(error, PreparedError::Class { image: 1, class: 2, classes: 2, .. }), "{error}");
    }

    proptest! {
        #[test]
        fn changed_bytes_never_panic(at in any::<prop::sample::Index>(), to in any::<u8>(), cut in 0usize..4) {
            let mut bytes = BYTES.concat();
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(bytes.len() - cut);
            if let Ok(mut reader) = opened(&bytes) {
                let mut record = Vec::new();
                while let Ok(true) = reader.next(&mut record) {
                    prop_assert_eq!(record.len(), pixel_bytes(reader.side) + CLASS_BYTES);
                }
            }
        }
    }
}
