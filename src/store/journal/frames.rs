//! The bytes of a journal: a header, then one frame for each append.
//!
//! Frames begin at multiples of 16 bytes, so that no frame's header crosses two sectors of a disk. The checksum of a
//! frame covers its offset and a random number of the file, so that bytes from a peer inside a record can never pass
//! for a frame.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use crate::store::journal::JournalError;

/// The longest frame: the records of one append, with four bytes for each.
pub(crate) const MAX_FRAME_BYTES: usize = 16 << 20;

/// Changes with the frames of the journal.
pub const FORMAT_VERSION: u16 = 1;
pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const FRAME_HEADER_BYTES: usize = 16;
pub(crate) const LENGTH_BYTES: usize = 4;
const MAGIC: [u8; 4] = *b"pswj";
const ALIGNMENT: usize = 16;

/// Random for each file, so that the senders of records cannot guess it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Salt(pub(crate) [u8; 8]);

impl Salt {
    pub fn new() -> Self {
        Self(RandomState::new().hash_one(MAGIC).to_le_bytes())
    }

    /// Over a frame's length and padded body at this offset.
    fn checksum(self, place: u64, length: u32, body: &[u8]) -> [u8; FRAME_HEADER_BYTES - LENGTH_BYTES] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(&place.to_le_bytes()).update(&length.to_le_bytes()).update(body);
        let mut checksum = [0; FRAME_HEADER_BYTES - LENGTH_BYTES];
        hasher.finalize_xof().fill(&mut checksum);
        checksum
    }
}

pub(crate) fn header(salt: Salt) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[8..16].copy_from_slice(&salt.0);
    let checksum = blake3::hash(&header[..16]);
    header[16..].copy_from_slice(&checksum.as_bytes()[..16]);
    header
}

pub(crate) fn read_header(path: &Path, contents: &[u8]) -> Result<Salt, JournalError> {
    let wrong = || JournalError::NotAJournal(path.to_owned());
    let found: &[u8; HEADER_BYTES] = contents.first_chunk().ok_or_else(wrong)?;
    if found[..4] != MAGIC || found[6..8] != [0; 2] || found[16..] != blake3::hash(&found[..16]).as_bytes()[..16] {
        return Err(wrong());
    }
    let version = u16::from_le_bytes([found[4], found[5]]);
    if version != FORMAT_VERSION {
        return Err(JournalError::Version { path: path.to_owned(), version });
    }
    let mut salt = [0; 8];
    salt.copy_from_slice(&found[8..16]);
    Ok(Salt(salt))
}

/// Appends a frame to `out`, for the offset `place` in the file.
pub(crate) fn push_frame<R: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    place: u64,
    salt: Salt,
    records: &[R],
) -> Result<(), JournalError> {
    let length: usize = records.iter().map(|record| LENGTH_BYTES + record.as_ref().len()).sum();
    if length > MAX_FRAME_BYTES {
        return Err(JournalError::TooLarge(length));
    }
    let start = out.len();
    out.resize(start + FRAME_HEADER_BYTES, 0);
    for record in records {
        let record = record.as_ref();
        out.extend((record.len() as u32).to_le_bytes());
        out.extend_from_slice(record);
    }
    out.resize(start + FRAME_HEADER_BYTES + length.next_multiple_of(ALIGNMENT), 0);
    let (header, body) = out[start..].split_at_mut(FRAME_HEADER_BYTES);
    header[..LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    header[LENGTH_BYTES..].copy_from_slice(&salt.checksum(place, length as u32, body));
    Ok(())
}

/// All records, and the end of the valid part of the file.
pub(crate) fn read_frames(path: &Path, salt: Salt, contents: &[u8]) -> Result<(Vec<Vec<u8>>, usize), JournalError> {
    let mut records = Vec::new();
    let mut place = HEADER_BYTES;
    while place < contents.len() {
        let Some((frame, end)) = frame_at(salt, contents, place).and_then(|(body, end)| Some((records_of(body)?, end)))
        else {
            let later = (place + ALIGNMENT..contents.len()).step_by(ALIGNMENT);
            if later.into_iter().any(|later| frame_at(salt, contents, later).is_some()) {
                return Err(JournalError::Damaged { path: path.to_owned(), offset: place });
            }
            break;
        };
        records.extend(frame);
        place = end;
    }
    Ok((records, place))
}

/// The body of the frame at this offset and the offset of the next one, if there is a valid frame.
fn frame_at(salt: Salt, contents: &[u8], place: usize) -> Option<(&[u8], usize)> {
    let (length, rest) = contents.get(place..)?.split_first_chunk::<LENGTH_BYTES>()?;
    let (checksum, rest) = rest.split_first_chunk::<{ FRAME_HEADER_BYTES - LENGTH_BYTES }>()?;
    let length = u32::from_le_bytes(*length);
    let kept = usize::try_from(length).ok().filter(|length| *length <= MAX_FRAME_BYTES)?;
    let padded = kept.next_multiple_of(ALIGNMENT);
    let body = rest.get(..padded)?;
    let good = salt.checksum(place as u64, length, body) == *checksum;
    good.then(|| (&body[..kept], place + FRAME_HEADER_BYTES + padded))
}

fn records_of(mut body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut records = Vec::new();
    while !body.is_empty() {
        let (length, rest) = body.split_first_chunk::<LENGTH_BYTES>()?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        records.push(record.to_vec());
        body = rest;
    }
    Some(records)
}
