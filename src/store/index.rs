//! The index, in sled: the checkpoint of each path of this store, the addresses of other peers, and how much of the
//! journal had reached the disk, so that a journal that was cut is noticed.
//!
//! A restart reads the peers to join and the checkpoints to resume from. `status` reads what the store of a stopped
//! peer holds, without the run's manifest and without the journal.
//!
//! The index can be rebuilt: checkpoints from the journal, addresses from other peers. sled 0.34 may lose what was
//! written just before the process was killed, and panics on some damage. So the whole index is read when it is opened.
//! A damaged one is replaced by an empty one, and a start adds what is missing or out of date.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::{BlobRef, ModuleId, PathId, PeerKey, Phase, Version};
use crate::store::durable::DiskError;
use crate::store::journal::Synced;
use crate::store::journal::frames::Salt;

/// Limit of remembered peers. The protocol passes on at most 2 KiB of addresses of a peer: 2 MiB in all.
pub const MAX_PEERS: usize = 1024;

/// Peers that are remembered, though they are no members yet, as long as no more are.
const MAX_STRANGERS: usize = 64;

/// The key of what has reached the disk of the journal.
const SYNCED: &str = "journal";

const CACHE_BYTES: u64 = 16 << 20;

/// sled releases its lock a moment after it is dropped: total and single time to wait for that.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The progress of a path, and its text. Each blob is in the store, unless the disk has lost it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The last finished phase.
    pub phase: Phase,
    /// The state of its trainer: optimiser and data cursor.
    pub trainer: BlobRef,
    /// Its modules, bottom first.
    pub modules: Vec<ModuleCheckpoint>,
    /// The tokens of its shard.
    pub shard: BlobRef,
}

/// The state of a module when the phase was finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleCheckpoint {
    pub module: ModuleId,
    pub version: Version,
    pub state: BlobRef,
}

impl Checkpoint {
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names and numbers are JSON")
    }

    /// `None` if the bytes are not a checkpoint.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("the index in {}: {source}", folder.display())]
    Sled { folder: PathBuf, source: sled::Error },
    #[error("the index in {} holds a damaged entry; restart to rebuild it", .0.display())]
    Damaged(PathBuf),
}

impl IndexError {
    /// Whether a new index would help. It does not against a full disk or a lock.
    fn is_damage(&self) -> bool {
        use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        match self {
            Self::Damaged(_) => true,
            Self::Sled { source: sled::Error::Io(error), .. } => {
                matches!(error.kind(), UnexpectedEof | InvalidData | InvalidInput)
            }
            Self::Sled { .. } => true,
            Self::Disk(_) => false,
        }
    }
}

pub struct Index {
    folder: PathBuf,
    db: sled::Db,
    checkpoints: sled::Tree,
    peers: sled::Tree,
}

