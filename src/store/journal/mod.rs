//! The journal: an append-only file of checked records, synced before they are acted on.
//!
//! The file is a header followed by one frame for each append (`frames`). Each append is synced before the next begins.
//! So a crash can damage only the last frame, which was never acknowledged; it is truncated when the file is opened. A
//! damaged frame before a valid one means that the disk has lost acknowledged records, and opening fails.

pub(super) mod frames;

use std::fs;
use std::path::{Path, PathBuf};

use super::durable::{
    DiskError, Medium, OpenMedium, open_file, put_in_place, remove_if_there, temporary_for, write_beside,
};
use crate::store::journal::frames::{
    FORMAT_VERSION, HEADER_BYTES, MAX_FRAME_BYTES, Salt, header, push_frame, read_frames, read_header,
};

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{} is not a journal, or its header is damaged; to start without its records, move it away", .0.display())]
    NotAJournal(PathBuf),
    #[error("{} was written by another version of pathswarm (format {version}; this program reads {FORMAT_VERSION}); start \
        this folder with that version", path.display())]
    Version { path: PathBuf, version: u16 },
    #[error("{} is damaged at byte {offset}, before intact records: the disk has lost synced data; check the disk; to \
        start without the records, move this file away", path.display())]
    Damaged { path: PathBuf, offset: usize },
    #[error("{} ends at byte {found}, but {synced} bytes had reached the disk: the end of the file is lost; restore it; \
        to go on with the records that it has, remove {}", path.display(), path.with_file_name("index").display())]
    Shortened { path: PathBuf, found: u64, synced: u64 },
    #[error("{0} bytes in one append to the journal; at most {MAX_FRAME_BYTES} fit")]
    TooLarge(usize),
    #[error("an earlier write to {} failed and its end is uncertain; a rewrite or a restart repairs it", .0.display())]
    Broken(PathBuf),
}

impl JournalError {
    /// Whether the same append may succeed later: see [`DiskError::is_transient`]. After a failed write, the journal
    /// must be rewritten first.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Disk(error) => error.is_transient(),
            Self::Broken(_) => true,
            Self::NotAJournal(_)
            | Self::Version { .. }
            | Self::Damaged { .. }
            | Self::Shortened { .. }
            | Self::TooLarge(_) => false,
        }
    }
}

/// What is known to have reached the disk: so many bytes of the file with this salt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Synced {
    pub(crate) salt: Salt,
    pub(crate) bytes: u64,
}

pub struct Journal {
    path: PathBuf,
    medium: Box<dyn Medium>,
    open: OpenMedium,
    salt: Salt,
    bytes: u64,
    cut_off_bytes: u64,
    broken: bool,
}

impl Journal {
    /// Opens a journal, or creates an empty one. Returns its records in the order of their appends. A torn last append
    /// is truncated; [`Journal::cut_off_bytes`] tells how much.
    pub fn open(path: &Path) -> Result<(Self, Vec<Vec<u8>>), JournalError> {
        Self::open_on(path, open_file, None)
    }

    /// The same, and the file must not be shorter than what had reached the disk. It may have been moved away.
    pub fn open_synced(path: &Path, synced: Option<Synced>) -> Result<(Self, Vec<Vec<u8>>), JournalError> {
        if synced.is_some() && !path.exists() {
            tracing::warn!("{} is not there: this peer begins without its records", path.display());
        }
        Self::open_on(path, open_file, synced)
    }

