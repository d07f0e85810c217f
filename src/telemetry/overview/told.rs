//! What the peers that are asked have said, side by side.

use crate::peer::PeerStatus;
use crate::telemetry::overview::labels::{Labels, natural};
use crate::telemetry::state::{Seen, State};

/// A peer that has answered, at least once.
pub(super) struct Answered<'a> {
    pub(super) label: &'a str,
    pub(super) seen: &'a Seen,
    pub(super) status: &'a PeerStatus,
    /// Since when it has not answered, if it is late.
    pub(super) silent_since_ms: Option<u64>,
}

/// The state, with the peers that have answered in order of their labels.
pub(super) struct Told<'a> {
    pub(super) state: &'a State,
    pub(super) now_ms: u64,
    pub(super) answered: Vec<Answered<'a>>,
    pub(super) labels: Labels<'a>,
}

impl<'a> Told<'a> {
    pub(super) fn of(state: &'a State, now_ms: u64) -> Self {
        let answered = state.peers.iter().filter_map(|(label, seen)| {
            let status = seen.status.as_ref()?;
            Some(Answered { label, seen, status, silent_since_ms: seen.silent_since(now_ms) })
        });
        let mut answered: Vec<Answered<'a>> = answered.collect();
        answered.sort_by_key(|it| natural(it.label));
        let labels = Labels::new(answered.iter().map(|it| (it.status.node.peer.as_str(), it.label)));
        Self { state, now_ms, answered, labels }
    }

    /// Phases of the run.
    pub(super) fn phases(&self) -> Option<u64> {
        let outline = self.state.run.as_ref().map(|run| run.phases);
        outline.or_else(|| self.answered.first().map(|it| it.status.node.phases))
    }
}
