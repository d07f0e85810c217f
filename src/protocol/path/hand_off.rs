//! Hand-offs of paths between peers: paths that this node takes and whose trainer has not arrived, and paths that
//! another peer takes from here.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, PathId, PeerKey};
use crate::protocol::event::RequestId;
use crate::protocol::limits::HAND_OFF_REPEAT_MS;
use crate::protocol::wire::message::PathHandOff;

/// A path that was taken and waits for the state of its trainer.
#[derive(Debug)]
struct Incoming {
    from: PeerKey,
    /// Whether the previous holder trains the path until it receives the request.
    trains_on: bool,
    /// When the hand-off began.
    since: Millis,
    asked_at: Option<Millis>,
    asked: Option<RequestId>,
    state: Option<PathHandOff>,
    missing: BTreeSet<BlobHash>,
}

/// The next step of an incoming hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum Step {
    /// The hand-off has timed out.
    GiveUp,
    /// The state is known, and its blobs may be complete.
    Complete,
    /// Send the request to the holder, perhaps again.
    Ask { from: PeerKey, again: bool },
    /// A response is pending.
    Wait,
}

/// A node's hand-offs.
#[derive(Debug, Default)]
pub(in crate::protocol) struct HandOffs {
    /// Paths on their way to this node.
    incoming: BTreeMap<PathId, Incoming>,
    /// Paths on their way from this node: the peer that takes each, and since when it is not trained here any more.
    promised: BTreeMap<PathId, (PeerKey, Millis)>,
}

/// The blobs of a trainer's state.
pub(in crate::protocol) fn blobs(state: &PathHandOff) -> Vec<BlobRef> {
    let middle = state.checkpoint.iter();
    let middle = middle.flat_map(|middle| middle.start.iter().map(|(_, state)| *state).chain([middle.blob]));
    state.trainer.into_iter().chain(middle).collect()
}

impl HandOffs {
    /// A path was taken. The state of its trainer comes from this peer.
    pub(in crate::protocol) fn take(&mut self, now: Millis, path: PathId, from: PeerKey, trains_on: bool) {
        let (since, missing) = (now, BTreeSet::new());
        let incoming = Incoming { from, trains_on, since, asked_at: None, asked: None, state: None, missing };
        self.incoming.insert(path, incoming);
    }

    /// The peer from which the trainer of a path is still to come.
    pub(in crate::protocol) fn donor(&self, path: PathId) -> Option<PeerKey> {
        self.incoming.get(&path).map(|incoming| incoming.from)
    }

    /// Blobs of incoming paths that are not complete yet.
    pub(in crate::protocol) fn arrived(&self) -> impl Iterator<Item = BlobHash> {
        let states = self.incoming.values().filter_map(|incoming| incoming.state.as_ref());
        states.flat_map(blobs).map(|blob| blob.hash)
    }

    pub(in crate::protocol) fn incoming(&self) -> Vec<PathId> {
        self.incoming.keys().copied().collect()
    }

    /// The previous holder, if it trains the path until it receives the request and none was sent.
    pub(in crate::protocol) fn trains_on(&self, path: PathId) -> Option<PeerKey> {
        let incoming = self.incoming.get(&path)?;
        let unasked = incoming.state.is_none() && incoming.asked.is_none() && incoming.trains_on;
        unasked.then_some(incoming.from)
    }

    /// The path's modules are not here. Restarts the time-out, because it is too early to wait for the trainer.
    pub(in crate::protocol) fn wait_for_modules(&mut self, now: Millis, path: PathId) {
        self.incoming.entry(path).and_modify(|incoming| incoming.since = now);
    }

    pub(in crate::protocol) fn asked(&mut self, now: Millis, path: PathId, from: PeerKey, id: RequestId) {
        if let Some(incoming) = self.incoming.get_mut(&path) {
            (incoming.from, incoming.asked, incoming.asked_at) = (from, Some(id), Some(now));
        }
    }

    /// The path and the holder that this request was for.
    pub(in crate::protocol) fn answered(&mut self, id: RequestId) -> Option<(PathId, PeerKey)> {
        let asked = self.incoming.iter_mut().find(|(_, incoming)| incoming.asked == Some(id));
        let (path, incoming) = asked?;
        incoming.asked = None;
        Some((*path, incoming.from))
    }

    /// The holder has described the state of the trainer. Returns the blobs to fetch.
    pub(in crate::protocol) fn told(&mut self, path: PathId, state: PathHandOff) -> Vec<BlobRef> {
        let needed = blobs(&state);
        if let Some(incoming) = self.incoming.get_mut(&path) {
            incoming.missing = needed.iter().map(|blob| blob.hash).collect();
            incoming.state = Some(state);
        }
        needed
    }

    pub(in crate::protocol) fn arrived_one(&mut self, path: PathId, blob: BlobHash) {
        if let Some(incoming) = self.incoming.get_mut(&path) {
            incoming.missing.remove(&blob);
        }
    }

