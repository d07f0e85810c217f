//! The offers that a member has heard and its chain has not counted.

use std::collections::{BTreeMap, BTreeSet};

use super::chain::Chain;
use crate::names::{BlobHash, BlobRef, PathId, PeerKey, Version};
use crate::protocol::limits::VERSIONS_KEPT;
use crate::protocol::wire::message::{ContributionKey, Offer, Update, UpdateHash};

/// Whether a contribution to one version can be counted at a head, now or once the head has caught up with that
/// version.
pub(in crate::protocol) fn countable(head: Version, parent: Version) -> bool {
    head.0.saturating_sub(parent.0) < VERSIONS_KEPT && parent.0.saturating_sub(head.0) <= VERSIONS_KEPT
}

/// An offer, as it is found by its bytes.
type ByBytes = (BlobHash, PathId, Version);

fn by_bytes((path, parent, bytes): ContributionKey) -> ByBytes {
    (bytes, path, parent)
}

/// Drops the offers that do not stay.
fn retain(
    heard: &mut BTreeMap<ContributionKey, (Offer, PeerKey)>,
    index: &mut BTreeSet<ByBytes>,
    stays: impl Fn(&ContributionKey, &(Offer, PeerKey)) -> bool,
) {
    heard.retain(|key, offer| {
        let stays = stays(key, offer);
        if !stays {
            index.remove(&by_bytes(*key));
        }
        stays
    });
}

/// The offers heard for one module, each with the peer that made it first.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Offers {
    heard: BTreeMap<ContributionKey, (Offer, PeerKey)>,
    /// The same, by their bytes.
    by_bytes: BTreeSet<ByBytes>,
    /// What was offered too, and is not taken in because its author or its path has offered enough. The oldest come first.
    beyond: BTreeSet<(Version, ContributionKey)>,
    /// The base updates of counted contributions, as far as they were heard since this chain is followed.
    counted_from: BTreeSet<(PathId, Version, UpdateHash)>,
}

impl Offers {
    pub(in crate::protocol) fn len(&self) -> usize {
        self.heard.len().max(self.beyond.len())
    }

    pub(in crate::protocol) fn contains(&self, key: &ContributionKey) -> bool {
        self.heard.contains_key(key)
    }

    /// Whether anybody has offered this, taken in or not.
    pub(in crate::protocol) fn was_heard(&self, key: &ContributionKey) -> bool {
        self.contains(key) || self.beyond.contains(&(key.1, *key))
    }

    /// Notes an offer that is not taken in. Of too many, one for a version after the head is forgotten, or the oldest.
    pub(in crate::protocol) fn note_beyond(&mut self, head: Version, most: usize, key: ContributionKey) {
        self.beyond.insert((key.1, key));
        if self.beyond.len() > most {
            let after = self.beyond.last().is_some_and(|(parent, _)| *parent > head);
            let _ = if after { self.beyond.pop_last() } else { self.beyond.pop_first() };
        }
    }

    /// An offer and the peer that made it first.
    pub(in crate::protocol) fn get(&self, key: &ContributionKey) -> Option<&(Offer, PeerKey)> {
        self.heard.get(key)
    }

    pub(in crate::protocol) fn keys(&self) -> impl Iterator<Item = ContributionKey> {
        self.heard.keys().copied()
    }

    /// The offers of these bytes, in the order of path and version.
    pub(in crate::protocol) fn with_bytes(&self, bytes: BlobHash) -> impl Iterator<Item = ContributionKey> {
        let (first, last) = ((bytes, PathId(0), Version(0)), (bytes, PathId(u32::MAX), Version(u64::MAX)));
        self.by_bytes.range(first..=last).map(|(bytes, path, parent)| (*path, *parent, *bytes))
    }

    /// All offers, in the order of path, version and bytes.
    pub(in crate::protocol) fn all(&self) -> impl Iterator<Item = &(Offer, PeerKey)> {
        self.heard.values()
    }

    /// The peers that offer these bytes.
    pub(in crate::protocol) fn authors(&self, blob: BlobRef) -> impl Iterator<Item = PeerKey> {
        let offers = self.with_bytes(blob.hash).filter_map(|key| self.heard.get(&key));
        offers.filter(move |(offer, _)| offer.blob == blob).map(|(_, author)| *author)
    }

