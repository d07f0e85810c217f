//! The contributions that an owner collects for the next update, and when the collection closes.

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::names::{BlobHash, PathId, PeerKey, Version};
use crate::protocol::limits::{DEADLINE_FACTOR, DEADLINE_LEAST_MS, MAX_CONTRIBUTIONS, MAX_FETCHING, MAX_UNAWAITED};
use crate::protocol::module::quorum::quorum;
use crate::protocol::wire::message::{ContributionKey, Counted, Offer};

/// The progress of a contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its blob is being fetched.
    Fetching,
    /// It is being added to the sum.
    Adding,
    /// It is in the sum.
    Counted,
}

/// One contribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As offered.
    pub offer: Offer,
    /// The peer that has it.
    pub from: PeerKey,
    /// The integer weight with which it is added, before the norm cap. Its weight in the update may differ, where more or
    /// fewer trainers of its path contribute than was expected.
    pub weight: u32,
    /// Whether the collection waits for it: its author holds the path, and could be fetched from lately.
    pub awaited: bool,
    /// Its norm, once known.
    pub norm: u16,
    pub progress: Progress,
}

/// The collection for one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    target: Version,
    opened: Millis,
    /// When its phase began. This is when the head arrived, unless that time is unknown, as after a restart.
    began: Option<Millis>,
    settled: Millis,
    deadline: Option<Millis>,
    closing: bool,
    first_counted: Option<Millis>,
    last_counted: Option<Millis>,
    entries: BTreeMap<ContributionKey, Entry>,
}

/// Why a collection is still open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// The contributions of these paths are missing.
    Missing(Vec<PathId>),
    /// Contributions are being fetched or added.
    Arriving,
    /// A new owner is still listening.
    Settling,
}

impl Collection {
    pub fn new(target: Version, opened: Millis, settled: Millis, deadline: Option<Millis>) -> Self {
        Self {
            target,
            opened,
            began: None,
            settled,
            deadline,
            closing: false,
            first_counted: None,
            last_counted: None,
            entries: BTreeMap::new(),
        }
    }

    /// The same collection with the time when its phase began, if known.
    pub fn of_phase_since(mut self, began: Option<Millis>) -> Self {
        self.began = began;
        self
    }

    /// The version to make.
    pub fn target(&self) -> Version {
        self.target
    }

    pub fn opened(&self) -> Millis {
        self.opened
    }

    /// It does not close before this time, because a new owner listens first.
    pub fn settled(&self) -> Millis {
        self.settled
    }

    /// When it closes without the missing contributions; nothing until durations were measured.
    pub fn deadline(&self) -> Option<Millis> {
        self.deadline
    }

    /// Whether it has closed and the average is being computed.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Closes the collection. It accepts no more contributions.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// The duration of its phase up to the last contribution, if it closed and the beginning is known.
    pub fn took_ms(&self, now: Millis) -> Option<u64> {
        let began = self.began.filter(|_| self.closing)?;
        Some(self.last_counted.unwrap_or(now).since(began))
    }

    /// Whether further contributions may be fetched now.
    pub fn has_room(&self) -> bool {
        let fetching = self.entries.values().filter(|entry| entry.awaited && entry.progress == Progress::Fetching);
        !self.closing && fetching.count() < MAX_FETCHING && !self.is_full()
    }

    /// Whether it has this contribution, in the sum or on its way.
    pub fn has(&self, contribution: ContributionKey) -> bool {
        self.entries.contains_key(&contribution)
    }

    /// Whether a contribution is being added, which it waits for, and no deadline has passed or is still to be measured.
    pub fn is_adding(&self, now: Millis) -> bool {
        let is_adding = |entry: &Entry| entry.progress == Progress::Adding;
        now >= self.settled && self.deadline.is_some_and(|at| now < at) && self.entries.values().any(is_adding)
    }

