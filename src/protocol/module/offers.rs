//! Offers of contributions that a member has heard and its chain has not counted.

use std::collections::{BTreeMap, BTreeSet};

use super::chain::Chain;
use crate::names::{BlobHash, BlobRef, PathId, PeerKey, Version};
use crate::protocol::limits::{MAX_OFFERS, VERSIONS_KEPT};
use crate::protocol::wire::message::{ContributionKey, Offer, Update, UpdateHash};

/// Whether a contribution to one version can be counted at a head, now or once the head has caught up with it.
pub(in crate::protocol) fn countable(head: Version, parent: Version) -> bool {
    head.0.saturating_sub(parent.0) < VERSIONS_KEPT && parent.0.saturating_sub(head.0) <= VERSIONS_KEPT
}

/// Offers heard for one module, and who has made each of them first.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Offers {
    heard: BTreeMap<ContributionKey, (Offer, PeerKey)>,
    /// From which updates what is counted was trained, as far as that was heard since the chain is followed.
    counted_from: BTreeSet<(PathId, Version, UpdateHash)>,
}

impl Offers {
    pub(in crate::protocol) fn len(&self) -> usize {
        self.heard.len()
    }

    pub(in crate::protocol) fn contains(&self, key: &ContributionKey) -> bool {
        self.heard.contains_key(key)
    }

    /// An offer and who has made it first.
    pub(in crate::protocol) fn get(&self, key: &ContributionKey) -> Option<&(Offer, PeerKey)> {
        self.heard.get(key)
    }

    pub(in crate::protocol) fn keys(&self) -> impl Iterator<Item = ContributionKey> {
        self.heard.keys().copied()
    }

    /// All of them, by path, version and bytes.
    pub(in crate::protocol) fn all(&self) -> impl Iterator<Item = &(Offer, PeerKey)> {
        self.heard.values()
    }

    /// Who offers these bytes.
    pub(in crate::protocol) fn authors(&self, blob: BlobRef) -> impl Iterator<Item = PeerKey> {
        self.all().filter(move |(offer, _)| offer.blob == blob).map(|(_, author)| *author)
    }

    fn of(&self, path: PathId, parent: Version) -> impl Iterator<Item = &(Offer, PeerKey)> {
        let (first, last) = ((path, parent, BlobHash([0; 32])), (path, parent, BlobHash([255; 32])));
        self.heard.range(first..=last).map(|(_, offer)| offer)
    }

    /// Whether a path has offered something for a version.
    pub(in crate::protocol) fn has_offered(&self, path: PathId, parent: Version) -> bool {
        self.of(path, parent).next().is_some()
    }

    /// How often a path has offered something for a version.
    pub(in crate::protocol) fn times(&self, path: PathId, parent: Version) -> usize {
        self.of(path, parent).count()
    }

    /// Takes in an offer. Where there are too many, the one furthest from the head goes, unless that is this one.
    pub(in crate::protocol) fn add(&mut self, head: Version, offer: Offer, author: PeerKey) {
        if self.heard.len() >= MAX_OFFERS {
            let distance = |parent: Version| parent.0.abs_diff(head.0);
            let Some(furthest) = self.heard.keys().copied().max_by_key(|(_, parent, _)| distance(*parent)) else {
                return;
            };
            if distance(furthest.1) <= distance(offer.parent) {
                return;
            }
            self.heard.remove(&furthest);
        }
        self.heard.insert(offer.key(), (offer, author));
    }

    /// These bytes are no contribution, or cannot be had.
    pub(in crate::protocol) fn drop_blob(&mut self, blob: BlobHash) {
        self.heard.retain(|_, (offer, _)| offer.blob.hash != blob);
    }

    /// What a peer offers is not counted any more.
    pub(in crate::protocol) fn drop_author(&mut self, author: PeerKey) {
        self.heard.retain(|_, (_, by)| *by != author);
    }

    /// Whether a contribution was counted that was trained of this path from this update.
    pub(in crate::protocol) fn is_counted_from(&self, start: (PathId, Version, UpdateHash)) -> bool {
        self.counted_from.contains(&start)
    }

    /// What the next update counts began where its offer says; of who was not heard, where those do that are in time.
    pub(in crate::protocol) fn note_counted_from(&mut self, next: &Update) {
        for counted in &next.contributions {
            let heard = self.heard.get(&counted.key()).map(|(offer, _)| offer.parent_update);
            let in_time = (counted.parent.next() == next.version).then_some(next.parent);
            self.counted_from.extend(heard.or(in_time).map(|from| (counted.path, counted.parent, from)));
        }
    }

    /// Another chain is followed from now on.
    pub(in crate::protocol) fn clear_counted_from(&mut self) {
        self.counted_from.clear();
    }

    /// Drops what the chain has counted by now, itself or another's in its place, or cannot count any more.
    pub(in crate::protocol) fn prune(&mut self, chain: &Chain) {
        let head = chain.head().version;
        let open = |parent: Version| countable(head, parent);
        self.counted_from.retain(|(_, parent, _)| open(*parent));
        let twice = |offer: &Offer| self.counted_from.contains(&offer.start());
        self.heard.retain(|key, (offer, _)| open(key.1) && !chain.has_counted(*key) && !twice(offer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(path: u32, parent: u64) -> Offer {
        let blob = BlobRef::of(format!("{path} {parent}").as_bytes());
        Offer {
            path: PathId(path),
            parent: Version(parent),
            parent_update: BlobHash([0; 32]),
            router: 0,
            blob,
            sequence: 1,
        }
    }

    #[test]
    fn of_too_many_offers_the_one_furthest_from_the_head_goes() {
        let (author, head) = (PeerKey([1; 32]), Version(9));
        let mut offers = Offers::default();
        (0..MAX_OFFERS as u32 - 1).for_each(|path| offers.add(head, offer(path, 9), author));
        offers.add(head, offer(0, 3), author);
        offers.add(head, offer(0, 2), author);
        assert!(offers.has_offered(PathId(0), Version(3)) && !offers.has_offered(PathId(0), Version(2)));
        offers.add(head, offer(0, 8), author);
        assert!(!offers.has_offered(PathId(0), Version(3)) && offers.has_offered(PathId(0), Version(8)));
        assert_eq!(offers.len(), MAX_OFFERS);
    }

    #[test]
    fn what_is_counted_or_too_old_is_dropped() {
        let chain = Chain::genesis(BlobRef::of(b"genesis"));
        let mut offers = Offers::default();
        offers.add(Version(0), offer(0, 0), PeerKey([1; 32]));
        offers.add(Version(0), offer(1, VERSIONS_KEPT + 1), PeerKey([1; 32]));
        offers.prune(&chain);
        assert!(offers.keys().eq([offer(0, 0).key()]));
        offers.drop_author(PeerKey([1; 32]));
        assert_eq!(offers.len(), 0);
    }
}