    fn open_on(path: &Path, open: OpenMedium, synced: Option<Synced>) -> Result<(Self, Vec<Vec<u8>>), JournalError> {
        remove_if_there(&temporary_for(path))?;
        let contents = match fs::read(path) {
            Ok(contents) => {
                is_as_long_as(synced.filter(|_| contents.len() < HEADER_BYTES), path, contents.len())?;
                contents
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(DiskError::when("cannot read", path)(error).into()),
        };
        if contents.len() < HEADER_BYTES {
            // The header is written in one piece, so a shorter file has no acknowledged record.
            let mut journal = Self::create(path, open)?;
            journal.cut_off_bytes = contents.len() as u64;
            return Ok((journal, Vec::new()));
        }
        let salt = read_header(path, &contents)?;
        let (records, end) = read_frames(path, salt, &contents)?;
        // Another file in its place has another salt.
        is_as_long_as(synced.filter(|synced| synced.salt == salt), path, end)?;
        let mut medium = open(path).map_err(DiskError::when("cannot open", path))?;
        let cut_off_bytes = (contents.len() - end) as u64;
        if cut_off_bytes > 0 {
            let cut = medium.cut(end as u64).and_then(|()| medium.sync());
            cut.map_err(DiskError::when("cannot truncate the torn end", path))?;
        }
        let path = path.to_owned();
        Ok((Self { path, medium, open, salt, bytes: end as u64, cut_off_bytes, broken: false }, records))
    }

    /// The records of a journal that stays unchanged, with its torn end, if any.
    pub fn read(path: &Path) -> Result<Vec<Vec<u8>>, JournalError> {
        let contents = fs::read(path).map_err(DiskError::when("cannot read", path))?;
        Self::decode(path, &contents)
    }

    /// The same from bytes. Errors name the path.
    pub fn decode(path: &Path, contents: &[u8]) -> Result<Vec<Vec<u8>>, JournalError> {
        if contents.len() < HEADER_BYTES {
            return Ok(Vec::new());
        }
        let salt = read_header(path, contents)?;
        Ok(read_frames(path, salt, contents)?.0)
    }

    fn create(path: &Path, open: OpenMedium) -> Result<Self, JournalError> {
        let salt = Salt::new();
        let medium = write_beside(path, &header(salt), open)?;
        put_in_place(path)?;
        let path = path.to_owned();
        Ok(Self { path, medium, open, salt, bytes: HEADER_BYTES as u64, cut_off_bytes: 0, broken: false })
    }

    /// Size of the file, so that the caller knows when to [`Journal::rewrite`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What has reached the disk.
    pub fn synced(&self) -> Synced {
        Synced { salt: self.salt, bytes: self.bytes }
    }

    /// Bytes of a torn append that were truncated when the journal was opened.
    pub fn cut_off_bytes(&self) -> u64 {
        self.cut_off_bytes
    }

    /// Appends a record. It is on the disk when this returns.
    pub fn append(&mut self, record: &[u8]) -> Result<(), JournalError> {
        self.append_all(&[record])
    }

    /// Appends records, after a crash all or none. They are on the disk when this returns.
    pub fn append_all<R: AsRef<[u8]>>(&mut self, records: &[R]) -> Result<(), JournalError> {
        if self.broken {
            return Err(JournalError::Broken(self.path.clone()));
        }
        let mut frame = Vec::new();
        push_frame(&mut frame, self.bytes, self.salt, records)?;
        if let Err(error) = self.medium.write_all(&frame) {
            self.broken = self.medium.cut(self.bytes).is_err();
            return Err(DiskError::when("cannot write", &self.path)(error).into());
        }
        if let Err(error) = self.medium.sync() {
            // After a failed sync, only reading the file again tells what the disk holds.
            self.broken = true;
            return Err(DiskError::when("cannot sync", &self.path)(error).into());
        }
        self.bytes += frame.len() as u64;
        Ok(())
    }

    /// Replaces all records atomically, to drop obsolete ones, or to repair a journal after a failed write.
    ///
    /// # Errors
    /// If a record is too large, or the disk is full or fails. After a crash, the file has either the old records or
    /// the new ones.
    pub fn rewrite(&mut self, records: &[Vec<u8>]) -> Result<(), JournalError> {
        let salt = Salt::new();
        let mut contents = header(salt).to_vec();
        for record in records {
            let place = contents.len() as u64;
            push_frame(&mut contents, place, salt, &[record])?;
        }
        let medium = write_beside(&self.path, &contents, self.open)?;
        // If this fails, the open file may no longer be the one with the name.
        put_in_place(&self.path).inspect_err(|_| self.broken = true)?;
        self.medium = medium;
        self.salt = salt;
        self.bytes = contents.len() as u64;
        self.broken = false;
        Ok(())
    }
}

/// Refuses a file that ends here, if more of it had reached the disk.
fn is_as_long_as(synced: Option<Synced>, path: &Path, end: usize) -> Result<(), JournalError> {
    match (synced, end as u64) {
        (Some(Synced { bytes, .. }), found) if found < bytes => {
            Err(JournalError::Shortened { path: path.to_owned(), found, synced: bytes })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::durable::failing;
    use crate::store::journal::frames::{FRAME_HEADER_BYTES, LENGTH_BYTES};

    fn sample() -> Vec<Vec<u8>> {
        vec![b"term 3".to_vec(), Vec::new(), vec![0; 40], b"a head of sixteen".to_vec(), vec![255; 16], vec![9; 12]]
    }

    fn written(path: &Path, records: &[Vec<u8>]) -> Vec<u8> {
        let (mut journal, old) = Journal::open(path).unwrap();
        assert!(old.is_empty());
        records.iter().for_each(|record| journal.append(record).unwrap());
        assert_eq!(journal.bytes(), fs::metadata(path).unwrap().len());
        fs::read(path).unwrap()
    }

    #[test]
    fn records_come_back_in_order_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        written(&path, &sample());
        let (mut journal, records) = Journal::open(&path).unwrap();
        assert_eq!((records, journal.cut_off_bytes()), (sample(), 0));
        journal.append_all(&[b"more", b"last"]).unwrap();
        let (_, records) = Journal::open(&path).unwrap();
        assert_eq!(records[6..], [b"more".to_vec(), b"last".to_vec()]);
    }

    #[test]
    fn a_torn_tail_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let contents = written(&path, &sample());
        let mut most = 0;
        for length in 0..=contents.len() {
            fs::write(&path, &contents[..length]).unwrap();
            let (mut journal, records) = Journal::open(&path).unwrap();
            assert_eq!(records, sample()[..records.len()]);
            assert!(records.len() >= most, "a longer file holds no fewer records");
            most = records.len();
            journal.append(b"next").unwrap();
            let (journal, again) = Journal::open(&path).unwrap();
            assert_eq!((again.len(), journal.cut_off_bytes()), (most + 1, 0));
            assert_eq!(again[most], b"next");
        }
        assert_eq!(most, sample().len());
    }

    #[test]
    fn a_tail_of_zeros_or_of_rubbish_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let contents = written(&path, &sample());
        for tail in [vec![0; 4096], vec![0xab; 77], [vec![0; 512], vec![3; 512]].concat()] {
            fs::write(&path, [&contents[..], &tail].concat()).unwrap();
            let (journal, records) = Journal::open(&path).unwrap();
            assert_eq!((records, journal.cut_off_bytes()), (sample(), tail.len() as u64));
        }
    }

