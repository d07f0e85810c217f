//! The blob that lists the contributions of an update that counts many.

use serde::{Deserialize, Serialize};

use crate::names::BlobRef;
use crate::protocol::limits::{MAX_INLINE, MAX_LIST_BYTES};
use crate::protocol::wire::contributions::{Contributions, Counted, Entries};
use crate::protocol::wire::encoding::{self, framed};

/// The blob that an update with many contributions names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContributionList {
    /// As in [`Contributions`].
    pub contributions: Vec<Counted>,
}

framed! {
    ContributionList = 11, MAX_LIST_BYTES;
}

/// The blob of the list, if these contributions are so many that the update names one.
pub fn list_bytes(contributions: &[Counted]) -> Option<Vec<u8>> {
    let list = || ContributionList { contributions: contributions.to_vec() };
    // Too many for a list are too many for an update as well, which is refused.
    (contributions.len() > MAX_INLINE).then(|| encoding::encode(&list()).ok()).flatten()
}

/// The contributions in a blob; nothing if it is no list that an update could name.
pub fn read_list(bytes: &[u8]) -> Option<Vec<Counted>> {
    let list = encoding::decode::<ContributionList>(bytes).ok()?;
    Some(list.contributions).filter(|contributions| contributions.len() > MAX_INLINE)
}

impl From<Vec<Counted>> for Contributions {
    fn from(contributions: Vec<Counted>) -> Self {
        match list_bytes(&contributions) {
            None => Self::Inline(contributions),
            Some(bytes) => Self::listed(BlobRef::of(&bytes), Entries::of(contributions)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobHash, PathId, Version};
    use crate::protocol::limits::MAX_CONTRIBUTIONS;

    fn counted(path: u32, parent: u64) -> Counted {
        let blob = BlobRef::of(&(path % 7).to_le_bytes());
        Counted { path: PathId(path), parent: Version(parent), steps: 1, uncapped: 1, weight: 1, norm: 0, blob }
    }

    fn contributions(paths: usize) -> Contributions {
        (0..paths as u32).map(|path| counted(path, 3)).collect::<Vec<_>>().into()
    }

    #[test]
    fn more_contributions_than_fit_in_an_update_are_a_blob_and_read_alike() {
        let (few, many) = (contributions(MAX_INLINE), contributions(MAX_INLINE + 1));
        assert_eq!((few.list(), many.unread()), (None, None));
        let mut read = many.clone();
        read.forget();
        assert_eq!((read.unread(), read.len()), (many.list(), 0));
        let bytes = list_bytes(&many).unwrap();
        assert_eq!(many.list(), Some(BlobRef::of(&bytes)));
        read.fill(&Entries::of(read_list(&bytes).unwrap()));
        assert_eq!((read.unread(), &read[..]), (None, &many[..]));
        assert!(list_bytes(&contributions(MAX_CONTRIBUTIONS)).is_some());
        assert!(list_bytes(&contributions(MAX_CONTRIBUTIONS + 1)).is_none());
    }

    #[test]
    fn a_list_as_short_as_an_update_holds_itself_is_refused() {
        let short = ContributionList { contributions: contributions(MAX_INLINE).to_vec() };
        assert_eq!(read_list(&encoding::encode(&short).unwrap()), None);
    }

    #[test]
    fn contributions_are_found_by_path_key_and_bytes_in_lists_of_any_length() {
        for contributions in [contributions(20), contributions(200)] {
            let nine = counted(9, 3);
            assert!(contributions.counts(nine.key()) && !contributions.counts(counted(9, 4).key()));
            assert_eq!(contributions.of_path(PathId(9)), [nine]);
            let paths = contributions.with_bytes(nine.blob.hash).map(|counted| counted.path.0);
            let expected = contributions.iter().map(|counted| counted.path.0).filter(|path| path % 7 == 2);
            assert!(paths.eq(expected));
            assert_eq!(contributions.with_bytes(BlobHash([0; 32])).count(), 0);
        }
    }
}
