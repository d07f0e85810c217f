//! Paths on their way from peer to peer: those that this node takes and whose trainer is still to come, and those that
//! another takes from here.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, PathId, PeerKey};
use crate::protocol::event::RequestId;
use crate::protocol::limits::HAND_OFF_REPEAT_MS;
use crate::protocol::wire::message::PathHandOff;

/// A path that was taken and waits for its trainer.
#[derive(Debug)]
struct Incoming {
    from: PeerKey,
    /// The holder trains the path until it is asked.
    trains_on: bool,
    /// When it was asked for first.
    since: Millis,
    asked_at: Option<Millis>,
    asked: Option<RequestId>,
    state: Option<PathHandOff>,
    missing: BTreeSet<BlobHash>,
}

/// What is to be done about an incoming path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum Step {
    /// It has taken too long.
    GiveUp,
    /// What has arrived may be all.
    Complete,
    /// Its holder is asked, again if it was before.
    Ask { from: PeerKey, again: bool },
    /// An answer is to come.
    Wait,
}

/// A node's hand-offs.
#[derive(Debug, Default)]
pub(in crate::protocol) struct HandOffs {
    /// To this node.
    incoming: BTreeMap<PathId, Incoming>,
    /// From this node: who takes it, and since when it is not trained here any more.
    promised: BTreeMap<PathId, (PeerKey, Millis)>,
}

/// The blobs that a path's trainer consists of.
pub(in crate::protocol) fn blobs(state: &PathHandOff) -> Vec<BlobRef> {
    let middle = state.checkpoint.iter();
    let middle = middle.flat_map(|middle| middle.start.iter().map(|(_, state)| *state).chain([middle.blob]));
    state.trainer.into_iter().chain(middle).collect()
}

impl HandOffs {
    /// A path was taken, and its trainer is to come from this peer.
    pub(in crate::protocol) fn take(&mut self, now: Millis, path: PathId, from: PeerKey, trains_on: bool) {
        let (since, missing) = (now, BTreeSet::new());
        let incoming = Incoming { from, trains_on, since, asked_at: None, asked: None, state: None, missing };
        self.incoming.insert(path, incoming);
    }

    /// From whom the trainer of a path is still to come.
    pub(in crate::protocol) fn donor(&self, path: PathId) -> Option<PeerKey> {
        self.incoming.get(&path).map(|incoming| incoming.from)
    }

    /// Blobs that are here for paths that are not yet complete.
    pub(in crate::protocol) fn arrived(&self) -> impl Iterator<Item = BlobHash> {
        let states = self.incoming.values().filter_map(|incoming| incoming.state.as_ref());
        states.flat_map(blobs).map(|blob| blob.hash)
    }

    pub(in crate::protocol) fn incoming(&self) -> Vec<PathId> {
        self.incoming.keys().copied().collect()
    }

    /// The holder, if it trains the path until it is asked, and has not been.
    pub(in crate::protocol) fn trains_on(&self, path: PathId) -> Option<PeerKey> {
        let incoming = self.incoming.get(&path)?;
        let unasked = incoming.state.is_none() && incoming.asked.is_none() && incoming.trains_on;
        unasked.then_some(incoming.from)
    }

    /// The path's modules are not here: it is too early to wait for its trainer.
    pub(in crate::protocol) fn wait_for_modules(&mut self, now: Millis, path: PathId) {
        self.incoming.entry(path).and_modify(|incoming| incoming.since = now);
    }

    pub(in crate::protocol) fn asked(&mut self, now: Millis, path: PathId, from: PeerKey, id: RequestId) {
        if let Some(incoming) = self.incoming.get_mut(&path) {
            (incoming.from, incoming.asked, incoming.asked_at) = (from, Some(id), Some(now));
        }
    }

    /// The path about which this was asked, and whom.
    pub(in crate::protocol) fn answered(&mut self, id: RequestId) -> Option<(PathId, PeerKey)> {
        let asked = self.incoming.iter_mut().find(|(_, incoming)| incoming.asked == Some(id));
        let (path, incoming) = asked?;
        incoming.asked = None;
        Some((*path, incoming.from))
    }

    /// The holder has said what the path's trainer is. Returns the blobs to be fetched.
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

    /// Whether nothing that was told of is missing.
    pub(in crate::protocol) fn is_here(&self, path: PathId) -> bool {
        self.incoming.get(&path).is_some_and(|incoming| incoming.state.is_some() && incoming.missing.is_empty())
    }

    /// The path waits no longer. Returns from whom, and what its trainer is as far as that was said.
    pub(in crate::protocol) fn end(&mut self, path: PathId) -> Option<(PeerKey, Option<PathHandOff>)> {
        self.incoming.remove(&path).map(|incoming| (incoming.from, incoming.state))
    }

    /// What is to be done about a path, given how long its bytes may take.
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

    /// Another peer takes a path from here. Whether it was promised before.
    pub(in crate::protocol) fn promise(&mut self, now: Millis, path: PathId, to: PeerKey) -> bool {
        self.promised.insert(path, (to, now)).is_some()
    }

    /// Who takes a path from here, and since when.
    pub(in crate::protocol) fn promised(&self, path: PathId) -> Option<(PeerKey, Millis)> {
        self.promised.get(&path).copied()
    }

    /// The path is promised to nobody.
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
    fn a_path_is_asked_for_until_its_holder_answers_and_complete_when_all_is_here() {
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
            "the answer said nothing"
        );
        assert_eq!(hand_offs.told(PATH, trainer()), [BlobRef::of(b"trainer")]);
        assert!(!hand_offs.is_here(PATH));
        assert_eq!(hand_offs.step(Millis(1), PATH, minute), Step::Complete);
        hand_offs.arrived_one(PATH, BlobRef::of(b"trainer").hash);
        assert!(hand_offs.is_here(PATH));
        assert_eq!(hand_offs.end(PATH), Some((HOLDER, Some(trainer()))));
    }

    #[test]
    fn what_takes_too_long_is_given_up_but_not_before_the_modules_are_here() {
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