    #[test]
    fn a_batch_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append_all(&sample()).unwrap();
        let contents = fs::read(&path).unwrap();
        for length in 0..contents.len() {
            fs::write(&path, &contents[..length]).unwrap();
            assert!(Journal::open(&path).unwrap().1.is_empty());
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let contents = written(&path, &sample());
        let last = contents.len() - FRAME_HEADER_BYTES - 16;
        for bit in 0..contents.len() * 8 {
            let mut flipped = contents.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &flipped).unwrap();
            match Journal::open(&path) {
                // The last frame could as well be torn: only it is truncated.
                Ok((journal, records)) => {
                    assert!(bit / 8 >= last, "bit {bit} went unnoticed");
                    assert_eq!(records, sample()[..5]);
                    assert_eq!(journal.cut_off_bytes(), 32);
                }
                Err(error) => {
                    assert!(bit / 8 < last, "bit {bit}: {error}");
                    assert_eq!(fs::read(&path).unwrap(), flipped, "a damaged journal is left as it is");
                }
            }
        }
    }

    #[test]
    fn what_a_peer_sent_cannot_pass_for_a_frame() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("journal"), folder.path().join("other"));
        // A frame that would be valid at its offset, if this file had the salt of the other.
        let foreign = written(&other, &[b"forged".to_vec()])[HEADER_BYTES..].to_vec();
        let contents = written(&path, &[foreign]);
        fs::write(&path, &contents[..contents.len() - 1]).unwrap();
        let (_, records) = Journal::open(&path).unwrap();
        assert!(records.is_empty());
    }

    #[test]
    fn a_rewrite_keeps_only_what_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        written(&path, &sample());
        let (mut journal, _) = Journal::open(&path).unwrap();
        let kept = vec![b"kept".to_vec(), b"too".to_vec()];
        journal.rewrite(&kept).unwrap();
        journal.append(b"after").unwrap();
        assert_eq!(journal.bytes(), fs::metadata(&path).unwrap().len());
        // A crash during another rewrite leaves a file that is ignored.
        fs::write(temporary_for(&path), b"half a journal").unwrap();
        let (_, records) = Journal::open(&path).unwrap();
        assert_eq!(records, [&kept[..], &[b"after".to_vec()]].concat());
        assert!(!temporary_for(&path).exists());
    }

    #[test]
    fn a_full_disk_loses_nothing_that_was_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open_on(&path, failing::full_disk, None).unwrap();
        journal.append(&[1; 80]).unwrap();
        let error = journal.append(&[2; 80]).unwrap_err().to_string();
        assert!(error.contains("journal") && error.contains("free some space"), "{error}");
        let error = journal.rewrite(&[vec![3; failing::CAPACITY_BYTES]]).unwrap_err().to_string();
        assert!(error.contains("free some space"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // The partial write was truncated, so that appends can continue.
        assert_eq!(journal.bytes(), fs::metadata(&path).unwrap().len());
        let (mut journal, records) = Journal::open(&path).unwrap();
        assert_eq!((records, journal.cut_off_bytes()), (vec![vec![1; 80]], 0));
        journal.append(b"there is room again").unwrap();
    }

    #[test]
    fn after_a_failed_sync_nothing_more_is_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        written(&path, &[b"kept".to_vec()]);
        let (mut journal, _) = Journal::open_on(&path, failing::never_synced, None).unwrap();
        assert!(matches!(journal.append(b"lost"), Err(JournalError::Disk(_))));
        assert!(matches!(journal.append(b"more"), Err(JournalError::Broken(_))));
        assert!(matches!(journal.rewrite(&[]), Err(JournalError::Disk(_))));
        assert!(matches!(journal.append(b"more"), Err(JournalError::Broken(_))));
        // A new file, once the disk accepts syncs.
        journal.open = open_file;
        journal.rewrite(&[b"kept".to_vec(), b"said anew".to_vec()]).unwrap();
        journal.append(b"after").unwrap();
        assert_eq!(Journal::open(&path).unwrap().1, [&b"kept"[..], b"said anew", b"after"]);
    }

    #[test]
    fn other_files_are_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        fs::write(&path, [7; 100]).unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::NotAJournal(_))));
        assert_eq!(fs::read(&path).unwrap(), [7; 100]);
        let mut newer = header(Salt::new());
        newer[4] = 2;
        let checksum = blake3::hash(&newer[..16]);
        newer[16..].copy_from_slice(&checksum.as_bytes()[..16]);
        fs::write(&path, newer).unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::Version { version: 2, .. })));
    }

    #[test]
    fn what_is_too_large_is_refused_before_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        let error = journal.append(&vec![0; MAX_FRAME_BYTES]);
        assert!(matches!(error, Err(JournalError::TooLarge(_))));
        journal.append(&vec![0; MAX_FRAME_BYTES - LENGTH_BYTES]).unwrap();
    }
}
