//! Blobs that may be larger than the memory: streamed to and from the disk.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::PathBuf;

use crate::names::{BlobHash, BlobRef};
use crate::store::blobs::{BlobError, BlobStore, INCOMING};
use crate::store::durable::DiskError;

/// Bytes written and hashed at once.
const BUFFER_BYTES: usize = 1 << 16;

impl BlobStore {
    /// Stores what `fill` writes, at most `bytes` bytes. It goes to the disk even if the blob is stored already.
    pub fn put_written(
        &self,
        bytes: u64,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<BlobRef, BlobError> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, self.incoming(bytes)?);
        let failed = DiskError::when("cannot write a blob in", &self.folder);
        match fill(&mut out).and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(error) => return Err(failed(error).into()),
        }
        // The buffer is empty.
        let (incoming, _) = out.into_parts();
        Ok(self.keep(incoming)?)
    }

    /// A folder for temporary files. It is emptied at each start.
    pub fn scratch(&self) -> PathBuf {
        self.folder.join(INCOMING)
    }

    /// A verified blob to read from its beginning; `None` if it is absent. A damaged blob is removed, so that it can be
    /// fetched again.
    pub fn verified(&self, blob: BlobRef) -> Result<Option<File>, BlobError> {
        let Some((mut file, bytes)) = self.open_file(blob.hash)? else { return Ok(None) };
        if bytes != blob.bytes {
            return Err(BlobError::TooLarge { hash: blob.hash, bytes, max_bytes: blob.bytes });
        }
        let mut hasher = blake3::Hasher::new();
        let read = hasher.update_reader(&mut file).map(|_| ()).and_then(|()| file.rewind());
        read.map_err(DiskError::when("cannot read a blob in", &self.folder))?;
        if BlobHash(*hasher.finalize().as_bytes()) != blob.hash {
            self.remove(blob.hash)?;
            return Err(BlobError::Rotten { hash: blob.hash });
        }
        Ok(Some(file))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_blob_that_is_written_piece_by_piece_is_the_same_blob() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let bytes: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let fill = |out: &mut dyn Write| bytes.chunks(7).try_for_each(|piece| out.write_all(piece));
        let blob = store.put_written(bytes.len() as u64, fill).unwrap();
        assert_eq!(blob, BlobRef::of(&bytes));
        assert_eq!(store.put_written(bytes.len() as u64, fill).unwrap(), blob, "again");
        assert_eq!(store.used_bytes(), blob.bytes);
        let mut found = Vec::new();
        store.verified(blob).unwrap().unwrap().read_to_end(&mut found).unwrap();
        assert!(found == bytes && store.verified(BlobRef::of(b"other")).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_written_whole_leaves_nothing_and_what_rots_is_not_handed_out() {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let fails = |out: &mut dyn Write| {
            out.write_all(&[1; 100])?;
            Err(io::Error::other("no more"))
        };
        let error = store.put_written(100, fails).unwrap_err();
        assert!(matches!(&error, BlobError::Disk(_)), "{error}");
        assert_eq!((store.list().unwrap(), store.used_bytes()), (vec![], 0));
        let blob = store.put(b"as it was").unwrap();
        let wrong = BlobRef { bytes: 3, ..blob };
        assert!(matches!(store.verified(wrong), Err(BlobError::TooLarge { .. })));
        let name = blob.hash.to_string();
        std::fs::write(folder.path().join(&name[..2]).join(&name), b"as it is.").unwrap();
        assert!(matches!(store.verified(blob), Err(BlobError::Rotten { .. })));
        assert!(store.verified(blob).unwrap().is_none());
    }
}
