//! The contributions that an update counts. A few stand in the update itself. More are a blob that the update names, so
//! that an update of a thousand fits in a gossip message.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::names::{BlobHash, BlobRef, PathId, Version};
use crate::protocol::limits::MAX_INLINE;

/// Stands where a count of contributions would, before the blob of their list.
const LISTED: u64 = u64::MAX;

/// Identifies a contribution to a module: the path, its base version, and the bytes. Where a chain has forked, or two
/// peers held the same path, only the bytes differ.
pub type ContributionKey = (PathId, Version, BlobHash);

/// A contribution, as an update counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Counted {
    /// The path.
    pub path: PathId,
    /// Its base version.
    pub parent: Version,
    /// Inner steps that led to it, as offered.
    pub steps: u32,
    /// Its integer weight: that of its path, halved for each version that it is late, and shared among the path's trainers
    /// by their steps.
    pub uncapped: u32,
    /// Its integer weight in the sum: `uncapped`, or less if its norm exceeds the cap.
    pub weight: u32,
    /// Its norm: the upper 16 bits of an f32 ([`norm_cap`](crate::protocol::reputation::norm_cap)).
    pub norm: u16,
    /// Its bytes.
    pub blob: BlobRef,
}

impl Counted {
    /// Identifies the contribution.
    pub fn key(&self) -> ContributionKey {
        (self.path, self.parent, self.blob.hash)
    }
}

/// The number of distinct worker slots.
pub fn distinct_paths(contributions: &[Counted]) -> usize {
    let mut paths: Vec<PathId> = contributions.iter().map(|counted| counted.path).collect();
    paths.sort_unstable();
    paths.dedup();
    paths.len()
}

/// Every counted contribution, in order, each once. It dereferences to the contributions. A list that was received and
/// not yet read is empty.
#[derive(Clone, PartialEq, Eq)]
pub enum Contributions {
    /// In the update.
    Inline(Vec<Counted>),
    /// In a blob.
    Listed(Listed),
}

/// A list in a blob.
#[derive(Clone, Debug)]
pub struct Listed {
    list: BlobRef,
    entries: Option<Arc<Entries>>,
}

/// The hash determines the entries.
impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Eq for Listed {}

/// The entries of a list, and their order by their bytes.
#[derive(Debug)]
pub struct Entries {
    counted: Vec<Counted>,
    by_bytes: Vec<(BlobHash, u32)>,
}

impl Entries {
    /// The entries of a list that was read.
    pub fn of(counted: Vec<Counted>) -> Arc<Self> {
        let mut by_bytes: Vec<_> = (0..).zip(&counted).map(|(at, counted)| (counted.blob.hash, at)).collect();
        by_bytes.sort_unstable();
        Arc::new(Self { counted, by_bytes })
    }
}

impl Deref for Contributions {
    type Target = [Counted];

    fn deref(&self) -> &[Counted] {
        match self {
            Self::Inline(contributions) => contributions,
            Self::Listed(Listed { entries, .. }) => entries.as_ref().map_or(&[], |entries| &entries.counted),
        }
    }
}

/// As the list that it is.
impl fmt::Debug for Contributions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(contributions) => contributions.fmt(f),
            Self::Listed(listed) => listed.fmt(f),
        }
    }
}

/// Those in the update as a plain list, so that it has the same bytes as before there were lists in blobs.
impl Serialize for Contributions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline(contributions) => contributions.serialize(serializer),
            Self::Listed(listed) => (LISTED, listed.list).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Contributions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A count, and what follows from it: the blob of a list, or so many contributions.
        deserializer.deserialize_tuple(1 + MAX_INLINE, ContributionsVisitor)
    }
}

struct ContributionsVisitor;

impl<'de> Visitor<'de> for ContributionsVisitor {
    type Value = Contributions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_INLINE} contributions, or the blob of a list of them")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<Contributions, A::Error> {
        let ends = |at| A::Error::invalid_length(at, &self);
        let count: u64 = fields.next_element()?.ok_or_else(|| ends(0))?;
        if count == LISTED {
            let list = fields.next_element()?.ok_or_else(|| ends(1))?;
            return Ok(Contributions::Listed(Listed { list, entries: None }));
        }
        let count = usize::try_from(count).ok().filter(|count| *count <= MAX_INLINE);
        let count = count.ok_or_else(|| A::Error::custom("more contributions than an update holds"))?;
        let contribution = |at| fields.next_element()?.ok_or_else(|| ends(1 + at));
        Ok(Contributions::Inline((0..count).map(contribution).collect::<Result<_, _>>()?))
    }
}

/// For tests: those that stand in the update.
#[cfg(test)]
impl std::ops::DerefMut for Contributions {
    fn deref_mut(&mut self) -> &mut [Counted] {
        match self {
            Self::Inline(contributions) => contributions,
            Self::Listed(_) => &mut [],
        }
    }
}

impl<'a> IntoIterator for &'a Contributions {
    type Item = &'a Counted;
    type IntoIter = std::slice::Iter<'a, Counted>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Contributions {
    /// In this blob, which has been read.
    pub fn listed(list: BlobRef, entries: Arc<Entries>) -> Self {
        Self::Listed(Listed { list, entries: Some(entries) })
    }

    /// The blob of the list, if there is one.
    pub fn list(&self) -> Option<BlobRef> {
        match self {
            Self::Inline(_) => None,
            Self::Listed(listed) => Some(listed.list),
        }
    }

    /// The blob of the list, if it has not been read.
    pub fn unread(&self) -> Option<BlobRef> {
        match self {
            Self::Listed(Listed { list, entries: None }) => Some(*list),
            _ => None,
        }
    }

    /// What was read in the list.
    pub fn entries(&self) -> Option<&Arc<Entries>> {
        match self {
            Self::Inline(_) => None,
            Self::Listed(listed) => listed.entries.as_ref(),
        }
    }

    /// The list was read.
    pub fn fill(&mut self, read: &Arc<Entries>) {
        if let Self::Listed(Listed { entries, .. }) = self {
            *entries = Some(read.clone());
        }
    }

    /// For tests: the same, changed.
    #[cfg(test)]
    pub fn edit(&mut self, change: impl FnOnce(&mut Vec<Counted>)) {
        let mut contributions = self.to_vec();
        change(&mut contributions);
        *self = contributions.into();
    }

    /// Without what was read, as received.
    pub fn forget(&mut self) {
        if let Self::Listed(Listed { entries, .. }) = self {
            *entries = None;
        }
    }

    /// Whether exactly this contribution is counted.
    pub fn counts(&self, contribution: ContributionKey) -> bool {
        self.binary_search_by_key(&contribution, Counted::key).is_ok()
    }

    /// The contributions of a path.
    pub fn of_path(&self, path: PathId) -> &[Counted] {
        let from = self.partition_point(|counted| counted.path < path);
        let to = self.partition_point(|counted| counted.path <= path);
        &self[from..to]
    }

    /// The contributions with these bytes, in order.
    pub fn with_bytes(&self, bytes: BlobHash) -> impl Iterator<Item = &Counted> {
        let (all, by_bytes): (&[Counted], &[(BlobHash, u32)]) = match self.entries() {
            Some(entries) => (&[], &entries.by_bytes),
            None => (self, &[]),
        };
        let from = by_bytes.partition_point(|(hash, _)| *hash < bytes);
        let listed = by_bytes[from..].iter().take_while(move |(hash, _)| *hash == bytes);
        let listed = listed.filter_map(|(_, at)| self.get(*at as usize));
        all.iter().filter(move |counted| counted.blob.hash == bytes).chain(listed)
    }
}
