//! What taking part in a run costs a peer, estimated from the manifest alone (measured in docs/results/sturdy.md).

use serde::Serialize;

use super::Manifest;
use crate::compress::frame;
use crate::protocol::limits::{STATES_KEPT, VERSIONS_KEPT};
use crate::training::memory_plan::host::state_bytes;
use crate::training::memory_plan::host_bytes;

/// A frame takes about so much of what it may take at most: its codes are compressed.
const FRAME_PERCENT: f64 = 85.0;

/// The cost of a peer with one path, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PathCost {
    /// Over the network before it trains: the run itself, its path's text, and the newest states of its modules.
    pub download_bytes: u64,
    /// More than that where another peer has trained the path: the state of its trainer, in the middle of a phase.
    pub hand_off_bytes: u64,
    /// In the run's folder when it has most, without the text of other paths.
    pub disk_bytes: u64,
    /// At most, the text of other paths, which the peer downloads and keeps for others where text is shared.
    pub others_text_bytes: u64,
    /// In the host's memory besides the trainer, whose plan is [`planned`](crate::training::memory_plan::planned).
    pub host_bytes: u64,
}

impl Manifest {
    /// About what a peer with one path downloads, stores and holds in memory.
    pub fn cost_of_a_path(&self) -> PathCost {
        let everybody = sum(self.for_everybody().iter().map(|blob| blob.bytes));
        let parameters = sum(self.level_counts().into_iter().map(|count| count as u64));
        let paths = self.config.grid().map_or(1, |grid| u64::from(grid.path_count()));
        let text = self.text_bytes(paths);
        let states = state_bytes(&self.config, parameters);
        let trainer = self.trainer_bytes(parameters);
        // In the middle of a phase, with the path's own parameters.
        let middle = sum([trainer, parameters.saturating_mul(4)]);
        // The state of the last phase's end, and one that is written beside it: of the middle of a phase, or of its end. Long
        // phases have both for a moment.
        let kept = sum([states.saturating_mul(STATES_KEPT as u64), self.sent_bytes(), trainer, middle]);
        // The atlas is there twice, for the trainer and the aggregator.
        let atlas_bytes = self.resharding.map_or(0, |parts| parts.atlas.bytes).saturating_mul(2);
        let is_sent = |bytes: u64| if self.share_text { bytes } else { 0 };
        let others = if self.resharding.is_some() { 0 } else { self.shards.largest_bytes.saturating_mul(paths) };
        PathCost {
            download_bytes: sum([everybody, is_sent(text), states]),
            hand_off_bytes: middle,
            disk_bytes: sum([everybody, text, kept]),
            others_text_bytes: is_sent(others.saturating_sub(text)),
            host_bytes: sum([host_bytes(&self.config, parameters), text, atlas_bytes]),
        }
    }

    /// The text with which a path is trained.
    fn text_bytes(&self, paths: u64) -> u64 {
        let shard_bytes = self.shards.largest_bytes;
        let drawn_anew = self.config.slots().is_ok_and(|slots| slots.are_drawn_anew());
        match self.resharding {
            Some(parts) => shard_bytes.saturating_mul(paths).saturating_add(parts.slice.bytes),
            // The next path's text arrives while the present one is trained.
            None => shard_bytes.saturating_mul(if drawn_anew { 2 } else { 1 }),
        }
    }

    /// The state of a path's trainer between two phases: two moments and the residual, and what some runs add.
    fn trainer_bytes(&self, parameters: u64) -> u64 {
        let best = if self.config.paths_end_apart() { 4 } else { 0 };
        let own = if self.config.outer.streaming.is_some() { 4 } else { 0 };
        parameters.saturating_mul(12 + best + own)
    }

    /// The averages and outer gradients of the last versions: one average each, what the peer sent itself, and what others
    /// sent, where it averaged them or audited the average.
    fn sent_bytes(&self) -> u64 {
        let Ok(grid) = self.config.grid() else { return u64::MAX };
        let paths = grid.path_count() as usize;
        let of_level = |(level, count): (usize, usize)| {
            let outer = self.config.outer_of(level);
            let members = (paths / (grid.experts(level) as usize).max(1)).max(1) as f64;
            let others = members - 1.0;
            let audits = if others > 0.0 { (outer.audit_share / others).min(1.0) } else { 0.0 };
            let has_others = 1.0 / members + others / members * audits;
            let offer = frame::max_bytes(outer.codec, count) as f64;
            let average = frame::max_bytes(outer.average_codec(), count) as f64;
            (VERSIONS_KEPT as f64 * (average + offer * (1.0 + others * has_others)) * FRAME_PERCENT / 100.0) as u64
        };
        sum(self.level_counts().into_iter().enumerate().map(of_level))
    }
}

/// The sizes in a manifest are unchecked.
fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
