//! The path of every training document: the one source for the sizes of shards.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::grid::MAX_PATHS;
use crate::names::PathId;
use crate::text::TokenSet;
use crate::text::corpus::falls_within;

const MAGIC: [u8; 4] = *b"PSSI";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 25;

/// Names a document: the first 16 bytes of BLAKE3 over the tokens of its sequences, four bytes each, little endian.
/// Common tokens of overlapping sequences count in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentKey(pub [u8; 16]);

impl DocumentKey {
    pub fn of(tokens: &[u32]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for token in tokens {
            hasher.update(&token.to_le_bytes());
        }
        let mut key = [0; 16];
        hasher.finalize_xof().fill(&mut key);
        Self(key)
    }
}

/// Where a document belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The path that trains on it.
    pub path: PathId,
    /// Whether it is held out from training, to evaluate the path.
    pub held_out: bool,
    /// Number of sequences.
    pub sequences: u32,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShardError {
    #[error("{paths} paths were given for {documents} documents")]
    Count { paths: usize, documents: usize },
    #[error("a document is for path {path}, but there are {paths} paths")]
    NoSuchPath { path: PathId, paths: u32 },
    #[error("path {path} has no training sequences; give more text or use fewer paths")]
    Empty { path: PathId },
    #[error("not a shard index of version {VERSION}: {0}")]
    Format(&'static str),
}

/// The shards of every document, in order of key and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardIndex {
    paths: u32,
    shards: BTreeMap<(DocumentKey, PathId), Shard>,
}

/// The documents of a set that are trained on under any routing, for what trains before there are paths.
pub fn trained_on(set: &TokenSet, held_out_share: f64) -> TokenSet {
    let trained =
        |document: &Range<usize>| !falls_within(&DocumentKey::of(&set.span(document.clone())).0, held_out_share);
    set.subset(&set.documents().filter(trained).flatten().collect::<Vec<_>>())
}

impl ShardIndex {
    /// Records the paths of each document of a set, in the order of [`TokenSet::documents`]. `routes` has equally many
    /// for each, best first. The key alone decides whether a document is held out, so the same ones are held out under
    /// any routing, and only from the shard of their best path. Of documents with equal tokens, only the first counts.
    pub fn build(set: &TokenSet, routes: &[PathId], paths: u32, held_out_share: f64) -> Result<Self, ShardError> {
        let documents = set.documents();
        let each = (routes.len() / documents.len().max(1)).max(1);
        if documents.len() * each != routes.len() {
            return Err(ShardError::Count { paths: routes.len(), documents: documents.len() });
        }
        let mut shards: BTreeMap<(DocumentKey, PathId), Shard> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (range, routes) in documents.zip(routes.chunks(each)) {
            if let Some(path) = routes.iter().find(|path| path.0 >= paths) {
                return Err(ShardError::NoSuchPath { path: *path, paths });
            }
            let key = DocumentKey::of(&set.span(range.clone()));
            if !seen.insert(key) {
                continue;
            }
            let held_out = falls_within(&key.0, held_out_share);
            let shown = if held_out { &routes[..1] } else { routes };
            let shard = |path: &PathId| ((key, *path), Shard { path: *path, held_out, sequences: range.len() as u32 });
            shards.extend(shown.iter().map(shard));
        }
        let index = Self { paths, shards };
        match index.sizes().iter().position(|size| *size == 0) {
            Some(path) => Err(ShardError::Empty { path: PathId(path as u32) }),
            None => Ok(index),
        }
    }

    pub fn paths(&self) -> u32 {
        self.paths
    }