impl Index {
    /// Opens an index, or creates an empty one, also in place of a damaged one.
    pub fn open(folder: &Path) -> Result<Self, IndexError> {
        match Self::open_whole(folder) {
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "the index was damaged and is rebuilt");
                fs::remove_dir_all(folder).map_err(DiskError::when("cannot remove the damaged index", folder))?;
                Self::open_whole(folder)
            }
            opened => opened,
        }
    }

    /// Opens an index and reads all of it, to detect damage.
    pub(super) fn open_whole(folder: &Path) -> Result<Self, IndexError> {
        let open = || -> Result<Self, IndexError> {
            let failed = |source| IndexError::Sled { folder: folder.to_owned(), source };
            let db = open_sled(folder).map_err(failed)?;
            let (checkpoints, peers) =
                (db.open_tree("checkpoints").map_err(failed)?, db.open_tree("peers").map_err(failed)?);
            let index = Self { folder: folder.to_owned(), db, checkpoints, peers };
            index.checkpoints()?;
            index.peers()?;
            Ok(index)
        };
        let panicked = || sled::Error::ReportableBug("sled panicked while it opened its files".to_owned());
        let broken = |_| IndexError::Sled { folder: folder.to_owned(), source: panicked() };
        catch_unwind(AssertUnwindSafe(open)).map_err(broken)?
    }

    fn failed(&self) -> impl Fn(sled::Error) -> IndexError {
        |source| IndexError::Sled { folder: self.folder.clone(), source }
    }

    /// Replaces the checkpoint of a path.
    pub fn set_checkpoint(&mut self, path: PathId, checkpoint: &Checkpoint) -> Result<(), IndexError> {
        self.checkpoints.insert(path.0.to_be_bytes(), checkpoint.encode()).map_err(self.failed())?;
        Ok(())
    }

    /// Removes the checkpoint of a path that is no longer trained here.
    pub fn remove_checkpoint(&mut self, path: PathId) -> Result<(), IndexError> {
        self.checkpoints.remove(path.0.to_be_bytes()).map_err(self.failed())?;
        Ok(())
    }

    /// Notes how much of the journal has reached the disk.
    pub fn set_synced(&mut self, synced: Synced) -> Result<(), IndexError> {
        let value = [synced.salt.0, synced.bytes.to_le_bytes()].concat();
        self.db.insert(SYNCED, value).map_err(self.failed())?;
        Ok(())
    }

    /// How much of the journal had reached the disk, or somewhat less.
    pub fn synced(&self) -> Result<Option<Synced>, IndexError> {
        let value = self.db.get(SYNCED).map_err(self.failed())?;
        Ok(value.and_then(|value| {
            let (salt, bytes) = value.split_first_chunk()?;
            Some(Synced { salt: Salt(*salt), bytes: u64::from_le_bytes(bytes.try_into().ok()?) })
        }))
    }

    /// The checkpoints of all paths, in order.
    pub fn checkpoints(&self) -> Result<Vec<(PathId, Checkpoint)>, IndexError> {
        self.entries(&self.checkpoints, |key, value| {
            Some((PathId(u32::from_be_bytes(key.try_into().ok()?)), Checkpoint::decode(value)?))
        })
    }

    /// Remembers the addresses of a member. If [`MAX_PEERS`] are known, another peer is dropped: the one with the next key
    /// that is not kept, which is as good as a random one, or the one with the next key if all are.
    pub fn set_peer(
        &mut self,
        peer: PeerKey,
        addresses: &[String],
        is_kept: impl Fn(PeerKey) -> bool,
    ) -> Result<(), IndexError> {
        let known = self.peers.insert(peer.0, addresses.join("\n").as_bytes()).map_err(self.failed())?;
        if known.is_some() || self.peers.len() <= MAX_PEERS {
            return Ok(());
        }
        let mut others = self.peers.range(..peer.0).keys().collect::<Result<Vec<_>, _>>().map_err(self.failed())?;
        let before = others.len();
        others.extend(self.peers.range(peer.0..).keys().skip(1).collect::<Result<Vec<_>, _>>().map_err(self.failed())?);
        others.rotate_left(before);
        let is_kept = |key: &sled::IVec| <[u8; 32]>::try_from(&**key).is_ok_and(|key| is_kept(PeerKey(key)));
        if let Some(key) = others.iter().find(|key| !is_kept(key)).or_else(|| others.first()) {
            self.peers.remove(key).map_err(self.failed())?;
        }
        Ok(())
    }

    /// Remembers the addresses of a peer that may be made up, if it is not remembered and few peers are: a newcomer that
    /// is killed soon finds the swarm again.
    pub fn set_stranger(&mut self, peer: PeerKey, addresses: &[String]) -> Result<(), IndexError> {
        if self.peers.len() < MAX_STRANGERS && !self.peers.contains_key(peer.0).map_err(self.failed())? {
            self.peers.insert(peer.0, addresses.join("\n").as_bytes()).map_err(self.failed())?;
        }
        Ok(())
    }

    /// All remembered peers with their addresses, in order.
    pub fn peers(&self) -> Result<Vec<(PeerKey, Vec<String>)>, IndexError> {
        self.entries(&self.peers, |key, value| {
            let addresses = std::str::from_utf8(value).ok()?;
            Some((PeerKey(key.try_into().ok()?), addresses.lines().map(str::to_owned).collect()))
        })
    }

    fn entries<T>(&self, tree: &sled::Tree, decode: impl Fn(&[u8], &[u8]) -> Option<T>) -> Result<Vec<T>, IndexError> {
        let entry = |entry: sled::Result<(sled::IVec, sled::IVec)>| {
            let (key, value) = entry.map_err(self.failed())?;
            decode(&key, &value).ok_or_else(|| IndexError::Damaged(self.folder.clone()))
        };
        tree.iter().map(entry).collect()
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if let Err(error) = self.db.flush() {
            tracing::warn!(%error, "the index was not flushed; the next start adds the missing entries");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "sled gives no sign when another process releases its lock")]