    /// Whether the state is known and none of its blobs is missing.
    pub(in crate::protocol) fn is_here(&self, path: PathId) -> bool {
        self.incoming.get(&path).is_some_and(|incoming| incoming.state.is_some() && incoming.missing.is_empty())
    }

    /// Ends the hand-off. Returns the previous holder and, if known, the state of the trainer.
    pub(in crate::protocol) fn end(&mut self, path: PathId) -> Option<(PeerKey, Option<PathHandOff>)> {
        self.incoming.remove(&path).map(|incoming| (incoming.from, incoming.state))
    }

    /// The next step for a path, given how long its bytes may take.
    pub(in crate::protocol) fn step(
        &self,
        now: Millis,
        path: PathId,
        timeout_ms: impl Fn(Option<&PathHandOff>) -> u64,
    ) -> Step {
        let Some(incoming) = self.incoming.get(&path) else { return Step::Wait };
        if now.since(incoming.since) >= timeout_ms(incoming.state.as_ref()) {
            return Step::GiveUp;
        }
        if incoming.state.is_some() {
            return Step::Complete;
        }
        let due = incoming.asked_at.is_none_or(|at| now.since(at) >= HAND_OFF_REPEAT_MS);
        if incoming.asked.is_none() && due {
            return Step::Ask { from: incoming.from, again: incoming.asked_at.is_some() };
        }
        Step::Wait
    }

    /// Another peer takes a path from here. Returns whether it was promised before.
    pub(in crate::protocol) fn promise(&mut self, now: Millis, path: PathId, to: PeerKey) -> bool {
        self.promised.insert(path, (to, now)).is_some()
    }

    /// The peer that takes a path from here, and since when.
    pub(in crate::protocol) fn promised(&self, path: PathId) -> Option<(PeerKey, Millis)> {
        self.promised.get(&path).copied()
    }

    /// Withdraws a promise.
    pub(in crate::protocol) fn withdraw(&mut self, path: PathId) {
        self.promised.remove(&path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId(1);
    const HOLDER: PeerKey = PeerKey([2; 32]);

    fn trainer() -> PathHandOff {
        PathHandOff { trainer: Some(BlobRef::of(b"trainer")), ..PathHandOff::default() }
    }

    #[test]
    fn the_holder_is_asked_until_it_responds_and_the_path_is_complete_when_all_blobs_are_here() {
        let mut hand_offs = HandOffs::default();
        let minute = |_: Option<&PathHandOff>| 60_000;
        hand_offs.take(Millis(0), PATH, HOLDER, true);
        assert_eq!(hand_offs.trains_on(PATH), Some(HOLDER));
        assert_eq!(hand_offs.step(Millis(0), PATH, minute), Step::Ask { from: HOLDER, again: false });
        hand_offs.asked(Millis(0), PATH, HOLDER, RequestId(7));
        assert_eq!(hand_offs.step(Millis(HAND_OFF_REPEAT_MS), PATH, minute), Step::Wait);
        assert_eq!(hand_offs.answered(RequestId(7)), Some((PATH, HOLDER)));
        assert_eq!(
            hand_offs.step(Millis(HAND_OFF_REPEAT_MS), PATH, minute),
            Step::Ask { from: HOLDER, again: true },
            "the response was empty"
        );
        assert_eq!(hand_offs.told(PATH, trainer()), [BlobRef::of(b"trainer")]);
        assert!(!hand_offs.is_here(PATH));
        assert_eq!(hand_offs.step(Millis(1), PATH, minute), Step::Complete);
        hand_offs.arrived_one(PATH, BlobRef::of(b"trainer").hash);
        assert!(hand_offs.is_here(PATH));
        assert_eq!(hand_offs.end(PATH), Some((HOLDER, Some(trainer()))));
    }

    #[test]
    fn a_hand_off_times_out_but_not_before_the_modules_are_here() {
        let mut hand_offs = HandOffs::default();
        let second = |_: Option<&PathHandOff>| 1_000;
        hand_offs.take(Millis(0), PATH, HOLDER, true);
        hand_offs.wait_for_modules(Millis(5_000), PATH);
        assert!(matches!(hand_offs.step(Millis(5_999), PATH, second), Step::Ask { .. }));
        assert_eq!(hand_offs.step(Millis(6_000), PATH, second), Step::GiveUp);
    }

    #[test]
    fn a_promise_holds_until_it_is_withdrawn() {
        let mut hand_offs = HandOffs::default();
        assert!(!hand_offs.promise(Millis(1), PATH, HOLDER));
        assert!(hand_offs.promise(Millis(2), PATH, HOLDER));
        assert_eq!(hand_offs.promised(PATH), Some((HOLDER, Millis(2))));
        hand_offs.withdraw(PATH);
        assert_eq!(hand_offs.promised(PATH), None);
    }
}