    fn of(&self, path: PathId, parent: Version) -> impl Iterator<Item = &(Offer, PeerKey)> {
        let (first, last) = ((path, parent, BlobHash([0; 32])), (path, parent, BlobHash([255; 32])));
        self.heard.range(first..=last).map(|(_, offer)| offer)
    }

    /// Whether a path has offered a contribution to a version.
    pub(in crate::protocol) fn has_offered(&self, path: PathId, parent: Version) -> bool {
        self.of(path, parent).next().is_some()
    }

    /// Whether one of these peers has offered something of a path for a version.
    pub(in crate::protocol) fn is_offered_by(
        &self,
        path: PathId,
        parent: Version,
        is_one: impl Fn(PeerKey) -> bool,
    ) -> bool {
        self.of(path, parent).any(|(_, author)| is_one(*author))
    }

    /// The number of different contributions of a path to a version that one peer has offered.
    pub(in crate::protocol) fn times_by(&self, author: PeerKey, path: PathId, parent: Version) -> usize {
        self.of(path, parent).filter(|(_, by)| *by == author).count()
    }

    /// The peers whose contributions of one path to so many versions are not counted, although each could have been
    /// counted in as many updates.
    pub(in crate::protocol) fn passed_over(&self, head: Version, versions: u64) -> BTreeSet<(PathId, PeerKey)> {
        let mut offered: BTreeMap<(PathId, PeerKey), BTreeSet<Version>> = BTreeMap::new();
        for (offer, author) in self.all().filter(|(offer, _)| offer.parent.0 + versions <= head.0) {
            offered.entry((offer.path, *author)).or_default().insert(offer.parent);
        }
        offered.into_iter().filter(|(_, parents)| parents.len() as u64 >= versions).map(|(key, _)| key).collect()
    }

    /// How many contributions to a version a path has offered.
    pub(in crate::protocol) fn times(&self, path: PathId, parent: Version) -> usize {
        self.of(path, parent).count()
    }

    /// Adds an offer. When the table has as many as it may, the offer furthest from the head is dropped, which may be this one.
    pub(in crate::protocol) fn add(&mut self, head: Version, most: usize, offer: Offer, author: PeerKey) {
        if self.heard.len() >= most {
            let distance = |parent: Version| parent.0.abs_diff(head.0);
            let Some(furthest) = self.heard.keys().copied().max_by_key(|(_, parent, _)| distance(*parent)) else {
                return;
            };
            if distance(furthest.1) <= distance(offer.parent) {
                return;
            }
            self.heard.remove(&furthest);
            self.by_bytes.remove(&by_bytes(furthest));
        }
        self.by_bytes.insert(by_bytes(offer.key()));
        self.heard.insert(offer.key(), (offer, author));
    }

    /// Puts an offer in the place of another one with the same key.
    pub(in crate::protocol) fn replace(&mut self, offer: Offer, author: PeerKey) {
        self.heard.insert(offer.key(), (offer, author));
    }

    /// Drops the offers of these bytes: they are no valid contribution or cannot be had.
    pub(in crate::protocol) fn drop_blob(&mut self, blob: BlobHash) {
        let gone: Vec<ContributionKey> = self.with_bytes(blob).collect();
        for key in gone {
            self.heard.remove(&key);
            self.by_bytes.remove(&by_bytes(key));
        }
    }

    /// Drops all offers of a peer.
    pub(in crate::protocol) fn drop_author(&mut self, author: PeerKey) {
        retain(&mut self.heard, &mut self.by_bytes, |_, (_, by)| *by != author);
    }

    /// Whether a contribution of this path that was trained from this update is counted.
    pub(in crate::protocol) fn is_counted_from(&self, start: (PathId, Version, UpdateHash)) -> bool {
        self.counted_from.contains(&start)
    }

    /// Notes the base updates of the contributions in the next update. A contribution whose offer was not heard is
    /// assumed to have the update's parent as its base, if it is not late.
    pub(in crate::protocol) fn note_counted_from(&mut self, next: &Update) {
        for counted in &next.contributions {
            let heard = self.heard.get(&counted.key()).map(|(offer, _)| offer.parent_update);
            let in_time = (counted.parent.next() == next.version).then_some(next.parent);
            self.counted_from.extend(heard.or(in_time).map(|from| (counted.path, counted.parent, from)));
        }
    }

    /// The node now follows another chain.
    pub(in crate::protocol) fn clear_counted_from(&mut self) {
        self.counted_from.clear();
    }

