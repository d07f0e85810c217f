//! The stages of a node between start and end: when it began, which delays it observes before it acts, by which amendment
//! the run goes on, and whether it leaves.

use super::amendments::Amendments;
use super::limits::{STANDSTILL_MS, SWEEP_MS};
use crate::clock::Millis;

/// How far a departure has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// Since this time the node waits for others to take over.
    Since(Millis),
    /// It has said goodbye; nothing follows.
    Gone,
}

/// The lifecycle of a node.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    began: Millis,
    swept: Millis,
    /// A peer that returns does not train before this time.
    rests_until: Millis,
    /// A peer that has just started has heard nobody yet. It considers nobody dead before this time.
    listens_until: Millis,
    leaving: Option<Leaving>,
    /// Whether a head has advanced or a path was taken since the worker slots were last moved.
    moved: bool,
    amendments: Amendments,
}

impl Lifecycle {
    pub(super) fn begin(&mut self, now: Millis) {
        (self.began, self.swept) = (now, now);
    }

    pub(super) fn amendments(&self) -> &Amendments {
        &self.amendments
    }

    pub(super) fn amendments_mut(&mut self) -> &mut Amendments {
        &mut self.amendments
    }

    /// When the node began to take part.
    pub(super) fn began(&self) -> Millis {
        self.began
    }

    /// Begins a sweep. If the whole process was suspended before it, returns for how long.
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

    /// Until when the node trains nothing, if that time is still to come.
    pub(super) fn rests_until(&self, now: Millis) -> Option<Millis> {
        (now < self.rests_until).then_some(self.rests_until)
    }

    pub(super) fn leave(&mut self, now: Millis) {
        self.leaving = Some(Leaving::Since(now));
    }

    /// No action follows any more.
    pub(super) fn go(&mut self) {
        self.leaving = Some(Leaving::Gone);
    }

    /// Whether the node is leaving or has left.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Since when the node waits for others to take over; nothing once it is gone.
    pub(super) fn leaving_since(&self) -> Option<Millis> {
        match self.leaving {
            Some(Leaving::Since(since)) => Some(since),
            Some(Leaving::Gone) | None => None,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.leaving == Some(Leaving::Gone)
    }

    /// Notes that a head has advanced or a path was taken, so that paths may go through other modules now.
    pub(super) fn note_move(&mut self) {
        self.moved = true;
    }

    /// Whether [`Lifecycle::note_move`] was called since the last call.
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }
}
