//! What can be rebuilt, in sled: checkpoints, the shard index, peers and offers.
//!
//! sled 0.34 is known to lose or damage data when it is killed. So nothing lives only here; every value carries a
//! checksum; all of it is read once when it is opened; and if anything is wrong, the folder is moved aside, an empty
//! index takes its place, and the caller is told to fill it again. Values stay below 16 KiB: sled puts larger ones into
//! files that it never syncs.

use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use sled::{Db, Tree};

use super::checkpoint::Checkpoint;
use super::durable::{DiskError, sync_parent};
use crate::names::{BlobHash, ModuleId, PathId, PeerKey};

/// The longest value.
pub const MAX_VALUE_BYTES: usize = (16 << 10) - 1;

/// Peers that are remembered. A peer takes at most [`MAX_ADDRESSES_BYTES`], so all take at most 2 MiB.
pub const MAX_PEERS: usize = 1024;

/// Addresses of a peer, with one byte between two.
pub const MAX_ADDRESSES_BYTES: usize = 2048;

/// Offers that are kept. With values below 4 KiB, which is what gossip carries, they take at most 64 MiB.
pub const MAX_OFFERS: usize = 16_384;

/// The longest offer.
pub const MAX_OFFER_BYTES: usize = 4 << 10;

const CACHE_BYTES: u64 = 16 << 20;
const CHECK_BYTES: usize = 4;

/// A key among the shards that no document has, for it is shorter than theirs.
const SHARDS_OF: &[u8] = b"shards-of";

/// The first 16 bytes of the BLAKE3 of a document's tokens.
pub type DocumentKey = [u8; 16];

/// Why the index could not be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The disk, while a broken index was moved aside.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// sled.
    #[error("the index in {}: {source}", folder.display())]
    Sled {
        /// Where.
        folder: PathBuf,
        /// What sled says.
        source: sled::Error,
    },
    /// A value is not what was written.
    #[error("the index holds a damaged entry under {tree}; restart, and it will be built anew")]
    Damaged {
        /// Which tree.
        tree: &'static str,
    },
    /// More than the stated bound.
    #[error("{what} of {bytes} bytes is too large for the index; at most {max_bytes} fit")]
    TooLarge {
        /// For instance `a checkpoint`.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        max_bytes: usize,
    },
    /// As many as are kept.
    #[error("the index keeps {max} {what} and no more")]
    Full {
        /// For instance `offers`.
        what: &'static str,
        /// The bound.
        max: usize,
    },
}

