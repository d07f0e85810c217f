//! What can be rebuilt, in sled: checkpoints, the shard index and peers.
//!
//! sled 0.34 is known to lose or damage data when it is killed, and where its file is damaged it drops all that was
//! written later without a word. So nothing lives only here; every value carries a checksum; all of it is read once when
//! it is opened; each flush is numbered, in sled and then in a file beside it, so that a flush that sled has lost is
//! noticed; and if anything is wrong, the folder is moved aside, an empty index takes its place, and the caller is told
//! to fill it again. What was set after the last flush may be missing after a crash: an absent entry means "not known
//! here". Values stay below 16 KiB: sled puts larger ones into files that it never syncs.

pub(super) mod checked;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::checkpoint::Checkpoint;
use super::durable::{DiskError, sync_parent};
use crate::names::{BlobHash, PathId, PeerKey};
use crate::store::index::checked::{Database, IndexError, Tree};

/// The longest value.
pub const MAX_VALUE_BYTES: usize = (16 << 10) - 1;

/// Peers that are remembered. A peer takes at most [`MAX_ADDRESSES_BYTES`], so all take at most 2 MiB.
pub const MAX_PEERS: usize = 1024;
/// Addresses of a peer, with one byte between two.
pub const MAX_ADDRESSES_BYTES: usize = 2048;

/// A key among the shards that no document has, for it is shorter than theirs.
const SHARDS_OF: &[u8] = b"shards-of";

/// A document's name in the shard index.
pub type DocumentKey = [u8; 16];

/// An open index.
pub struct Index {
    database: Database,
    shards: Tree,
    checkpoints: Tree,
    peers: Tree,
}

impl Index {
    /// Opens an index, or makes an empty one. If what is there is broken, it is moved aside, and the second value says
    /// where to: the index is empty then and must be filled again.
    ///
    /// # Errors
    /// If the disk fails or is full, or another process has the index open.
    pub fn open(folder: &Path) -> Result<(Self, Option<PathBuf>), IndexError> {
        match Self::open_whole(folder) {
            Err(error) if error.is_damage() => {
                let aside = move_aside(folder)?;
                tracing::warn!(%error, aside = %aside.display(), "the index was broken and is built anew");
                Ok((Self::open_whole(folder)?, Some(aside)))
            }
            opened => Ok((opened?, None)),
        }
    }

    /// Opens sled and reads everything once.
    fn open_whole(folder: &Path) -> Result<Self, IndexError> {
        let open = || -> Result<Self, IndexError> {
            let database = Database::open(folder)?;
            let (shards, checkpoints) = (database.tree("shards")?, database.tree("checkpoints")?);
            let peers = database.tree("peers")?;
            Ok(Self { database, shards, checkpoints, peers })
        };
        // On some damage sled panics. What it leaves behind is moved aside and never looked at again.
        let panicked = || sled::Error::ReportableBug("sled panicked while it opened its files".to_owned());
        let broken = |_| IndexError::Sled { folder: folder.to_owned(), source: panicked() };
        catch_unwind(AssertUnwindSafe(open)).map_err(broken)?
    }

    /// Replaces the shard index: which paths a document goes to, and whether it is held out there. `hash` names the shard
    /// index and is set last, so that a crash in between cannot pass for all of it.
    ///
    /// # Errors
    /// If sled fails.
    pub fn replace_shards(
        &mut self,
        hash: BlobHash,
        shards: impl IntoIterator<Item = (DocumentKey, Vec<(PathId, bool)>)>,
    ) -> Result<(), IndexError> {
        self.shards.clear()?;
        for (key, places) in shards {
            let bytes = |(path, held_out): (PathId, bool)| {
                let [a, b, c, d] = path.0.to_le_bytes();
                [a, b, c, d, u8::from(held_out)]
            };
            self.shards.insert(&key, &places.into_iter().flat_map(bytes).collect::<Vec<u8>>())?;
        }
        self.flush()?;
        self.shards.insert(SHARDS_OF, &hash.0)?;
        self.flush()
    }

    /// Which shard index is held here as a whole.
    ///
    /// # Errors
    /// If sled fails or the entry is damaged.
    pub fn shards_of(&self) -> Result<Option<BlobHash>, IndexError> {
        let Some(hash) = self.shards.get(SHARDS_OF)? else { return Ok(None) };
        hash.try_into().map(|hash| Some(BlobHash(hash))).map_err(|_| self.shards.damaged())
    }

    /// Where a document belongs, and whether it is held out there; nowhere if it is not known.
    ///
    /// # Errors
    /// If sled fails or the entry is damaged.
    pub fn shard_of(&self, key: &DocumentKey) -> Result<Vec<(PathId, bool)>, IndexError> {
        let Some(value) = self.shards.get(key)? else { return Ok(Vec::new()) };
        let (places, []) = value.as_chunks() else { return Err(self.shards.damaged()) };
        let place = |[a, b, c, d, held_out]: &[u8; 5]| (PathId(u32::from_le_bytes([*a, *b, *c, *d])), *held_out == 1);
        Ok(places.iter().map(place).collect())
    }

