//! An owner's work on the next update: the open collection, and the average that is being computed.

use super::collection::Collection;
use super::phase_durations::Durations;
use crate::clock::Millis;
use crate::names::BlobHash;

/// An average that is being computed.
#[derive(Debug)]
struct Combining {
    reads: Vec<BlobHash>,
    /// The list of contributions that it makes.
    list: Option<BlobHash>,
}

/// An owner's aggregation for one module.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Aggregation {
    /// The open collection, while this node is the owner.
    collection: Option<Collection>,
    /// How long earlier collections took.
    durations: Durations,
    /// The blobs that are read while an average is computed and applied to the state. No other average is begun
    /// meanwhile, even if this one is no longer wanted.
    combining: Option<Combining>,
}

impl Aggregation {
    pub(in crate::protocol) fn collection(&self) -> Option<&Collection> {
        self.collection.as_ref()
    }

    pub(in crate::protocol) fn collection_mut(&mut self) -> Option<&mut Collection> {
        self.collection.as_mut()
    }

    /// The longest time to collect, derived from earlier collections.
    pub(in crate::protocol) fn deadline_ms(&self) -> Option<u64> {
        self.durations.deadline_ms()
    }

    pub(in crate::protocol) fn open(&mut self, collection: Collection) {
        self.collection = Some(collection);
    }

    /// Drops the collection and returns its blobs.
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

    /// Whether the collection has closed but no average is being computed from it.
    pub(in crate::protocol) fn led_to_nothing(&self) -> bool {
        self.combining.is_none() && self.is_closing()
    }

    /// Closes the collection and computes an average from these blobs, and a list of contributions.
    pub(in crate::protocol) fn combine(&mut self, reads: Vec<BlobHash>, list: Option<BlobHash>) {
        self.collection.iter_mut().for_each(Collection::close);
        self.combining = Some(Combining { reads, list });
    }

    pub(in crate::protocol) fn is_combining(&self) -> bool {
        self.combining.is_some()
    }

    /// The average is computed. Returns the list of its contributions, if it has one; nothing if none was being computed.
    pub(in crate::protocol) fn combined(&mut self) -> Option<Option<BlobHash>> {
        self.combining.take().map(|combining| combining.list)
    }

    /// Blobs of the collection.
    pub(in crate::protocol) fn collected(&self) -> impl Iterator<Item = BlobHash> {
        self.collection.iter().flat_map(Collection::blobs)
    }

    /// All blobs that the aggregation needs, some more than once.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        let combining = self.combining.iter().flat_map(|it| it.reads.iter().copied().chain(it.list));
        self.collected().chain(combining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Version;

    #[test]
    fn only_a_closed_collection_measures_a_duration() {
        let mut aggregation = Aggregation::default();
        let collection = || {
            let collection = Collection::new(Version(1), Millis(2_000), Millis(2_000), None);
            collection.of_phase_since(Some(Millis(1_000)))
        };
        aggregation.open(collection());
        aggregation.drop_collection(Millis(9_000));
        assert_eq!(aggregation.deadline_ms(), None);
        aggregation.open(collection());
        aggregation.combine(Vec::new(), None);
        assert!(aggregation.is_closing() && !aggregation.led_to_nothing());
        assert!(aggregation.combined() == Some(None) && aggregation.led_to_nothing());
        aggregation.drop_collection(Millis(101_000));
        assert_eq!(aggregation.deadline_ms(), Some(300_000));
        assert!(!aggregation.is_closing() && aggregation.combined().is_none());
    }
}
