//! Token ids in memory or in a memory-mapped file, so that a text may be larger than the memory.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// Bytes of an id in a file, little endian.
const ID_BYTES: usize = 4;

#[derive(Debug)]
pub(super) enum Ids {
    Own(Vec<u32>),
    Mapped(Mmap),
}

impl Default for Ids {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Deref for Ids {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Self::Own(ids) => ids,
            Self::Mapped(bytes) => {
                // SAFETY: any four bytes are an id. A mapping begins at a page, so ids are aligned. Otherwise, the
                // parts before and behind would not be empty, and they are not used.
                let (_, ids, _) = unsafe { bytes.align_to::<u32>() };
                ids
            }
        }
    }
}

/// Appends ids.
#[derive(Debug)]
pub enum IdsWriter {
    Own(Vec<u32>),
    File {
        file: BufWriter<File>,
        /// Number of ids.
        count: usize,
    },
}

impl IdsWriter {
    pub fn in_memory() -> Self {
        Self::Own(Vec::new())
    }

    /// Into a file without a name in this folder, which disappears with its last reader.
    pub fn unnamed(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self::File { file: BufWriter::new(tempfile::tempfile_in(folder)?), count: 0 })
    }

    /// Into a file after its first `count` ids; later ones are dropped.
    pub fn behind(path: &Path, count: usize) -> io::Result<Self> {
        let mut file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        let bytes = (count * ID_BYTES) as u64;
        if file.metadata()?.len() < bytes {
            return Err(io::Error::other(format!("{} was truncated while it was in use", path.display())));
        }
        file.set_len(bytes)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self::File { file: BufWriter::new(file), count })
    }

    pub fn count(&self) -> usize {
        match self {
            Self::Own(ids) => ids.len(),
            Self::File { count, .. } => *count,
        }
    }

    pub fn push(&mut self, more: &[u32]) -> io::Result<()> {
        match self {
            Self::Own(ids) => ids.extend_from_slice(more),
            Self::File { file, count } => {
                more.iter().try_for_each(|id| file.write_all(&id.to_le_bytes()))?;
                *count += more.len();
            }
        }
        Ok(())
    }

    /// Waits until all ids are on the disk, if they go to a file.
    pub fn sync(&mut self) -> io::Result<()> {
        match self {
            Self::Own(_) => Ok(()),
            Self::File { file, .. } => {
                file.flush()?;
                file.get_ref().sync_data()
            }
        }
    }

    /// All ids, to be read.
    pub(super) fn finish(self) -> io::Result<Ids> {
        match self {
            Self::Own(ids) => Ok(Ids::Own(ids)),
            // An empty file cannot be mapped.
            Self::File { count: 0, .. } => Ok(Ids::default()),
            Self::File { file, .. } => {
                let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                // SAFETY: the file is in this process' own locked folder, or has no name, so no other process writes to
                // it.
                let bytes = unsafe { Mmap::map(&file)? };
                if cfg!(target_endian = "little") { Ok(Ids::Mapped(bytes)) } else { Ok(Ids::Own(turned(&bytes))) }
            }
        }
    }
}

/// The ids of little endian bytes, on a big endian machine.
fn turned(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<ID_BYTES>().0.iter().map(|id| u32::from_le_bytes(*id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_a_file_are_those_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let parts: [&[u32]; 3] = [&[1, 2, 70_000], &[], &[u32::MAX]];
        for mut writer in [IdsWriter::in_memory(), IdsWriter::unnamed(folder.path()).unwrap()] {
            parts.iter().for_each(|part| writer.push(part).unwrap());
            assert_eq!(writer.count(), 4);
            assert_eq!(&*writer.finish().unwrap(), parts.concat());
        }
        assert!(IdsWriter::unnamed(folder.path()).unwrap().finish().unwrap().is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        assert_eq!(turned(&[1, 0, 0, 0, 0, 1, 0, 0]), [1, 256]);
    }

    #[test]
    fn what_was_written_but_not_counted_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids");
        let mut first = IdsWriter::behind(&path, 0).unwrap();
        first.push(&[1, 2, 3, 4, 5]).unwrap();
        first.sync().unwrap();
        drop(first);
        let mut second = IdsWriter::behind(&path, 3).unwrap();
        second.push(&[9]).unwrap();
        assert_eq!(&*second.finish().unwrap(), [1, 2, 3, 9]);
        assert!(IdsWriter::behind(&path, 5).unwrap_err().to_string().contains("was truncated"));
    }
}
