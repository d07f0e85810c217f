//! What the engine counts, for the page and the metrics of a server.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::telemetry::Fact;

/// Counts since the start. They are only ever added to.
#[derive(Debug, Default)]
pub struct Counts {
    pub(super) admitted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) tokens: AtomicU64,
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// As numbers for viewers, beside the requests that are answered or wait.
    pub fn facts(&self, requests: usize) -> Vec<Fact> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            Fact::gauge("serve_requests_pending", "Requests that are answered or wait", requests as u64),
            Fact::counter("serve_requests_admitted", "Requests taken", read(&self.admitted)),
            Fact::counter(
                "serve_requests_refused",
                "Requests refused because all places were taken",
                read(&self.refused),
            ),
            Fact::counter("serve_texts_failed", "Texts that could not be generated", read(&self.failed)),
            Fact::counter("serve_tokens_generated", "Tokens generated", read(&self.tokens)),
        ]
    }
}