    /// Records where a path stands, in place of where it stood.
    ///
    /// # Errors
    /// If it has too many modules for one value, or sled fails.
    pub fn set_checkpoint(&mut self, path: PathId, checkpoint: &Checkpoint) -> Result<(), IndexError> {
        let value = checkpoint.encode();
        within("a checkpoint", value.len(), MAX_VALUE_BYTES)?;
        self.checkpoints.insert(&path.0.to_be_bytes(), &value)
    }

    /// Where a path stands.
    ///
    /// # Errors
    /// If sled fails or the entry is damaged.
    pub fn checkpoint(&self, path: PathId) -> Result<Option<Checkpoint>, IndexError> {
        let Some(value) = self.checkpoints.get(&path.0.to_be_bytes())? else { return Ok(None) };
        Checkpoint::decode(&value).map(Some).ok_or_else(|| self.checkpoints.damaged())
    }

    /// Where all paths stand that have been trained here, in order.
    #[cfg(test)]
    ///
    /// # Errors
    /// If sled fails or an entry is damaged.
    fn checkpoints(&self) -> Result<Vec<(PathId, Checkpoint)>, IndexError> {
        let entry = |(key, value): (Vec<u8>, Vec<u8>)| {
            Some((PathId(u32::from_be_bytes(key.try_into().ok()?)), Checkpoint::decode(&value)?))
        };
        let entries = self.checkpoints.entries(&[])?;
        entries.into_iter().map(|found| entry(found).ok_or_else(|| self.checkpoints.damaged())).collect()
    }

    /// Remembers where a peer can be reached, in place of what was known; where there are [`MAX_PEERS`], in place of
    /// another.
    ///
    /// # Errors
    /// If the addresses are too long, or sled fails.
    pub fn set_peer(&mut self, peer: PeerKey, addresses: &[String]) -> Result<(), IndexError> {
        let value = addresses.join("\n");
        within("the addresses of a peer", value.len(), MAX_ADDRESSES_BYTES)?;
        self.peers.insert_bounded(&peer.0, value.as_bytes(), MAX_PEERS)
    }

    /// All peers that are remembered, with their addresses, in order.
    ///
    /// # Errors
    /// If sled fails or an entry is damaged.
    pub fn peers(&self) -> Result<Vec<(PeerKey, Vec<String>)>, IndexError> {
        let entry = |(key, value): (Vec<u8>, Vec<u8>)| {
            let addresses = String::from_utf8(value).ok()?;
            Some((PeerKey(key.try_into().ok()?), addresses.lines().map(str::to_owned).collect()))
        };
        let entries = self.peers.entries(&[])?;
        entries.into_iter().map(|found| entry(found).ok_or_else(|| self.peers.damaged())).collect()
    }

    /// Writes out what sled holds in memory. What was set before this is there after a crash, or its loss is noticed.
    ///
    /// # Errors
    /// If sled or the disk fails.
    pub fn flush(&mut self) -> Result<(), IndexError> {
        self.database.flush()
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "the index could not be written out; what is missing from it must be set again");
        }
    }
}

fn within(what: &'static str, bytes: usize, max_bytes: usize) -> Result<(), IndexError> {
    if bytes <= max_bytes { Ok(()) } else { Err(IndexError::TooLarge { what, bytes, max_bytes }) }
}

