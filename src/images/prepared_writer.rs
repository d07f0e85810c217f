//! Writes prepared files atomically.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::images::prepared::{
    COUNT_AT, HEAD_BYTES, MAGIC, PreparedError, VERSION, check_names, check_side, pixel_bytes,
};

/// A prepared file that is being written. It has a temporary name until [`PreparedWriter::finish`], and is removed
/// without it.
#[derive(Debug)]
pub struct PreparedWriter {
    out: PathBuf,
    folder: PathBuf,
    file: BufWriter<NamedTempFile>,
    side: usize,
    classes: usize,
    images: u64,
}

impl PreparedWriter {
    /// Begins a file for images of this side with these classes. An existing file stays until the new one is finished.
    pub fn begin(out: &Path, side: usize, classes: &[String]) -> Result<Self, PreparedError> {
        check_side(out, side)?;
        check_names(out, classes)?;
        let folder = match out.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        fs::create_dir_all(&folder).map_err(PreparedError::disk("make", &folder))?;
        let name = out.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let file = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".unfinished")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(&folder);
        let file = file.map_err(PreparedError::disk("write", out))?;
        let file = BufWriter::with_capacity(1 << 16, file);
        let mut writer = Self { out: out.to_owned(), folder, file, side, classes: classes.len(), images: 0 };
        writer.write_header(classes).map_err(PreparedError::disk("write", out))?;
        Ok(writer)
    }

    /// `PSPI`, version u16, side u16, images u64 (0 for now), classes u16; for each class the length of its name, u16,
    /// and the name.
    fn write_header(&mut self, classes: &[String]) -> io::Result<()> {
        let mut header = Vec::with_capacity(HEAD_BYTES);
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend((self.side as u16).to_le_bytes());
        header.extend(0u64.to_le_bytes());
        header.extend((classes.len() as u16).to_le_bytes());
        for name in classes {
            header.extend((name.len() as u16).to_le_bytes());
            header.extend(name.as_bytes());
        }
        self.file.write_all(&header)
    }

    /// Adds an image, planar.
    pub fn push(&mut self, pixels: &[u8], class: u16) -> Result<(), PreparedError> {
        let (path, image, classes) = (|| self.out.clone(), self.images, self.classes);
        let (expected, found) = (pixel_bytes(self.side), pixels.len());
        if found != expected {
            return Err(PreparedError::Pixels { path: path(), image, expected, found });
        }
        if usize::from(class) >= classes {
            return Err(PreparedError::Class { path: path(), image, class, classes });
        }
        let written = self.file.write_all(pixels).and_then(|()| self.file.write_all(&class.to_le_bytes()));
        written.map_err(PreparedError::disk("write", &self.out))?;
        self.images += 1;
        Ok(())
    }

    /// Moves the file to its name, and returns the number of its images. It then survives a loss of power.
    ///
    /// # Errors
    /// If the disk fails. The earlier file is then still there.
    pub fn finish(self) -> Result<u64, PreparedError> {
        let Self { out, folder, file, images, .. } = self;
        put_in_place(file, images, &folder, &out).map_err(PreparedError::disk("write", &out))?;
        Ok(images)
    }
}

fn put_in_place(mut file: BufWriter<NamedTempFile>, images: u64, folder: &Path, out: &Path) -> io::Result<()> {
    file.seek(SeekFrom::Start(COUNT_AT))?;
    file.write_all(&images.to_le_bytes())?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    file.persist(out).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::PreparedReader;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/a.images");
        let mut writer = PreparedWriter::begin(&out, 2, &names(&["cat", "dog"])).unwrap();
        let images: Vec<Vec<u8>> = (0..5).map(|image| (image..image + 12).collect()).collect();
        for (index, pixels) in images.iter().enumerate() {
            writer.push(pixels, index as u16 % 2).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), 5);
        let mut reader = PreparedReader::open(&out).unwrap();
        assert_eq!((reader.images, reader.side), (5, 2));
        assert_eq!(reader.classes(), ["cat", "dog"]);
        let mut record = Vec::new();
        for (index, pixels) in images.iter().enumerate() {
            assert!(reader.next(&mut record).unwrap());
            assert_eq!(record, [&pixels[..], &[index as u8 % 2, 0]].concat());
        }
        assert!(!reader.next(&mut record).unwrap());
        assert_eq!(reader.read_bytes(), fs::metadata(&out).unwrap().len());
    }

    #[test]
    fn nothing_half_written_is_left_and_what_was_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a.images");
        fs::write(&out, "what was there").unwrap();
        let mut writer = PreparedWriter::begin(&out, 1, &names(&["cat"])).unwrap();
        writer.push(&[1, 2, 3], 0).unwrap();
        assert_eq!(fs::read(&out).unwrap(), b"what was there");
        drop(writer);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::read(&out).unwrap(), b"what was there");
        PreparedWriter::begin(&out, 1, &names(&["cat"])).unwrap().finish().unwrap();
        assert!(PreparedReader::open(&out).unwrap().images == 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_no_file_can_have_is_refused_before_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a.images");
        for (side, classes) in [(0, &["a"][..]), (1025, &["a"]), (1, &[]), (1, &[""]), (1, &["a", "a"])] {
            let error = PreparedWriter::begin(&out, side, &names(classes)).unwrap_err();
            assert!(matches!(error, PreparedError::Header { .. }), "{error}");
        }
        let long = vec!["n".repeat(256)];
        assert!(PreparedWriter::begin(&out, 1, &long).is_err());
        let mut writer = PreparedWriter::begin(&out, 1, &names(&["a"])).unwrap();
        assert!(matches!(writer.push(&[0; 4], 0), Err(PreparedError::Pixels { expected: 3, found: 4, .. })));
        assert!(matches!(writer.push(&[0; 3], 1), Err(PreparedError::Class { class: 1, classes: 1, .. })));
        drop(writer);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
