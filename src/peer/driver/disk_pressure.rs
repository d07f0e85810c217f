//! Disk pressure: the disk rejects writes, because it is full or read-only.
//!
//! A peer must not act on anything that it might forget. So the node gets no event until all writes are done. To other
//! peers, this one seems frozen, and they take over its modules and paths. It still serves blobs, and answers requests
//! and `status` from its present state. Writes are retried every few seconds, here or by the worker that produced the
//! data; then the node continues.

use std::collections::BTreeSet;

use crate::clock::Millis;
use crate::names::{BlobHash, PathId, PeerKey};
use crate::peer::driver::blobs::Fetch;
use crate::peer::driver::events::PeerEvent;
use crate::peer::driver::{Driver, PeerError};
use crate::protocol::{Action, Record};
use crate::store::disk_pressure::RETRY;
use crate::store::{PressureGuard, StoreError};

/// Pauses between two attempts double up to this, since a failed fetch costs bandwidth.
const LONGEST_PAUSE_MS: u64 = 30_000;

/// The driver's own failed writes. Trainer and aggregator keep their own.
#[derive(Default)]
pub(crate) struct PendingWrites {
    /// A record, which is the first of the waiting actions.
    journal: Option<PressureGuard>,
    /// Blobs of other peers, with their holders.
    fetches: Vec<(Fetch, Vec<PeerKey>)>,
    again_at: Option<Millis>,
    pause_ms: u64,
    /// The last reported reason.
    told: Option<String>,
}

impl PendingWrites {
    pub(crate) fn again_at(&self) -> Option<Millis> {
        self.again_at
    }
}

impl Driver {
    /// Whether a write waits for the disk.
    pub(crate) fn is_suspended(&self) -> bool {
        self.blobs.disk_pressure().is_active()
    }

    /// A record was not written, so it stays the next action.
    pub(crate) fn hold(&mut self, record: Record, error: &StoreError) {
        self.pending_writes.journal = Some(self.blobs.disk_pressure().begin(error));
        self.actions.push_front(Action::Persist(record));
    }

    /// A fetched blob was not stored, so it will be fetched again.
    pub(crate) fn hold_fetch(&mut self, mut fetch: Fetch, from: Vec<PeerKey>, reason: &str) {
        fetch.short = Some(self.blobs.disk_pressure().begin(reason));
        self.pending_writes.fetches.push((fetch, from));
    }

    /// Retries the writes. The journal is rewritten, since the end of the old one may be uncertain.
    pub(crate) async fn retry_writes(&mut self) -> Result<(), PeerError> {
        self.wait(2 * self.pending_writes.pause_ms);
        if self.pending_writes.journal.is_some() {
            match self.compact().await {
                Ok(()) => self.pending_writes.journal = None,
                Err(PeerError::Store(error)) if error.is_transient() => {}
                Err(error) => return Err(error),
            }
        }
        for (fetch, from) in std::mem::take(&mut self.pending_writes.fetches) {
            self.fetch(fetch, from);
        }
        Ok(())
    }

    fn wait(&mut self, pause_ms: u64) {
        self.pending_writes.pause_ms = pause_ms.min(LONGEST_PAUSE_MS);
        self.pending_writes.again_at = Some(self.now() + self.pending_writes.pause_ms);
    }

    /// Reports when the disk begins and ends to reject writes.
    pub(crate) fn report_disk_pressure(&mut self) {
        let reason = self.blobs.disk_pressure().reason();
        match (&reason, self.pending_writes.told.is_some()) {
            (Some(reason), false) => {
                tracing::error!(reason, "the disk rejects writes: training and aggregation are paused");
                self.free_disk_space();
                self.wait(RETRY.as_millis() as u64);
                (self.event_sink)(PeerEvent::ShortOfDisk(reason.clone()));
            }
            (None, true) => {
                tracing::info!("the disk accepts writes: resuming");
                self.pending_writes.again_at = None;
                (self.event_sink)(PeerEvent::DiskTakes);
            }
            _ => return,
        }
        self.pending_writes.told = reason;
    }

    /// Releases first what is stored only for the convenience of others.
    fn free_disk_space(&mut self) {
        let mut removed = 0;
        for average in self.node.spare_averages() {
            removed += usize::from(self.blobs.remove(average).unwrap_or(false));
        }
        if removed > 0 {
            tracing::warn!(removed, "released averages that lagging members could have replayed");
        }
        let drawn_here = self.node.paths_drawn_here();
        let for_others: BTreeSet<PathId> =
            self.text_replication.stop_replicating().difference(&drawn_here).copied().collect();
        self.let_go_of_text(
            for_others.iter().flat_map(|path| self.manifest.text_for(*path)).map(|blob| blob.hash).collect(),
        );
        let shards = self.manifest.shards.listed();
        let is_here = |blob: BlobHash| self.blobs.has(blob).unwrap_or(true);
        // A peer with all of the text may be the only one, as the creator is at first.
        if self.manifest.config.sample.is_none() || shards.iter().all(|shard| is_here(shard.train.hash)) {
            return;
        }
        self.let_go_of_text(self.manifest.text_besides(&drawn_here));
    }

    fn let_go_of_text(&self, spare: BTreeSet<BlobHash>) {
        let removed = spare.into_iter().filter(|text| self.blobs.remove(*text).unwrap_or(false)).count();
        if removed > 0 {
            tracing::warn!(removed, "released text of paths that are not drawn now");
        }
    }
}
