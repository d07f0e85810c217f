//! Updates that are not yet the head: the next one, those to replay after it, and those that a worker is applying.

use std::collections::{BTreeSet, VecDeque};

use crate::clock::Millis;
use crate::names::{BlobHash, Version};
use crate::protocol::limits::MAX_REFUSED;
use crate::protocol::wire::message::{SignedUpdate, UpdateHash};

/// The next update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Next {
    pub(in crate::protocol) signed: SignedUpdate,
    /// Whether the update was published while this node was not listening, at an unknown time.
    pub(in crate::protocol) missed: bool,
    /// Whether it is being applied.
    applying: bool,
    /// Since when its average is here.
    here_since: Option<Millis>,
}

/// An average that is being applied. Results come back in the order of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Apply {
    from: BlobHash,
    average: BlobHash,
    /// False if the chain was abandoned meanwhile.
    wanted: bool,
}

/// A module's updates that are not yet its head.
#[derive(Debug, Default)]
pub(in crate::protocol) struct ApplyQueue {
    next: Option<Next>,
    /// Updates to replay after the next one.
    replay: VecDeque<SignedUpdate>,
    /// Averages being applied, in order.
    applies: VecDeque<Apply>,
    /// Updates whose computed state differed from the claimed one.
    refused: BTreeSet<UpdateHash>,
}

impl ApplyQueue {
    pub(in crate::protocol) fn next(&self) -> Option<&SignedUpdate> {
        self.next.as_ref().map(|next| &next.signed)
    }

    pub(in crate::protocol) fn is_applying(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.applying)
    }

    /// Whether no update is next and no average is being applied, wanted or not.
    pub(in crate::protocol) fn is_empty(&self) -> bool {
        self.next.is_none() && self.applies.is_empty()
    }

    /// Sets the next update and returns the previous one.
    pub(in crate::protocol) fn set_next(&mut self, signed: SignedUpdate, missed: bool) -> Option<Next> {
        self.next.replace(Next { signed, missed, applying: false, here_since: None })
    }

    /// Abandons the next update and those to replay after it. Returns the next update.
    pub(in crate::protocol) fn abandon(&mut self) -> Option<Next> {
        self.replay.clear();
        self.applies.iter_mut().for_each(|apply| apply.wanted = false);
        self.next.take()
    }

    /// Whether the next update has this average and waits for it.
    pub(in crate::protocol) fn waits_for(&self, average: BlobHash) -> bool {
        self.next.as_ref().is_some_and(|next| !next.applying && next.signed.update.average.hash == average)
    }

    /// The average of the next update is here.
    pub(in crate::protocol) fn average_is_here(&mut self, now: Millis) {
        self.next.iter_mut().for_each(|next| next.here_since = Some(now));
    }

    /// The update that can be applied, and since when.
    pub(in crate::protocol) fn ready(&self) -> Option<(&SignedUpdate, Millis)> {
        let next = self.next.as_ref().filter(|next| !next.applying)?;
        Some((&next.signed, next.here_since?))
    }

    /// Begins to apply the next update to this state.
    pub(in crate::protocol) fn begin(&mut self, from: BlobHash) {
        let Some(next) = &mut self.next else { return };
        next.applying = true;
        self.applies.push_back(Apply { from, average: next.signed.update.average.hash, wanted: true });
    }

    /// The oldest average was applied. Returns whether it is still wanted.
    pub(in crate::protocol) fn applied(&mut self) -> bool {
        self.applies.pop_front().is_some_and(|apply| apply.wanted)
    }

    /// The update that was being applied, if it makes this version.
    pub(in crate::protocol) fn take_applied(&mut self, version: Version) -> Option<Next> {
        self.next.take_if(|next| next.applying && next.signed.update.version == version)
    }

    /// Remembers an update whose computed state differed from the claimed one.
    pub(in crate::protocol) fn refuse(&mut self, update: UpdateHash) {
        if self.refused.len() >= MAX_REFUSED {
            self.refused.pop_first();
        }
        self.refused.insert(update);
    }

    pub(in crate::protocol) fn has_refused(&self, update: UpdateHash) -> bool {
        self.refused.contains(&update)
    }

    /// Sets the missed updates to replay.
    pub(in crate::protocol) fn replay(&mut self, updates: Vec<SignedUpdate>) {
        self.replay = updates.into();
    }

    pub(in crate::protocol) fn is_replaying(&self) -> bool {
        !self.replay.is_empty()
    }

    /// The update to replay after this version.
    pub(in crate::protocol) fn next_to_replay(&mut self, known: Version) -> Option<SignedUpdate> {
        self.replay.retain(|signed| signed.update.version > known);
        self.replay.pop_front()
    }

    /// All blobs that the queue needs, some more than once.
    pub(in crate::protocol) fn blobs(&self) -> impl Iterator<Item = BlobHash> {
        let next = self.next().into_iter().flat_map(|signed| [signed.update.average.hash, signed.update.state.hash]);
        let lists = self.next().into_iter().chain(&self.replay).filter_map(|signed| signed.update.contributions.list());
        next.chain(lists.map(|list| list.hash)).chain(self.applies.iter().flat_map(|apply| [apply.from, apply.average]))
    }

    /// How many updates are refused, wait for replay, and are being applied.
    pub(in crate::protocol) fn counts(&self) -> [usize; 3] {
        [self.refused.len(), self.replay.len(), self.applies.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::Chain;
    use super::super::chain::made_up::next;
    use super::*;
    use crate::names::BlobRef;

    fn signed() -> SignedUpdate {
        next(&Chain::genesis(BlobRef::of(b"genesis")), 0, 1)
    }

    #[test]
    fn an_update_is_applied_once_its_average_is_here() {
        let (mut queue, signed) = (ApplyQueue::default(), signed());
        assert_eq!(queue.set_next(signed.clone(), false), None);
        assert!(queue.ready().is_none() && queue.waits_for(signed.update.average.hash));
        queue.average_is_here(Millis(3));
        assert_eq!(queue.ready(), Some((&signed, Millis(3))));
        queue.begin(BlobHash([1; 32]));
        assert!(queue.ready().is_none() && queue.is_applying() && queue.applied());
        assert_eq!(queue.take_applied(Version(9)), None);
        assert_eq!(queue.take_applied(Version(1)).map(|next| next.signed), Some(signed));
        assert!(queue.is_empty());
    }

    #[test]
    fn an_application_begun_on_an_abandoned_chain_is_not_wanted() {
        let mut queue = ApplyQueue::default();
        queue.set_next(signed(), false);
        queue.begin(BlobHash([1; 32]));
        queue.replay(vec![signed()]);
        assert!(queue.abandon().is_some() && !queue.is_replaying() && !queue.is_empty());
        assert!(!queue.applied() && queue.is_empty());
    }

    #[test]
    fn the_number_of_refused_updates_is_bounded() {
        let mut queue = ApplyQueue::default();
        (0..=MAX_REFUSED as u8).for_each(|update| queue.refuse(BlobHash([update; 32])));
        assert_eq!(queue.counts(), [MAX_REFUSED, 0, 0]);
        assert!(queue.has_refused(BlobHash([MAX_REFUSED as u8; 32])) && !queue.has_refused(BlobHash([0; 32])));
    }
}