    /// Whether this contribution may be added: the collection is open, not full, and does not have it yet.
    pub fn wants(&self, contribution: ContributionKey, awaited: bool) -> bool {
        let fetching = |entry: &&Entry| !entry.awaited && entry.progress == Progress::Fetching;
        let fits = awaited || self.entries.values().filter(fetching).count() < MAX_UNAWAITED;
        !self.closing && fits && !self.is_full() && !self.entries.contains_key(&contribution)
    }

    /// Whether the update is full. Further contributions go into the next one.
    pub fn is_full(&self) -> bool {
        let takes = |entry: &&Entry| entry.awaited || entry.progress != Progress::Fetching;
        self.entries.values().filter(takes).count() >= MAX_CONTRIBUTIONS
    }

    /// Begins to fetch or add a contribution.
    pub fn begin(&mut self, entry: Entry) {
        self.entries.insert(entry.offer.key(), entry);
    }

    /// Moves a contribution with these bytes from one state to the next; nothing if there is none in that state. Two
    /// paths may offer the same bytes, so each call moves one.
    pub fn advance(&mut self, blob: BlobHash, from: Progress, to: Progress) -> Option<&mut Entry> {
        let is_full = self.is_full();
        let may = |entry: &Entry| entry.awaited || from != Progress::Fetching || !is_full;
        let entry = self
            .entries
            .values_mut()
            .find(|entry| entry.offer.blob.hash == blob && entry.progress == from && may(entry))?;
        entry.progress = to;
        Some(entry)
    }

    /// A contribution with these bytes is in the sum and has this norm.
    pub fn count(&mut self, now: Millis, blob: BlobHash, norm: u16) {
        self.last_counted = Some(now);
        self.advance(blob, Progress::Adding, Progress::Counted).into_iter().for_each(|entry| entry.norm = norm);
    }

