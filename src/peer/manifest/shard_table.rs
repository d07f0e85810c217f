//! The shards of a run, in a blob that the manifest names and that must be read first.

use serde::{Deserialize, Serialize};

use crate::names::{BlobHash, BlobRef};
use crate::protocol::limits::FULL_WEIGHT;

const MAGIC: [u8; 4] = *b"PSTB";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 12;
const BLOB_BYTES: usize = 40;
const SHARD_BYTES: usize = 3 * BLOB_BYTES + 8;

/// One path's part of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Training sequences, as a token file.
    pub train: BlobRef,
    /// Held-out sequences.
    pub held_out: BlobRef,
    /// Test sequences that the router sends here.
    pub test: BlobRef,
    /// Number of training sequences: the path's weight.
    pub sequences: u64,
}

impl Shard {
    /// Training, held-out and test text.
    pub fn blobs(&self) -> [BlobRef; 3] {
        [self.train, self.held_out, self.test]
    }

    pub fn hashes(&self) -> [BlobHash; 3] {
        self.blobs().map(|blob| blob.hash)
    }

    fn bytes(&self) -> u64 {
        self.blobs().iter().fold(0, |sum, blob| sum.saturating_add(blob.bytes))
    }
}

/// Every path's part of the text, as a manifest has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shards {
    /// The blob to read.
    pub table: BlobRef,
    /// The largest text of a path.
    pub largest_bytes: u64,
    /// Empty before the blob has been read.
    #[serde(skip)]
    shards: Vec<Shard>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TableError {
    #[error("the shard table does not match the manifest")]
    Other,
    #[error("not a shard table of version {VERSION} for {0} paths")]
    Header(usize),
    #[error("a path's text has {found} bytes, but the manifest says at most {expected}")]
    Largest { found: u64, expected: u64 },
}

/// Each path's weight in an outer step, by the training sequences of its shard: the largest has the full weight.
pub fn weights(sequences: impl Iterator<Item = u64> + Clone) -> Vec<u32> {
    let largest = sequences.clone().max().unwrap_or(1).max(1);
    let weight = |sequences: u64| {
        let share = u128::from(sequences) * u128::from(FULL_WEIGHT) / u128::from(largest);
        (share as u32).clamp(1, FULL_WEIGHT)
    };
    sequences.map(weight).collect()
}

/// Size of the table of so many paths.
pub fn table_bytes(paths: usize) -> u64 {
    (HEADER_BYTES + paths * SHARD_BYTES) as u64
}

/// `PSTB`, version u16, 0 u16, count u32; for each path the blobs `train`, `held_out` and `test`, each its hash and its
/// size u64, and its sequences u64. Little endian.
pub fn encode_table(shards: &[Shard]) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &[0; 2], &(shards.len() as u32).to_le_bytes()].concat();
    for shard in shards {
        for blob in shard.blobs() {
            bytes.extend(blob.hash.0);
            bytes.extend(blob.bytes.to_le_bytes());
        }
        bytes.extend(shard.sequences.to_le_bytes());
    }
    bytes
}

fn decode_shard(bytes: &[u8; SHARD_BYTES]) -> Option<Shard> {
    let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let blob = |index: usize| {
        let at = index * BLOB_BYTES;
        Some(BlobRef { hash: BlobHash(*bytes.get(at..)?.first_chunk()?), bytes: number(at + 32)? })
    };
    Some(Shard { train: blob(0)?, held_out: blob(1)?, test: blob(2)?, sequences: number(3 * BLOB_BYTES)? })
}

/// The shards in a table of so many paths; `None` if it is invalid.
pub fn decode_table(bytes: &[u8], paths: usize) -> Option<Vec<Shard>> {
    let header = [&MAGIC[..], &VERSION.to_le_bytes(), &[0; 2], &(paths as u32).to_le_bytes()].concat();
    let (shards, rest) = bytes.strip_prefix(&header[..])?.as_chunks();
    (rest.is_empty() && shards.len() == paths).then(|| shards.iter().map(decode_shard).collect())?
}

impl Shards {
    /// Shards in the blob of [`encode_table`].
    pub fn in_table(shards: Vec<Shard>, table: BlobRef) -> Self {
        let largest_bytes = shards.iter().map(Shard::bytes).max().unwrap_or(0);
        Self { table, largest_bytes, shards }
    }

    /// By path; empty while their blob has not been read.
    pub fn listed(&self) -> &[Shard] {
        &self.shards
    }

    /// Reads the table of so many paths.
    pub fn take_table(&mut self, bytes: &[u8], paths: usize) -> Result<(), TableError> {
        if BlobRef::of(bytes) != self.table {
            return Err(TableError::Other);
        }
        let shards = decode_table(bytes, paths).ok_or(TableError::Header(paths))?;
        let found = shards.iter().map(Shard::bytes).max().unwrap_or(0);
        if found != self.largest_bytes {
            return Err(TableError::Largest { found, expected: self.largest_bytes });
        }
        self.shards = shards;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards() -> Vec<Shard> {
        let blob = |text: &str| BlobRef::of(text.as_bytes());
        let shard = |sequences| Shard { train: blob("train"), held_out: blob("h"), test: blob(""), sequences };
        vec![shard(3), shard(258)]
    }

    fn in_table(bytes: &[u8], shards: &[Shard]) -> Shards {
        let table = Shards::in_table(shards.to_vec(), BlobRef::of(bytes));
        serde_json::from_str(&serde_json::to_string(&table).unwrap()).unwrap()
    }

    #[test]
    fn a_table_comes_back_as_it_was() {
        let shards = shards();
        let bytes = encode_table(&shards);
        assert_eq!((bytes.len() as u64, &bytes[..12]), (table_bytes(2), &b"PSTB\x01\0\0\0\x02\0\0\0"[..]));
        assert_eq!((&bytes[12..44], &bytes[44..52]), (&BlobHash::of(b"train").0[..], &b"\x05\0\0\0\0\0\0\0"[..]));
        assert_eq!(&bytes[bytes.len() - 8..], b"\x02\x01\0\0\0\0\0\0");
        let mut read = in_table(&bytes, &shards);
        assert_eq!((read.listed(), read.table, read.largest_bytes), (&[][..], BlobRef::of(&bytes), 6));
        read.take_table(&bytes, 2).unwrap();
        assert_eq!(read.listed(), shards);
    }

    #[test]
    fn what_is_not_the_named_table_of_the_grid_is_refused() {
        let bytes = encode_table(&shards());
        let refused =
            |named: &[u8], given: &[u8], paths| in_table(named, &shards()).take_table(given, paths).unwrap_err();
        assert_eq!(refused(&bytes, &bytes[1..], 2), TableError::Other);
        assert_eq!(refused(&bytes, &bytes, 3), TableError::Header(3));
        for length in [0, 11, 12, bytes.len() - 1] {
            assert_eq!(refused(&bytes[..length], &bytes[..length], 2), TableError::Header(2));
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(refused(&longer, &longer, 2), TableError::Header(2));
        let mut larger = bytes.clone();
        larger[44] = 9;
        assert_eq!(refused(&larger, &larger, 2), TableError::Largest { found: 10, expected: 6 });
    }
}
