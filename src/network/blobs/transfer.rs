//! A blob that is being fetched: what its donors share.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use libp2p::PeerId;
use libp2p_stream::Control;
use rand::seq::SliceRandom;
use tokio::sync::Notify;

use crate::names::BlobRef;
use crate::network::blobs::BlobSink;
use crate::network::blobs::piece_scheduler::{DonorId, PieceScheduler};
use crate::network::protection::bandwidth_limiter::BandwidthLimiter;
use crate::network::traffic::Counters;
use crate::pieces::{PieceTree, piece_count};

/// Held until a peer has answered on a new stream.
pub(crate) type StreamLock = Arc<tokio::sync::Mutex<()>>;

/// The streams of all fetches.
pub(crate) struct Streams {
    pub control: Control,
    pub counters: Arc<Counters>,
    pub limiter: BandwidthLimiter,
    pub locks: Mutex<HashMap<PeerId, StreamLock>>,
}

impl Streams {
    /// A new stream to a peer is opened under this lock, until the peer has answered: libp2p-stream drops a stream that
    /// arrives while its taker is busy with another.
    pub(crate) fn lock(&self, peer: PeerId) -> StreamLock {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|other, lock| *other == peer || Arc::strong_count(lock) > 1);
        locks.entry(peer).or_default().clone()
    }
}

/// A blob on its way.
pub(crate) struct Transfer {
    pub(crate) blob: BlobRef,
    pub(crate) sink: Box<dyn BlobSink>,
    /// Known as soon as one donor has told it.
    scheduler: OnceLock<(Arc<PieceTree>, Mutex<PieceScheduler>)>,
    /// A piece has come, or is free again.
    pub(crate) changed: Notify,
    pub(crate) began: Instant,
    given: Vec<AtomicU64>,
}

impl Transfer {
    /// Of a blob for which so many donors may be asked.
    pub(crate) fn new(blob: BlobRef, sink: Box<dyn BlobSink>, donors: usize, began: Instant) -> Self {
        let given = (0..donors).map(|_| AtomicU64::new(0)).collect();
        Self { blob, sink, scheduler: OnceLock::new(), changed: Notify::new(), began, given }
    }

    /// Bytes that a donor has given so far.
    pub(crate) fn bytes_from(&self, donor: DonorId) -> u64 {
        self.given.get(donor).map_or(0, |given| given.load(Ordering::Relaxed))
    }

    /// Bytes have come from a donor; how many by now.
    pub(crate) fn count(&self, donor: DonorId, bytes: usize) -> u64 {
        let given = self.given.get(donor).map(|given| given.fetch_add(bytes as u64, Ordering::Relaxed));
        given.unwrap_or(0) + bytes as u64
    }

    /// What the pieces hash to, once that is known.
    pub(crate) fn tree(&self) -> Option<&Arc<PieceTree>> {
        self.scheduler.get().map(|(tree, _)| tree)
    }

    /// The scheduler of its pieces, once it is known what they hash to.
    pub(crate) fn scheduler(&self) -> Option<MutexGuard<'_, PieceScheduler>> {
        // A piece is asked for or not.
        self.scheduler.get().map(|(_, scheduler)| scheduler.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether all pieces are here.
    pub(crate) fn is_done(&self) -> bool {
        self.scheduler().is_some_and(|scheduler| scheduler.is_done())
    }

    /// Says what the pieces hash to. Their order is drawn here.
    pub(crate) fn begin(&self, tree: Arc<PieceTree>) -> io::Result<()> {
        let here = self.sink.begin(&tree)?;
        let mut order: Vec<u32> = (0..piece_count(self.blob.bytes).unwrap_or(0)).collect();
        order.shuffle(&mut rand::rng());
        // If another donor has told it meanwhile, it is the same.
        let _ = self.scheduler.set((tree, Mutex::new(PieceScheduler::new(here, order))));
        Ok(())
    }
}