    /// The contributions with these bytes in this state.
    pub fn in_hand(&self, blob: BlobHash, progress: Progress) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(move |entry| entry.offer.blob.hash == blob && entry.progress == progress)
    }

    /// Drops the contributions with these bytes in this state: they cannot be had or are invalid.
    pub fn drop_blob(&mut self, blob: BlobHash, progress: Progress) {
        self.entries.retain(|_, entry| entry.offer.blob.hash != blob || entry.progress != progress);
    }

    pub fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        self.entries.values().map(|entry| entry.offer.blob.hash)
    }

    /// How many contributions are in the sum.
    pub fn counted(&self) -> usize {
        self.entries.values().filter(|entry| entry.progress == Progress::Counted).count()
    }

    /// The contributions in the sum, in order, with the weights with which they were added, as far as they are not capped.
    pub fn counted_entries(&self) -> Vec<Counted> {
        let counted = self.entries.values().filter(|entry| entry.progress == Progress::Counted);
        let as_counted = |Entry { offer, weight, norm, .. }: &Entry| Counted {
            path: offer.path,
            parent: offer.parent,
            steps: offer.steps,
            uncapped: *weight,
            weight: *weight,
            norm: *norm,
            blob: offer.blob,
        };
        counted.map(as_counted).collect()
    }

    /// How many contributions of a path to one version the collection has.
    pub fn times(&self, path: PathId, parent: Version) -> usize {
        self.of(path, parent).count()
    }

    /// Whether the sum has another contribution of the same path, trained from the same update.
    pub fn has_summed_another(&self, offer: &Offer) -> bool {
        self.of(offer.path, offer.parent).any(|entry| {
            let other = &entry.offer;
            entry.progress != Progress::Fetching
                && other.parent_update == offer.parent_update
                && other.blob.hash != offer.blob.hash
        })
    }

    /// Drops the fetched contributions with these bytes for which the sum has [another](Self::has_summed_another).
    /// Returns whether there were any.
    pub fn drop_made_twice(&mut self, blob: BlobHash) -> bool {
        let twice = |entry: &&Entry| self.has_summed_another(&entry.offer);
        let twice: Vec<_> =
            self.in_hand(blob, Progress::Fetching).filter(twice).map(|entry| entry.offer.key()).collect();
        self.entries.retain(|key, _| !twice.contains(key));
        !twice.is_empty()
    }

    /// A path's contributions to the version before the target.
    fn fresh(&self, path: PathId) -> impl Iterator<Item = Progress> {
        let fresh = self.of(path, Version(self.target.0.saturating_sub(1)));
        fresh.filter(|entry| entry.awaited || entry.progress == Progress::Counted).map(|entry| entry.progress)
    }

    /// A path's contributions to one version.
    fn of(&self, path: PathId, parent: Version) -> impl Iterator<Item = &Entry> {
        let (first, last) = ((path, parent, BlobHash([0; 32])), (path, parent, BlobHash([255; 32])));
        self.entries.range(first..=last).map(|(_, entry)| entry)
    }

    /// Whether so much of the expected weight is in that the collection can close after so many deadlines.
    fn has_quorum(&self, expected: &BTreeMap<PathId, u32>, deadlines: u64) -> bool {
        let is_there = |path| self.fresh(path).any(|progress| progress == Progress::Counted);
        quorum(expected, is_there, self.unexpected_weight(expected), deadlines)
    }

    /// The weight contributed to the version before the target by paths that were not expected, because their holders
    /// have left or moved on. It counts like any other.
    fn unexpected_weight(&self, expected: &BTreeMap<PathId, u32>) -> u64 {
        let unexpected = self.entries.values().filter(|entry| {
            let is_fresh = entry.offer.parent.next() == self.target && entry.progress == Progress::Counted;
            is_fresh && !expected.contains_key(&entry.offer.path)
        });
        unexpected.map(|entry| u64::from(entry.weight)).sum()
    }

    /// Sets the first deadline, before any durations were measured. It follows from how long half of the weight took
    /// or, if half does not arrive, from three times as long as the first contribution took. `turns` is the number of
    /// paths that one peer trains in turn.
    pub fn measure(&mut self, now: Millis, expected: &BTreeMap<PathId, u32>, turns: u64) {
        if self.deadline.is_some() || self.counted() == 0 {
            return;
        }
        let slower = DEADLINE_FACTOR * turns.max(1);
        let first = *self.first_counted.get_or_insert(now);
        let waited = now.since(self.opened) >= first.since(self.opened).saturating_mul(slower).max(DEADLINE_LEAST_MS);
        if waited || self.has_quorum(expected, 1) {
            let took_ms = now.since(self.opened).saturating_mul(slower);
            self.deadline = Some(self.opened + took_ms.max(DEADLINE_LEAST_MS));
        }
    }

    /// How many deadlines have passed.
    fn deadlines(&self, now: Millis) -> u64 {
        self.deadline.map_or(0, |deadline| now.since(self.opened) / deadline.since(self.opened).max(1))
    }

    /// Whether it can close now, given the expected paths and their weights.
    ///
    /// It closes when every expected path has contributed to the version before the target, when it is full, or at the
    /// deadline when there is a [`quorum`]. It always waits for a contribution that is being added, because the sum
    /// already contains it. It waits for no further contribution of a path of which one is in: the path's holder could
    /// offer what cannot be fetched beside its own.
    pub fn state(&self, now: Millis, expected: &BTreeMap<PathId, u32>) -> Result<(), Open> {
        if now < self.settled {
            return Err(Open::Settling);
        }
        let missing: Vec<PathId> =
            expected.keys().filter(|path| self.fresh(**path).next().is_none()).copied().collect();
        let quorum = self.has_quorum(expected, self.deadlines(now));
        if !missing.is_empty() && !quorum && !self.is_full() {
            return Err(Open::Missing(missing));
        }
        let is_in = |path: PathId| self.fresh(path).any(|progress| progress == Progress::Counted);
        let waited_for = |entry: &Entry| match entry.progress {
            Progress::Counted => false,
            Progress::Adding => true,
            Progress::Fetching => entry.awaited && !quorum && !is_in(entry.offer.path),
        };
        if self.counted() == 0 || self.entries.values().any(waited_for) {
            return Err(Open::Arriving);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BlobRef;

    fn entry(path: u32, parent: u64, progress: Progress) -> Entry {
        let blob = BlobRef::of(format!("{path} {parent}").as_bytes());
        let offer = Offer {
            path: PathId(path),
            parent: Version(parent),
            parent_update: BlobHash([0; 32]),
            router: 0,
            steps: 1,
            blob,
            sequence: 1,
        };
        Entry { offer, from: PeerKey([0; 32]), weight: 10, awaited: true, norm: 0, progress }
    }

    fn expecting(paths: &[u32]) -> BTreeMap<PathId, u32> {
        paths.iter().map(|path| (PathId(*path), 10)).collect()
    }

    fn collection(entries: Vec<Entry>) -> Collection {
        let mut collection = Collection::new(Version(4), Millis(0), Millis(100), Some(Millis(1_000)));
        for entry in entries {
            collection.begin(entry);
        }
        collection
    }

    #[test]
    fn it_closes_when_all_expected_contributions_are_in() {
        let both = collection(vec![entry(1, 3, Progress::Counted), entry(2, 3, Progress::Counted)]);
        assert_eq!(both.state(Millis(50), &expecting(&[1, 2])), Err(Open::Settling));
        assert_eq!(both.state(Millis(100), &expecting(&[1, 2])), Ok(()));
        let one = collection(vec![entry(1, 3, Progress::Counted)]);
        assert_eq!(one.state(Millis(100), &expecting(&[1, 2])), Err(Open::Missing(vec![PathId(2)])));
    }

    #[test]
    fn at_the_deadline_half_of_the_weight_is_enough_and_less_is_not() {
        let one = collection(vec![entry(1, 3, Progress::Counted)]);
        assert_eq!(one.state(Millis(1_000), &expecting(&[1, 2])), Ok(()));
        let three = expecting(&[1, 2, 3]);
        assert_eq!(one.state(Millis(1_000), &three), Err(Open::Missing(vec![PathId(2), PathId(3)])));
        assert_eq!(one.state(Millis(2_000), &three), Ok(()), "a quarter is enough at twice the deadline");
    }

    #[test]
    fn a_contribution_in_the_sum_is_waited_for_even_after_the_deadline() {
        let adding = collection(vec![entry(1, 3, Progress::Counted), entry(2, 3, Progress::Adding)]);
        assert_eq!(adding.state(Millis(2_000), &expecting(&[1, 2])), Err(Open::Arriving));
        let fetching = collection(vec![entry(1, 3, Progress::Counted), entry(2, 3, Progress::Fetching)]);
        assert_eq!(fetching.state(Millis(2_000), &expecting(&[1, 2])), Ok(()));
        assert_eq!(fetching.counted_entries().len(), 1);
    }

    #[test]
    fn an_offer_of_a_peer_without_the_path_is_not_awaited_and_does_not_stand_for_the_holders() {
        let mut phantom = entry(2, 3, Progress::Fetching);
        phantom.awaited = false;
        let both = collection(vec![entry(1, 3, Progress::Counted), phantom.clone()]);
        assert_eq!(both.state(Millis(100), &expecting(&[1])), Ok(()));
        assert_eq!(both.state(Millis(100), &expecting(&[1, 2])), Err(Open::Missing(vec![PathId(2)])));
        phantom.progress = Progress::Counted;
        let counted = collection(vec![entry(1, 3, Progress::Counted), phantom]);
        assert_eq!(counted.state(Millis(100), &expecting(&[1, 2])), Ok(()));
    }

    #[test]
    fn a_second_contribution_of_a_path_is_not_waited_for() {
        let mut second = entry(1, 3, Progress::Fetching);
        second.offer.blob = BlobRef::of(b"cannot be had");
        let both = collection(vec![entry(1, 3, Progress::Counted), second.clone()]);
        assert_eq!(both.state(Millis(100), &expecting(&[1])), Ok(()));
        let first = collection(vec![entry(1, 3, Progress::Fetching), second]);
        assert_eq!(first.state(Millis(100), &expecting(&[1])), Err(Open::Arriving), "none of the path is in");
    }

    #[test]
    fn two_contributions_of_one_path_both_count_and_so_do_equal_bytes_of_two_paths() {
        let mut rival = entry(1, 3, Progress::Adding);
        rival.offer.blob = BlobRef::of(b"another holder's");
        let mut same_bytes = entry(2, 3, Progress::Fetching);
        same_bytes.offer.blob = rival.offer.blob;
        let mut both = collection(vec![entry(1, 3, Progress::Counted), rival.clone(), same_bytes]);
        assert_eq!(both.counted(), 1);
        let blob = rival.offer.blob.hash;
        assert!(both.advance(blob, Progress::Fetching, Progress::Adding).is_some());
        assert!(both.advance(blob, Progress::Adding, Progress::Counted).is_some());
        assert!(both.advance(blob, Progress::Adding, Progress::Counted).is_some());
        assert!(both.advance(blob, Progress::Adding, Progress::Counted).is_none());
        both.drop_blob(blob, Progress::Adding);
        assert_eq!(both.counted_entries().iter().map(|counted| counted.path.0).collect::<Vec<_>>(), [1, 1, 2]);
    }

    #[test]
    fn more_paths_than_fit_in_one_update_do_not_stop_it() {
        let paths: Vec<u32> = (0..3 * MAX_CONTRIBUTIONS as u32).collect();
        let full =
            collection(paths[..MAX_CONTRIBUTIONS].iter().map(|path| entry(*path, 3, Progress::Counted)).collect());
        assert!(!full.wants((PathId(100), Version(3), BlobHash([1; 32])), true));
        assert_eq!(full.state(Millis(100), &expecting(&paths)), Ok(()));
    }

    #[test]
    fn the_first_deadline_follows_from_how_long_half_of_the_weight_took() {
        let mut first = collection(vec![]);
        first.deadline = None;
        first.measure(Millis(9_000), &expecting(&[1, 2]), 1);
        assert_eq!(first.deadline, None);
        first.begin(entry(1, 3, Progress::Counted));
        let mut in_turn = first.clone();
        first.measure(Millis(9_000), &expecting(&[1, 2]), 1);
        assert_eq!(first.deadline, Some(Millis(27_000)));
        in_turn.measure(Millis(9_000), &expecting(&[1, 2]), 4);
        assert_eq!(in_turn.deadline, Some(Millis(108_000)));
    }

    #[test]
    fn a_path_that_never_contributes_does_not_stop_the_others_for_good() {
        let mut little = collection(vec![entry(1, 3, Progress::Counted)]);
        little.deadline = None;
        let four = expecting(&[1, 2, 3, 4]);
        little.measure(Millis(9_000), &four, 1);
        assert_eq!(little.deadline, None, "half may still arrive");
        little.measure(Millis(27_000), &four, 1);
        assert_eq!(little.deadline, Some(Millis(81_000)));
        assert!(little.state(Millis(161_000), &four).is_err());
        assert_eq!(little.state(Millis(162_000), &four), Ok(()));
    }

    #[test]
    fn a_late_contribution_does_not_replace_a_fresh_one() {
        let late = collection(vec![entry(1, 3, Progress::Counted), entry(2, 2, Progress::Counted)]);
        assert_eq!(late.state(Millis(200), &expecting(&[1, 2])), Err(Open::Missing(vec![PathId(2)])));
    }
}
