//! What an owner has in hand for the next update: the open collection, and the average that is being made.

use super::collection::Collection;
use super::durations::Durations;
use crate::clock::Millis;
use crate::names::BlobHash;

/// An owner's aggregation for one module.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Aggregation {
    /// While this node is the owner.
    collection: Option<Collection>,
    /// How long collections took.
    durations: Durations,
    /// What is read while an average is made and tried on the state, wanted or not; no other is begun meanwhile.
    combining: Option<Vec<BlobHash>>,
}

impl Aggregation {
    pub(in crate::protocol) fn collection(&self) -> Option<&Collection> {
        self.collection.as_ref()
    }

    pub(in crate::protocol) fn collection_mut(&mut self) -> Option<&mut Collection> {
        self.collection.as_mut()
    }

    /// How long to collect at the most, by how long it took before.
    pub(in crate::protocol) fn deadline_ms(&self) -> Option<u64> {
        self.durations.deadline_ms()
    }

    pub(in crate::protocol) fn open(&mut self, collection: Collection) {
        self.collection = Some(collection);
    }

    /// Collects no longer. Returns the collection's blobs.
    pub(in crate::protocol) fn drop_collection(&mut self, now: Millis) -> Vec<BlobHash> {
        let Some(dropped) = self.collection.take() else { return Vec::new() };
        if let Some(took_ms) = dropped.took_ms(now) {
            self.durations.add(took_ms);
        }
        dropped.blobs().collect()
    }

    /// Whether the collection has closed.
    pub(in crate::protocol) fn is_closing(&self) -> bool {
        self.collection.as_ref().is_some_and(Collection::is_closing)
    }

    /// Whether the collection has closed and no average is made of it.
    pub(in crate::protocol) fn led_to_nothing(&self) -> bool {
        self.combining.is_none() && self.is_closing()
    }

    /// The collection closes, and these blobs are read.
    pub(in crate::protocol) fn combine(&mut self, reads: Vec<BlobHash>) {
        self.collection.iter_mut().for_each(Collection::close);
        self.combining = Some(reads);
    }

    pub(in crate::protocol) fn is_combining(&self) -> bool {
        self.combining.is_some()
    }

    /// An average was made. Whether one was being made.
    pub(in crate::protocol) fn combined(&mut self) -> bool {
        self.combining.take().is_some()
    }

    /// Blobs that were offered for the next update and are in hand.
    pub(in crate::protocol) fn collected(&self) -> impl Iterator<Item = BlobHash> {
        self.collection.iter().flat_map(Collection::blobs)
    }

    /// Blobs that are needed for it, some more than once.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        self.collected().chain(self.combining.iter().flatten().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Version;

    #[test]
    fn only_a_collection_that_closed_says_how_long_one_takes() {
        let mut aggregation = Aggregation::default();
        let collection = || {
            let collection = Collection::new(Version(1), Millis(2_000), Millis(2_000), None);
            collection.of_phase_since(Some(Millis(1_000)))
        };
        aggregation.open(collection());
        aggregation.drop_collection(Millis(9_000));
        assert_eq!(aggregation.deadline_ms(), None);
        aggregation.open(collection());
        aggregation.combine(Vec::new());
        assert!(aggregation.is_closing() && !aggregation.led_to_nothing());
        assert!(aggregation.combined() && aggregation.led_to_nothing());
        aggregation.drop_collection(Millis(101_000));
        assert_eq!(aggregation.deadline_ms(), Some(300_000));
        assert!(!aggregation.is_closing() && !aggregation.combined());
    }
}