    /// Drops the offers that the chain has counted, or of which it has counted a rival, or that it cannot count any
    /// more.
    pub(in crate::protocol) fn prune(&mut self, chain: &Chain) {
        let head = chain.head().version;
        let open = |parent: Version| countable(head, parent);
        self.counted_from.retain(|(_, parent, _)| open(*parent));
        self.beyond.retain(|(parent, _)| open(*parent));
        let counted_from = &self.counted_from;
        let twice = |offer: &Offer| counted_from.contains(&offer.start());
        let stays = |key: &ContributionKey, (offer, _): &_| open(key.1) && !chain.has_counted(*key) && !twice(offer);
        retain(&mut self.heard, &mut self.by_bytes, stays);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::limits::MAX_OFFERS;

    fn offer(path: u32, parent: u64) -> Offer {
        let blob = BlobRef::of(format!("{path} {parent}").as_bytes());
        Offer {
            path: PathId(path),
            parent: Version(parent),
            parent_update: BlobHash([0; 32]),
            router: 0,
            steps: 1,
            blob,
            sequence: 1,
        }
    }

    #[test]
    fn a_full_table_drops_the_offer_furthest_from_the_head() {
        let (author, head) = (PeerKey([1; 32]), Version(9));
        let mut offers = Offers::default();
        (0..MAX_OFFERS as u32 - 1).for_each(|path| offers.add(head, MAX_OFFERS, offer(path, 9), author));
        offers.add(head, MAX_OFFERS, offer(0, 3), author);
        offers.add(head, MAX_OFFERS, offer(0, 2), author);
        assert!(offers.has_offered(PathId(0), Version(3)) && !offers.has_offered(PathId(0), Version(2)));
        offers.add(head, MAX_OFFERS, offer(0, 8), author);
        assert!(!offers.has_offered(PathId(0), Version(3)) && offers.has_offered(PathId(0), Version(8)));
        assert_eq!(offers.len(), MAX_OFFERS);
    }

    #[test]
    fn counted_and_outdated_offers_are_dropped() {
        let chain = Chain::genesis(BlobRef::of(b"genesis"));
        let mut offers = Offers::default();
        offers.add(Version(0), MAX_OFFERS, offer(0, 0), PeerKey([1; 32]));
        offers.add(Version(0), MAX_OFFERS, offer(1, VERSIONS_KEPT + 1), PeerKey([1; 32]));
        offers.prune(&chain);
        assert!(offers.keys().eq([offer(0, 0).key()]));
        offers.drop_author(PeerKey([1; 32]));
        assert_eq!(offers.len(), 0);
    }

    #[test]
    fn a_peer_is_passed_over_when_two_updates_have_left_out_what_it_offered_to_each_of_two_versions() {
        let (author, other) = (PeerKey([1; 32]), PeerKey([2; 32]));
        let mut offers = Offers::default();
        offers.add(Version(3), MAX_OFFERS, offer(0, 3), author);
        offers.add(Version(3), MAX_OFFERS, offer(1, 3), other);
        offers.add(Version(4), MAX_OFFERS, offer(0, 4), author);
        assert!(offers.passed_over(Version(5), 2).is_empty(), "one update could have counted the second");
        assert_eq!(offers.passed_over(Version(6), 2), BTreeSet::from([(PathId(0), author)]));
    }

    #[test]
    fn what_is_not_taken_in_is_known_to_have_been_offered() {
        let mut offers = Offers::default();
        for parent in 0..=MAX_OFFERS as u64 {
            offers.note_beyond(Version(MAX_OFFERS as u64), MAX_OFFERS, offer(0, parent).key());
        }
        let known = [0, 1, MAX_OFFERS as u64].map(|parent| offers.was_heard(&offer(0, parent).key()));
        assert_eq!((known, offers.len()), ([false, true, true], MAX_OFFERS), "the oldest is forgotten");
        offers.note_beyond(Version(9), MAX_OFFERS, offer(1, 9).key());
        assert!(!offers.was_heard(&offer(0, MAX_OFFERS as u64).key()), "what cannot be counted yet goes before");
        assert!(offers.was_heard(&offer(1, 9).key()));
        assert!(!offers.contains(&offer(0, 1).key()) && !offers.was_heard(&offer(1, 1).key()));
    }
}