/// An open index.
pub struct Index {
    folder: PathBuf,
    db: Db,
    shards: Checked,
    checkpoints: Checked,
    peers: Checked,
    offers: Checked,
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
        let fails = |source| IndexError::Sled { folder: folder.to_owned(), source };
        let open = || -> Result<Self, IndexError> {
            // LowSpace: this index is small and changes often, and sled's files grow otherwise.
            let config = sled::Config::new().path(folder).cache_capacity(CACHE_BYTES).mode(sled::Mode::LowSpace);
            let db = config.open().map_err(fails)?;
            let tree = |name: &'static str| Checked::open(&db, folder, name);
            let (shards, checkpoints) = (tree("shards")?, tree("checkpoints")?);
            let (peers, offers) = (tree("peers")?, tree("offers")?);
            Ok(Self { folder: folder.to_owned(), db, shards, checkpoints, peers, offers })
        };
        // On some damage sled panics. What it leaves behind is moved aside and never looked at again.
        let broken = |_| fails(sled::Error::ReportableBug("sled panicked while it opened its files".to_owned()));
        catch_unwind(AssertUnwindSafe(open)).map_err(broken)?
    }

    fn fails(&self) -> impl Fn(sled::Error) -> IndexError {
        |source| IndexError::Sled { folder: self.folder.clone(), source }
    }

    /// Replaces the shard index: which path a document goes to, and whether it is held out. `hash` names the shard
    /// index and is set last, so that a crash in between cannot pass for all of it.
    ///
    /// # Errors
    /// If sled fails.
    pub fn replace_shards(
        &mut self,
        hash: BlobHash,
        shards: impl IntoIterator<Item = (DocumentKey, PathId, bool)>,
    ) -> Result<(), IndexError> {
        self.shards.clear()?;
        for (key, path, held_out) in shards {
            let [a, b, c, d] = path.0.to_le_bytes();
            self.shards.insert(&key, &[a, b, c, d, u8::from(held_out)])?;
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

    /// Where a document belongs, and whether it is held out.
    ///
    /// # Errors
    /// If sled fails or the entry is damaged.
    pub fn shard_of(&self, key: &DocumentKey) -> Result<Option<(PathId, bool)>, IndexError> {
        let Some(value) = self.shards.get(key)? else { return Ok(None) };
        let [a, b, c, d, held_out] = value[..] else { return Err(self.shards.damaged()) };
        Ok(Some((PathId(u32::from_le_bytes([a, b, c, d])), held_out == 1)))
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
    ///
    /// # Errors
    /// If sled fails or an entry is damaged.
    pub fn checkpoints(&self) -> Result<Vec<(PathId, Checkpoint)>, IndexError> {
        let entry = |(key, value): (Vec<u8>, Vec<u8>)| {
            Some((PathId(u32::from_be_bytes(key.try_into().ok()?)), Checkpoint::decode(&value)?))
        };
        let entries = self.checkpoints.entries(&[])?;
        entries.into_iter().map(|found| entry(found).ok_or_else(|| self.checkpoints.damaged())).collect()
    }

    /// Remembers where a peer can be reached, in place of what was known.
    ///
    /// # Errors
    /// If the addresses are too long, there are [`MAX_PEERS`] others, or sled fails.
    pub fn set_peer(&mut self, peer: PeerKey, addresses: &[String]) -> Result<(), IndexError> {
        let value = addresses.join("\n");
        within("the addresses of a peer", value.len(), MAX_ADDRESSES_BYTES)?;
        self.peers.insert_bounded(&peer.0, value.as_bytes(), "peers", MAX_PEERS)
    }

    /// Forgets a peer.
    ///
    /// # Errors
    /// If sled fails.
    pub fn remove_peer(&mut self, peer: PeerKey) -> Result<(), IndexError> {
        self.peers.remove(&peer.0)
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

    /// Keeps an offer for a module, in the protocol's own encoding. `contribution` is the blob that it offers.
    ///
    /// # Errors
    /// If it is too long, there are [`MAX_OFFERS`] others, or sled fails.
    pub fn set_offer(
        &mut self,
        module: ModuleId,
        path: PathId,
        contribution: BlobHash,
        offer: &[u8],
    ) -> Result<(), IndexError> {
        within("an offer", offer.len(), MAX_OFFER_BYTES)?;
        self.offers.insert_bounded(&offer_key(module, path, contribution), offer, "offers", MAX_OFFERS)
    }

    /// Drops an offer.
    ///
    /// # Errors
    /// If sled fails.
    pub fn remove_offer(&mut self, module: ModuleId, path: PathId, contribution: BlobHash) -> Result<(), IndexError> {
        self.offers.remove(&offer_key(module, path, contribution))
    }

    /// The offers for a module, by path and then by blob.
    ///
    /// # Errors
    /// If sled fails or an entry is damaged.
    pub fn offers(&self, module: ModuleId) -> Result<Vec<Vec<u8>>, IndexError> {
        let entries = self.offers.entries(&module_key(module))?;
        Ok(entries.into_iter().map(|(_, offer)| offer).collect())
    }

    /// Writes out what sled holds in memory.
    ///
    /// # Errors
    /// If sled fails.
    pub fn flush(&self) -> Result<(), IndexError> {
        self.db.flush().map(drop).map_err(self.fails())
    }
}

fn module_key(module: ModuleId) -> Vec<u8> {
    [&module.level.to_be_bytes()[..], &module.expert.to_be_bytes()].concat()
}

fn offer_key(module: ModuleId, path: PathId, contribution: BlobHash) -> Vec<u8> {
    [&module_key(module)[..], &path.0.to_be_bytes(), &contribution.0].concat()
}

fn within(what: &'static str, bytes: usize, max_bytes: usize) -> Result<(), IndexError> {
    if bytes <= max_bytes { Ok(()) } else { Err(IndexError::TooLarge { what, bytes, max_bytes }) }
}

impl IndexError {
    /// Whether an index built anew would mend it; a full disk or a lock would only hide behind one.
    fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Sled { source: sled::Error::Io(error), .. } => {
                matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput)
            }
            Self::Sled { .. } => true,
            Self::Disk(_) | Self::TooLarge { .. } | Self::Full { .. } => false,
        }
    }
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

/// A tree whose values carry a checksum of tree, key and value.
struct Checked {
    name: &'static str,
    folder: PathBuf,
    tree: Tree,
    /// sled counts by walking through all entries.
    count: usize,
}

impl Checked {
    /// Opens a tree and checks every entry.
    fn open(db: &Db, folder: &Path, name: &'static str) -> Result<Self, IndexError> {
        let fails = |source| IndexError::Sled { folder: folder.to_owned(), source };
        let mut checked = Self { name, folder: folder.to_owned(), tree: db.open_tree(name).map_err(fails)?, count: 0 };
        for entry in checked.tree.iter() {
            let (key, value) = entry.map_err(fails)?;
            checked.opened(&key, &value)?;
            checked.count += 1;
        }
        Ok(checked)
    }

    fn fails(&self) -> impl Fn(sled::Error) -> IndexError {
        |source| IndexError::Sled { folder: self.folder.clone(), source }
    }

    fn damaged(&self) -> IndexError {
        IndexError::Damaged { tree: self.name }
    }

    fn check(&self, key: &[u8], value: &[u8]) -> [u8; CHECK_BYTES] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.name.as_bytes()).update(&[0, key.len() as u8]).update(key).update(value);
        let mut check = [0; CHECK_BYTES];
        hasher.finalize_xof().fill(&mut check);
        check
    }

    fn opened(&self, key: &[u8], stored: &[u8]) -> Result<Vec<u8>, IndexError> {
        let (value, check) = stored.split_last_chunk::<CHECK_BYTES>().ok_or_else(|| self.damaged())?;
        if *check == self.check(key, value) { Ok(value.to_vec()) } else { Err(self.damaged()) }
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), IndexError> {
        let stored = [value, &self.check(key, value)].concat();
        let old = self.tree.insert(key, stored).map_err(self.fails())?;
        self.count += usize::from(old.is_none());
        Ok(())
    }

    fn insert_bounded(&mut self, key: &[u8], value: &[u8], what: &'static str, max: usize) -> Result<(), IndexError> {
        if self.count >= max && !self.tree.contains_key(key).map_err(self.fails())? {
            return Err(IndexError::Full { what, max });
        }
        self.insert(key, value)
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), IndexError> {
        let old = self.tree.remove(key).map_err(self.fails())?;
        self.count -= usize::from(old.is_some());
        Ok(())
    }

    fn clear(&mut self) -> Result<(), IndexError> {
        self.tree.clear().map_err(self.fails())?;
        self.count = 0;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        let stored = self.tree.get(key).map_err(self.fails())?;
        stored.map(|stored| self.opened(key, &stored)).transpose()
    }

    /// All entries whose keys begin so, in order.
    fn entries(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, IndexError> {
        let entry = |entry: sled::Result<(sled::IVec, sled::IVec)>| {
            let (key, stored) = entry.map_err(self.fails())?;
            let value = self.opened(&key, &stored)?;
            Ok((key.to_vec(), value))
        };
        self.tree.scan_prefix(prefix).map(entry).collect()
    }
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

    fn module() -> ModuleId {
        ModuleId { level: 1, expert: 2 }
    }

    fn filled(folder: &Path) -> Index {
        let mut index = open(folder);
        let shard = |number: u32| {
            (
                blake3::hash(&number.to_le_bytes()).as_bytes()[..16].try_into().unwrap(),
                PathId(number % 4),
                number % 10 == 0,
            )
        };
        index.replace_shards(BlobHash::of(b"shards"), (0..2000).map(shard)).unwrap();
        index.set_checkpoint(PathId(3), &sample(4)).unwrap();
        index.set_checkpoint(PathId(256), &sample(2)).unwrap();
        index.set_peer(PeerKey([9; 32]), &["/ip4/127.0.0.1/tcp/1".to_owned(), "/dns/a/tcp/2".to_owned()]).unwrap();
        index.set_offer(module(), PathId(1), BlobHash::of(b"gradient"), b"an offer").unwrap();
        index
    }

    #[test]
    fn what_was_set_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("index");
        drop(filled(&folder));
        let mut index = open(&folder);
        assert_eq!(index.shards_of().unwrap(), Some(BlobHash::of(b"shards")));
        let key = blake3::hash(&30u32.to_le_bytes()).as_bytes()[..16].try_into().unwrap();
        assert_eq!(index.shard_of(&key).unwrap(), Some((PathId(2), true)));
        assert_eq!(index.shard_of(&[0; 16]).unwrap(), None);
        assert_eq!(index.checkpoint(PathId(3)).unwrap(), Some(sample(4)));
        assert_eq!(index.checkpoint(PathId(4)).unwrap(), None);
        let paths: Vec<PathId> = index.checkpoints().unwrap().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, [PathId(3), PathId(256)]);
        let peers = index.peers().unwrap();
        assert_eq!(peers, [(PeerKey([9; 32]), vec!["/ip4/127.0.0.1/tcp/1".to_owned(), "/dns/a/tcp/2".to_owned()])]);
        index.remove_peer(PeerKey([9; 32])).unwrap();
        assert!(index.peers().unwrap().is_empty());
    }

    #[test]
    fn offers_are_kept_by_module() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = filled(&folder.path().join("index"));
        let other = ModuleId { level: 1, expert: 3 };
        index.set_offer(other, PathId(0), BlobHash::of(b"x"), b"elsewhere").unwrap();
        index.set_offer(module(), PathId(0), BlobHash::of(b"y"), b"first").unwrap();
        assert_eq!(index.offers(module()).unwrap(), [b"first".to_vec(), b"an offer".to_vec()]);
        index.remove_offer(module(), PathId(1), BlobHash::of(b"gradient")).unwrap();
        assert_eq!(index.offers(module()).unwrap(), [b"first".to_vec()]);
        assert_eq!(index.offers(other).unwrap(), [b"elsewhere".to_vec()]);
    }

    #[test]
    fn bounds_hold() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = open(&folder.path().join("index"));
        assert!(matches!(index.set_checkpoint(PathId(0), &sample(400)), Err(IndexError::TooLarge { .. })));
        let long = vec!["x".repeat(MAX_ADDRESSES_BYTES + 1)];
        assert!(matches!(index.set_peer(PeerKey([0; 32]), &long), Err(IndexError::TooLarge { .. })));
        let offer = vec![0; MAX_OFFER_BYTES + 1];
        let set = index.set_offer(module(), PathId(0), BlobHash::of(b""), &offer);
        assert!(matches!(set, Err(IndexError::TooLarge { .. })));
        let key = |number: usize| PeerKey(*blake3::hash(&number.to_le_bytes()).as_bytes());
        for number in 0..MAX_PEERS {
            index.set_peer(key(number), &[]).unwrap();
        }
        assert!(matches!(index.set_peer(key(MAX_PEERS), &[]), Err(IndexError::Full { max: MAX_PEERS, .. })));
        index.set_peer(key(5), &["/dns/moved/tcp/1".to_owned()]).unwrap();
        index.remove_peer(key(6)).unwrap();
        index.set_peer(key(MAX_PEERS), &[]).unwrap();
    }

    #[test]
    fn a_value_that_changed_is_noticed_and_the_index_is_built_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = filled(&path);
        let stored = index.peers.tree.get([9; 32]).unwrap().unwrap();
        let mut changed = stored.to_vec();
        changed[5] ^= 1;
        index.peers.tree.insert([9; 32], changed).unwrap();
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
        let rounds = std::env::var("ROUNDS").map_or(60, |r| r.parse().unwrap());
        for round in 0..rounds {
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            for file in ["db", "conf"] {
                let mut bytes = fs::read(sound.join(file)).unwrap();
                if (file == "conf") == (round % 10 == 9) {
                    damage(&mut bytes, round);
                }
                fs::write(path.join(file), bytes).unwrap();
            }
            let (mut index, moved_aside) = Index::open(&path).unwrap();
            built_anew += usize::from(moved_aside.is_some());
            eprintln!("round {round} anew {} checkpoints {} shards {:?}", moved_aside.is_some(), index.checkpoints().unwrap().len(), index.shards_of().unwrap().is_some());
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
