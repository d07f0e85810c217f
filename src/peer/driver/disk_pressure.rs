//! Disk pressure: the disk does not take what is written, because it is full or read-only.
//!
//! A peer must not act upon what it might forget. So the node gets no event until all writes are done: nothing is said or
//! done that follows from what could not be written. To the other peers this one looks frozen, and they take over what it
//! owned and trained. It goes on serving its blobs, and answers requests and `status` from what it knows. Writes are tried
//! again every few seconds, here or by the worker that made the data; then the node goes on where it stopped.

use std::collections::BTreeSet;

use crate::clock::Millis;
use crate::names::{BlobHash, PathId, PeerKey};
use crate::peer::driver::blobs::Fetch;
use crate::peer::driver::events::PeerEvent;
use crate::peer::driver::{Driver, PeerError};
use crate::protocol::{Action, Record};
use crate::store::disk_pressure::RETRY;
use crate::store::{PressureGuard, StoreError};

/// Pauses between two attempts double up to this: what is fetched again in vain costs the network something.
const LONGEST_PAUSE_MS: u64 = 30_000;

/// What the driver itself could not write. Trainer and aggregator keep what they have made.
#[derive(Default)]
pub(crate) struct PendingWrites {
    /// A record, which is the first of the actions that wait.
    journal: Option<PressureGuard>,
    /// Blobs that other peers sent, and from whom.
    fetches: Vec<(Fetch, Vec<PeerKey>)>,
    again_at: Option<Millis>,
    pause_ms: u64,
    /// What was said last.
    told: Option<String>,
}

impl PendingWrites {
    pub(crate) fn again_at(&self) -> Option<Millis> {
        self.again_at
    }
}

impl Driver {
    /// Whether somebody here waits for the disk.
    pub(crate) fn is_suspended(&self) -> bool {
        self.blobs.disk_pressure().is_active()
    }

    /// A record was not written: it stays the next thing to do.
    pub(crate) fn hold(&mut self, record: Record, error: &StoreError) {
        self.pending_writes.journal = Some(self.blobs.disk_pressure().begin(error));
        self.actions.push_front(Action::Persist(record));
    }

    /// A blob that another peer sent was not stored: it will be fetched again.
    pub(crate) fn hold_fetch(&mut self, mut fetch: Fetch, from: Vec<PeerKey>, reason: &str) {
        fetch.short = Some(self.blobs.disk_pressure().begin(reason));
        self.pending_writes.fetches.push((fetch, from));
    }

    /// Tries again what was not written. A whole new journal is written, since the old one may be in doubt.
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

    /// Says when the disk takes nothing, and when it does again.
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

    /// What is kept only for the convenience of others goes first.
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
        // Whoever has all of the text may be the only one, as the creator is at first.
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