fn open_sled(folder: &Path) -> sled::Result<sled::Db> {
    // LowSpace: this index is small and changes often, and sled's files would grow otherwise.
    let config = sled::Config::new().path(folder).cache_capacity(CACHE_BYTES).mode(sled::Mode::LowSpace);
    // sled has no kind of its own for this error.
    let is_locked = |error: &sled::Error| matches!(error, sled::Error::Io(error) if error.to_string().contains("could not acquire lock"));
    let mut waited = Duration::ZERO;
    loop {
        match config.open() {
            Err(error) if is_locked(&error) && waited < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_PAUSE);
                waited += LOCK_PAUSE;
            }
            opened => return opened,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn sample(modules: u16) -> Checkpoint {
        let held = |level: u16| ModuleCheckpoint {
            module: ModuleId { level, expert: 7 },
            version: Version(40 + u64::from(level)),
            state: BlobRef::of(&level.to_le_bytes()),
        };
        let (trainer, shard) = (BlobRef::of(b"cursor"), BlobRef::of(b"tokens"));
        Checkpoint { phase: Phase(12), trainer, modules: (0..modules).map(held).collect(), shard }
    }

    fn filled(folder: &Path) -> Index {
        let mut index = Index::open(folder).unwrap();
        index.set_checkpoint(PathId(256), &sample(2)).unwrap();
        index.set_checkpoint(PathId(3), &sample(4)).unwrap();
        index
            .set_peer(PeerKey([9; 32]), &["/ip4/127.0.0.1/tcp/1".to_owned(), "/dns/a/tcp/2".to_owned()], |_| false)
            .unwrap();
        index
    }

    #[test]
    fn what_was_set_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        drop(filled(&path));
        let mut index = Index::open(&path).unwrap();
        assert_eq!(index.checkpoints().unwrap(), [(PathId(3), sample(4)), (PathId(256), sample(2))]);
        let addresses = ["/ip4/127.0.0.1/tcp/1", "/dns/a/tcp/2"].map(str::to_owned).to_vec();
        assert_eq!(index.peers().unwrap(), [(PeerKey([9; 32]), addresses)]);
        index.remove_checkpoint(PathId(3)).unwrap();
        assert_eq!(index.checkpoints().unwrap(), [(PathId(256), sample(2))]);
    }

    #[test]
    fn a_new_peer_takes_the_place_of_another_when_there_are_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = Index::open(&folder.path().join("index")).unwrap();
        let key = |number: usize| PeerKey(*blake3::hash(&number.to_le_bytes()).as_bytes());
        (0..MAX_PEERS).for_each(|number| index.set_peer(key(number), &[], |_| false).unwrap());
        index.set_peer(key(5), &["/dns/moved/tcp/1".to_owned()], |_| false).unwrap();
        assert_eq!(index.peers().unwrap().len(), MAX_PEERS);
        for peer in (0..20).map(|number| key(MAX_PEERS + number)) {
            index.set_peer(peer, &[], |_| false).unwrap();
            let known = index.peers().unwrap();
            assert!(known.len() == MAX_PEERS && known.iter().any(|(known, _)| *known == peer));
        }
    }

    #[test]
    fn made_up_peers_fill_little_of_the_index_and_no_member_is_dropped_for_another_peer() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = Index::open(&folder.path().join("index")).unwrap();
        let key = |number: usize| PeerKey(*blake3::hash(&number.to_le_bytes()).as_bytes());
        let here = |index: &Index, number| index.peers().unwrap().iter().any(|(known, _)| *known == key(number));
        (0..2 * MAX_PEERS).for_each(|number| index.set_stranger(key(number), &[]).unwrap());
        assert_eq!(index.peers().unwrap().len(), MAX_STRANGERS);
        let members: Vec<usize> = (10_000..10_000 + MAX_PEERS).collect();
        let is_member = |peer| members.iter().any(|number| key(*number) == peer);
        for number in &members {
            index.set_peer(key(*number), &[], is_member).unwrap();
        }
        assert!(members.iter().all(|number| here(&index, *number)), "they take the places of strangers");
        index.set_stranger(key(7), &[]).unwrap();
        assert!(!here(&index, 7) && index.peers().unwrap().len() == MAX_PEERS);
    }

    #[test]
    fn an_entry_that_does_not_read_makes_the_index_be_built_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = filled(&path);
        index.checkpoints.insert(7u32.to_be_bytes(), b"{\"phase\":").unwrap();
        assert!(matches!(index.checkpoints(), Err(IndexError::Damaged(_))));
        drop(index);
        let index = Index::open(&path).unwrap();
        assert!(index.checkpoints().unwrap().is_empty() && index.peers().unwrap().is_empty());
    }

    #[test]
    fn whatever_happens_to_the_files_of_sled_an_index_opens_and_holds_nothing_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let (path, sound) = (folder.path().join("index"), folder.path().join("sound"));
        drop(filled(&sound));
        let damage = |bytes: &mut Vec<u8>, round: usize| {
            let at = round * 7919 * 31 % bytes.len();
            match round % 3 {
                0 => bytes.truncate(at),
                1 => bytes.iter_mut().skip(at).take(64).for_each(|byte| *byte ^= 0x55),
                _ => bytes.iter_mut().skip(at).take(2000).for_each(|byte| *byte = 0),
            }
        };
        for round in 0..60 {
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            for file in ["db", "conf"] {
                let mut bytes = fs::read(sound.join(file)).unwrap();
                if file == if round % 10 == 9 { "conf" } else { "db" } {
                    damage(&mut bytes, round);
                }
                fs::write(path.join(file), bytes).unwrap();
            }
            let mut index = Index::open(&path).unwrap();
            for found in index.checkpoints().unwrap() {
                assert!(
                    [(PathId(3), sample(4)), (PathId(256), sample(2))].contains(&found),
                    "round {round}: {found:?}"
                );
            }
            index.set_checkpoint(PathId(1), &sample(1)).unwrap();
            drop(index);
            assert!(Index::open(&path).unwrap().checkpoints().unwrap().contains(&(PathId(1), sample(1))));
        }
    }

    #[test]
    fn an_index_that_is_open_elsewhere_is_not_taken_for_a_broken_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = filled(&path);
        assert!(matches!(Index::open(&path), Err(IndexError::Sled { .. })));
        assert_eq!(index.checkpoints().unwrap().len(), 2);
    }
}
