//! Where a node is between its start and its end: how long it has been there, what it waits for before it acts, and whether it leaves.

use super::limits::{STANDSTILL_MS, SWEEP_MS};
use crate::clock::Millis;

/// How far leaving has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// Since then others are given the time to take over.
    Since(Millis),
    /// It has said goodbye; nothing follows.
    Gone,
}

/// A node's.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    began: Millis,
    swept: Millis,
    /// A peer that has come back trains nothing before.
    rests_until: Millis,
    /// One that has just begun has heard nobody yet: it takes nobody for dead before.
    listens_until: Millis,
    leaving: Option<Leaving>,
    /// Whether a head has moved or a path was taken since this node looked where its paths are.
    moved: bool,
}

impl Lifecycle {
    pub(super) fn begin(&mut self, now: Millis) {
        (self.began, self.swept) = (now, now);
    }

    /// When the node began to take part.
    pub(super) fn began(&self) -> Millis {
        self.began
    }

    /// A sweep begins. If the whole process stood still before it: for how long.
    pub(super) fn sweep(&mut self, now: Millis) -> Option<u64> {
        let since_ms = now.since(std::mem::replace(&mut self.swept, now));
        (since_ms > SWEEP_MS + STANDSTILL_MS).then(|| since_ms - SWEEP_MS)
    }

    pub(super) fn listen_until(&mut self, at: Millis) {
        self.listens_until = at;
    }

    /// Whether the node has listened long enough to tell which peers are dead.
    pub(super) fn has_listened(&self, now: Millis) -> bool {
        now >= self.listens_until
    }

    pub(super) fn rest_until(&mut self, at: Millis) {
        self.rests_until = at;
    }

    /// Until when it trains nothing, if that is still to come.
    pub(super) fn rests_until(&self, now: Millis) -> Option<Millis> {
        (now < self.rests_until).then_some(self.rests_until)
    }

    pub(super) fn leave(&mut self, now: Millis) {
        self.leaving = Some(Leaving::Since(now));
    }

    /// Nothing follows any more.
    pub(super) fn go(&mut self) {
        self.leaving = Some(Leaving::Gone);
    }

    /// Whether it leaves, or has left.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Since when others are given the time to take over; nothing once it is gone.
    pub(super) fn leaving_since(&self) -> Option<Millis> {
        match self.leaving {
            Some(Leaving::Since(since)) => Some(since),
            Some(Leaving::Gone) | None => None,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.leaving == Some(Leaving::Gone)
    }

    /// A head has moved, or a path was taken: paths may go through other modules now.
    pub(super) fn note_move(&mut self) {
        self.moved = true;
    }

    /// Whether that was so since the last call.
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }
}