    /// Training sequences of each path, which are the weights of contributions.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes = vec![0; self.paths as usize];
        for shard in self.shards.values().filter(|shard| !shard.held_out) {
            sizes[shard.path.0 as usize] += u64::from(shard.sequences);
        }
        sizes
    }

    /// The sequences of a set that belong to a path, for training or held out, for [`TokenSet::subset`]. A document
    /// that is not in the index belongs to no path, and a duplicate counts once.
    pub fn select(&self, set: &TokenSet, path: PathId, held_out: bool) -> Vec<usize> {
        let mut seen = BTreeSet::new();
        let mut selected = Vec::new();
        for range in set.documents() {
            let key = DocumentKey::of(&set.span(range.clone()));
            let belongs = self.shards.get(&(key, path)).is_some_and(|shard| shard.held_out == held_out);
            if belongs && seen.insert(key) {
                selected.extend(range);
            }
        }
        selected
    }

    /// Little endian: `PSSI`, version u16, 0 u16, paths u32, entries u32; for each path of each document the document's
    /// key of 16 bytes, path u32, sequences u32, and 1 if held out, else 0. The order of key and path makes the
    /// encoding unique.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES * self.shards.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.paths.to_le_bytes());
        bytes.extend((self.shards.len() as u32).to_le_bytes());
        for ((key, _), shard) in &self.shards {
            bytes.extend(key.0);
            bytes.extend(shard.path.0.to_le_bytes());
            bytes.extend(shard.sequences.to_le_bytes());
            bytes.push(u8::from(shard.held_out));
        }
        bytes
    }

    /// Reads an encoded index.
    pub fn decode(bytes: &[u8]) -> Result<Self, ShardError> {
        let wrong = ShardError::Format;
        let (head, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(wrong("too short"))?;
        if head[..4] != MAGIC || head[4..6] != VERSION.to_le_bytes() || head[6..8] != [0, 0] {
            return Err(wrong("another kind of file"));
        }
        let (paths, count) = (read_u32(&head[8..]), read_u32(&head[12..]));
        if paths == 0 || paths > MAX_PATHS || rest.len() as u64 != u64::from(count) * ENTRY_BYTES as u64 {
            return Err(wrong("a size that does not fit its counts"));
        }
        let mut shards = BTreeMap::new();
        let mut previous = None;
        for entry in rest.chunks_exact(ENTRY_BYTES) {
            let mut key = DocumentKey([0; 16]);
            key.0.copy_from_slice(&entry[..16]);
            let shard = Shard {
                path: PathId(read_u32(&entry[16..])),
                sequences: read_u32(&entry[20..]),
                held_out: entry[24] == 1,
            };
            let place = (key, shard.path);
            if previous.is_some_and(|previous| previous >= place) {
                return Err(wrong("keys that are not in order"));
            }
            if shard.path.0 >= paths || shard.sequences == 0 || entry[24] > 1 {
                return Err(wrong("an invalid entry"));
            }
            previous = Some(place);
            shards.insert(place, shard);
        }
        Ok(Self { paths, shards })
    }
}

fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 300 documents of one to four sequences; the third repeats the first.
    fn set() -> TokenSet {
        let mut documents: Vec<Vec<u32>> = (0..300).map(|i| (0..4 + i % 9).map(|j| i * 10 + j).collect()).collect();
        documents[2] = documents[0].clone();
        TokenSet::cut_for_scoring(&documents, 3)
    }

    fn routes() -> Vec<PathId> {
        (0..300).map(|i| PathId(i % 3)).collect()
    }

    #[test]
    fn each_sequence_belongs_to_one_path_once() {
        let set = set();
        let index = ShardIndex::build(&set, &routes(), 3, 0.1).unwrap();
        let mut all = Vec::new();
        for path in (0..3).map(PathId) {
            let (training, held_out) = (index.select(&set, path, false), index.select(&set, path, true));
            assert_eq!(index.sizes()[path.0 as usize], training.len() as u64);
            assert!(training.iter().chain(&held_out).all(|i| set.document(*i) % 3 == path.0));
            all.extend(training.into_iter().chain(held_out));
        }
        all.sort_unstable();
        let expected: Vec<usize> = (0..set.len()).filter(|i| set.document(*i) != 2).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn the_same_documents_are_held_out_however_they_are_routed() {
        let set = set();
        let held_out = |routes: &[PathId]| -> Vec<DocumentKey> {
            let index = ShardIndex::build(&set, routes, 3, 0.1).unwrap();
            index.shards.iter().filter(|(_, shard)| shard.held_out).map(|((key, _), _)| *key).collect()
        };
        let other: Vec<PathId> = (0..300).map(|i| PathId(i / 100)).collect();
        assert_eq!(held_out(&routes()), held_out(&other));
        assert!((10..60).contains(&held_out(&other).len()));
        let trained = trained_on(&set, 0.1);
        let keys = trained.documents().map(|document| DocumentKey::of(&trained.span(document)));
        let distinct: BTreeSet<DocumentKey> = keys.collect();
        assert_eq!(distinct.len() + held_out(&other).len(), 299, "all but the one that repeats another");
        assert!(held_out(&other).iter().all(|key| !distinct.contains(key)), "an ancestor has not seen them");
    }

    #[test]
    fn a_shard_keeps_its_documents_when_it_is_cut_out_and_encoded() {
        let set = set();
        let index = ShardIndex::build(&set, &routes(), 3, 0.1).unwrap();
        let shard = set.subset(&index.select(&set, PathId(1), false));
        let shard = TokenSet::decode(&shard.encode(), 4000, 4).unwrap();
        assert_eq!(index.select(&shard, PathId(1), false).len(), shard.len());
        assert!(index.select(&shard, PathId(0), false).is_empty());
    }

    #[test]
    fn shards_may_overlap_but_what_is_held_out_is_shown_to_nobody_else() {
        let set = set();
        let routes: Vec<PathId> = (0..300).flat_map(|i| [PathId(i % 3), PathId((i + 1) % 3)]).collect();
        let index = ShardIndex::build(&set, &routes, 3, 0.1).unwrap();
        let documents = |path: u32, held_out| -> BTreeSet<u32> {
            index.select(&set, PathId(path), held_out).into_iter().map(|i| set.document(i)).collect()
        };
        let once = ShardIndex::build(&set, &self::routes(), 3, 0.1).unwrap();
        for path in 0..3 {
            let own: BTreeSet<u32> =
                once.select(&set, PathId(path), false).into_iter().map(|i| set.document(i)).collect();
            assert!(documents(path, false).is_superset(&own) && documents(path, false).len() > own.len());
            assert!((0..3).all(|other| documents(path, true).is_disjoint(&documents(other, false))));
        }
        let key = DocumentKey::of(&set.span(set.documents().next().unwrap()));
        let paths: Vec<u32> = index.shards.keys().filter(|(of, _)| *of == key).map(|(_, path)| path.0).collect();
        assert_eq!(paths, [0, 1]);
        assert_eq!(ShardIndex::decode(&index.encode()).unwrap(), index);
    }

    #[test]
    fn routes_that_leave_a_path_empty_or_do_not_fit_are_refused() {
        let (set, all) = (set(), vec![PathId(0); 300]);
        assert_eq!(ShardIndex::build(&set, &all, 2, 0.1), Err(ShardError::Empty { path: PathId(1) }));
        assert_eq!(ShardIndex::build(&set, &all[1..], 1, 0.1), Err(ShardError::Count { paths: 299, documents: 300 }));
        let error = ShardIndex::build(&set, &routes(), 2, 0.1).unwrap_err();
        assert_eq!(error, ShardError::NoSuchPath { path: PathId(2), paths: 2 });
    }

    #[test]
    fn an_index_has_one_encoding() {
        let index = ShardIndex::build(&set(), &routes(), 3, 0.1).unwrap();
        let bytes = index.encode();
        assert_eq!(bytes.len(), HEADER_BYTES + 299 * ENTRY_BYTES);
        assert_eq!(ShardIndex::decode(&bytes).unwrap(), index);
        let mut swapped = bytes.clone();
        swapped[HEADER_BYTES..HEADER_BYTES + 2 * ENTRY_BYTES].rotate_left(ENTRY_BYTES);
        assert_eq!(ShardIndex::decode(&swapped), Err(ShardError::Format("keys that are not in order")));
        assert!(ShardIndex::decode(&bytes[..bytes.len() - 1]).is_err());
        let mut huge = bytes;
        huge[12..16].fill(0xff);
        assert!(ShardIndex::decode(&huge).is_err());
    }

    proptest! {
        #[test]
        fn changed_bytes_never_panic_and_never_read_as_another_encoding(
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
        ) {
            let mut bytes = ShardIndex::build(&set(), &routes(), 3, 0.1).unwrap().encode();
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(index) = ShardIndex::decode(&bytes) {
                prop_assert_eq!(index.encode(), bytes);
                prop_assert_eq!(index.sizes().len(), index.paths() as usize);
            }
        }
    }
}