/// Renames the folder to the first of `index.broken-1`, `index.broken-2`, … that is free.
fn move_aside(folder: &Path) -> Result<PathBuf, DiskError> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let free = (1..).map(|number: u32| folder.with_file_name(format!("{name}.broken-{number}")));
    let aside = free.into_iter().find(|aside| !aside.exists()).unwrap_or_default();
    fs::rename(folder, &aside).map_err(DiskError::when("cannot move the broken index aside", folder))?;
    sync_parent(folder)?;
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::checkpoint::tests::sample;

    fn open(folder: &Path) -> Index {
        let (index, moved_aside) = Index::open(folder).unwrap();
        assert_eq!(moved_aside, None);
        index
    }

    fn filled(folder: &Path) -> Index {
        let mut index = open(folder);
        let shard = |number: u32| {
            (
                blake3::hash(&number.to_le_bytes()).as_bytes()[..16].try_into().unwrap(),
                vec![(PathId(number % 4), number.is_multiple_of(10)), (PathId(9), false)],
            )
        };
        index.replace_shards(BlobHash::of(b"shards"), (0..2000).map(shard)).unwrap();
        index.set_checkpoint(PathId(3), &sample(4)).unwrap();
        index.set_checkpoint(PathId(256), &sample(2)).unwrap();
        index.set_peer(PeerKey([9; 32]), &["/ip4/127.0.0.1/tcp/1".to_owned(), "/dns/a/tcp/2".to_owned()]).unwrap();
        index
    }

    #[test]
    fn what_was_set_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("index");
        drop(filled(&folder));
        let index = open(&folder);
        assert_eq!(index.shards_of().unwrap(), Some(BlobHash::of(b"shards")));
        let key = blake3::hash(&30u32.to_le_bytes()).as_bytes()[..16].try_into().unwrap();
        assert_eq!(index.shard_of(&key).unwrap(), [(PathId(2), true), (PathId(9), false)]);
        assert_eq!(index.shard_of(&[0; 16]).unwrap(), []);
        assert_eq!(index.checkpoint(PathId(3)).unwrap(), Some(sample(4)));
        assert_eq!(index.checkpoint(PathId(4)).unwrap(), None);
        let paths: Vec<PathId> = index.checkpoints().unwrap().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, [PathId(3), PathId(256)]);
        let peers = index.peers().unwrap();
        assert_eq!(peers, [(PeerKey([9; 32]), vec!["/ip4/127.0.0.1/tcp/1".to_owned(), "/dns/a/tcp/2".to_owned()])]);
    }

    #[test]
    fn bounds_hold() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = open(&folder.path().join("index"));
        assert!(matches!(index.set_checkpoint(PathId(0), &sample(400)), Err(IndexError::TooLarge { .. })));
        let long = vec!["x".repeat(MAX_ADDRESSES_BYTES + 1)];
        assert!(matches!(index.set_peer(PeerKey([0; 32]), &long), Err(IndexError::TooLarge { .. })));
        let key = |number: usize| PeerKey(*blake3::hash(&number.to_le_bytes()).as_bytes());
        for number in 0..MAX_PEERS {
            index.set_peer(key(number), &[]).unwrap();
        }
        index.set_peer(key(5), &["/dns/moved/tcp/1".to_owned()]).unwrap();
        assert_eq!(index.peers().unwrap().len(), MAX_PEERS);
        let late: Vec<PeerKey> = (0..20).map(|number| key(MAX_PEERS + number)).collect();
        for peer in &late {
            index.set_peer(*peer, &[]).unwrap();
            let kept = index.peers().unwrap();
            assert_eq!(kept.len(), MAX_PEERS);
            assert!(kept.iter().any(|(known, _)| known == peer));
        }
    }

    #[test]
    fn a_value_that_changed_is_noticed_and_the_index_is_built_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = filled(&path);
        let stored = index.peers.raw().get([9; 32]).unwrap().unwrap();
        let mut changed = stored.to_vec();
        changed[5] ^= 1;
        index.peers.raw().insert([9; 32], changed).unwrap();
        assert!(matches!(index.peers(), Err(IndexError::Damaged { tree: "peers" })));
        drop(index);
        let (index, moved_aside) = Index::open(&path).unwrap();
        assert_eq!(moved_aside, Some(folder.path().join("index.broken-1")));
        assert!(moved_aside.unwrap().is_dir());
        assert_eq!((index.shards_of().unwrap(), index.peers().unwrap().len()), (None, 0));
    }

    #[test]
    fn whatever_happens_to_the_files_of_sled_an_index_opens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let sound = folder.path().join("sound");
        drop(filled(&sound));
        let damage = |bytes: &mut Vec<u8>, round: usize| {
            let place = round * 7919 * 31 % bytes.len();
            match round % 3 {
                0 => bytes.truncate(place),
                1 => bytes.iter_mut().skip(place).take(64).for_each(|byte| *byte ^= 0x55),
                _ => bytes.iter_mut().skip(place).take(2000).for_each(|byte| *byte = 0),
            }
        };
        let mut built_anew = 0;
        for round in 0..60 {
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            for file in ["db", "conf", "flushes"] {
                let mut bytes = fs::read(sound.join(file)).unwrap();
                if file == if round % 10 == 9 { "conf" } else { "db" } {
                    damage(&mut bytes, round);
                }
                fs::write(path.join(file), bytes).unwrap();
            }
            let (mut index, moved_aside) = Index::open(&path).unwrap();
            built_anew += usize::from(moved_aside.is_some());
            // Either all is there, for all of it was flushed, or the caller is told.
            let found = index.checkpoint(PathId(3)).unwrap();
            assert_eq!(found.is_none(), moved_aside.is_some(), "round {round}");
            assert_eq!(index.shards_of().unwrap().is_none(), moved_aside.is_some(), "round {round}");
            index.set_checkpoint(PathId(1), &sample(1)).unwrap();
            index.flush().unwrap();
            drop(index);
            moved_aside.into_iter().for_each(|aside| fs::remove_dir_all(aside).unwrap());
        }
        assert!(built_anew > 0);
    }

    #[test]
    fn an_index_that_is_open_elsewhere_is_not_taken_for_a_broken_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = filled(&path);
        assert!(matches!(Index::open(&path), Err(IndexError::Sled { .. })));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(index.checkpoint(PathId(3)).unwrap(), Some(sample(4)));
    }
}
