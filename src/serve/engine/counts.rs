//! What the engine counts, for the page and the metrics of a server.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start. They are only ever added to.
#[derive(Debug, Default)]
pub struct Counts {
    pub(super) admitted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) tokens: AtomicU64,
    pub(super) reused: AtomicU64,
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The counts by now.
    pub fn now(&self) -> Counted {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            admitted: read(&self.admitted),
            refused: read(&self.refused),
            failed: read(&self.failed),
            tokens: read(&self.tokens),
            reused: read(&self.reused),
        }
    }
}

/// What was counted until some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Requests taken.
    pub admitted: u64,
    /// Requests refused because all places were taken.
    pub refused: u64,
    /// Texts that could not be generated.
    pub failed: u64,
    /// Tokens generated.
    pub tokens: u64,
    /// Tokens of prompts that were not read again.
    pub reused: u64,
}
