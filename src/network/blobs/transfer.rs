//! The state of a fetch that its donors share.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use futures::AsyncWriteExt;
use libp2p::{PeerId, Stream, StreamProtocol};
use libp2p_stream::{Control, OpenStreamError};
use rand::seq::SliceRandom;
use tokio::sync::Notify;

use crate::names::{BlobRef, PeerKey};
use crate::network::blobs::piece_scheduler::{DonorId, PieceScheduler};
use crate::network::blobs::{BlobSink, TIMEOUTS, within};
use crate::network::limits::BLOB_OPEN_TIMEOUT;
use crate::network::protection::bandwidth_limiter::BandwidthLimiter;
use crate::network::traffic::Counters;
use crate::pieces::{PieceTree, piece_count};

/// The peer to which a stream is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Through {
    /// The donor itself.
    Donor(PeerId),
    /// A peer that forwards.
    Forwarder(PeerId),
}

/// Held until a peer has answered on a new stream.
pub(crate) type StreamLock = Arc<tokio::sync::Mutex<()>>;

/// Locks for the streams of all fetches.
pub(crate) struct Streams {
    control: Control,
    pub counters: Arc<Counters>,
    pub limiter: BandwidthLimiter,
    locks: Mutex<HashMap<PeerId, StreamLock>>,
}

impl Streams {
    pub(crate) fn new(control: Control, counters: Arc<Counters>, limiter: BandwidthLimiter) -> Self {
        Self { control, counters, limiter, locks: Mutex::default() }
    }

    /// A new stream to a peer is opened under this lock, until the peer has answered: libp2p-stream drops a stream that
    /// arrives while its receiver is busy with another.
    pub(crate) fn lock(&self, peer: PeerId) -> StreamLock {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|other, lock| *other == peer || Arc::strong_count(lock) > 1);
        locks.entry(peer).or_default().clone()
    }

    /// Opens a stream to a peer.
    pub(crate) async fn open(&self, peer: PeerId, protocol: StreamProtocol) -> io::Result<Stream> {
        let mut control = self.control.clone();
        within(BLOB_OPEN_TIMEOUT, async {
            control.open_stream(peer, protocol).await.map_err(|error| match error {
                OpenStreamError::Io(error) => error,
                other => io::Error::other(other.to_string()),
            })
        })
        .await
    }
}

/// Names the donor, and reads whether the peer forwards.
pub(crate) async fn name_donor(stream: &mut Stream, donor: PeerKey) -> io::Result<u8> {
    TIMEOUTS.write(stream, &donor.0).await?;
    within(BLOB_OPEN_TIMEOUT, stream.flush()).await?;
    let mut status = [0];
    TIMEOUTS.read(stream, &mut status).await?;
    Ok(status[0])
}

/// A blob that is being fetched.
pub(crate) struct Transfer {
    pub(crate) blob: BlobRef,
    pub(crate) sink: Box<dyn BlobSink>,
    /// Set as soon as one donor has sent the hashes of the pieces.
    scheduler: OnceLock<(Arc<PieceTree>, Mutex<PieceScheduler>)>,
    /// A piece has arrived, or must be requested again.
    pub(crate) changed: Notify,
    pub(crate) began: Instant,
    given: Vec<AtomicU64>,
}

impl Transfer {
    /// For a blob with this many possible donors.
    pub(crate) fn new(blob: BlobRef, sink: Box<dyn BlobSink>, donors: usize, began: Instant) -> Self {
        let given = (0..donors).map(|_| AtomicU64::new(0)).collect();
        Self { blob, sink, scheduler: OnceLock::new(), changed: Notify::new(), began, given }
    }

    /// Bytes received from a donor.
    pub(crate) fn bytes_from(&self, donor: DonorId) -> u64 {
        self.given.get(donor).map_or(0, |given| given.load(Ordering::Relaxed))
    }

    /// Bytes received from all donors.
    pub(crate) fn bytes(&self) -> u64 {
        self.given.iter().map(|given| given.load(Ordering::Relaxed)).sum()
    }

    /// Counts bytes from a donor. Returns their total.
    pub(crate) fn count(&self, donor: DonorId, bytes: usize) -> u64 {
        let given = self.given.get(donor).map(|given| given.fetch_add(bytes as u64, Ordering::Relaxed));
        given.unwrap_or(0) + bytes as u64
    }

    /// The hashes of the pieces, once known.
    pub(crate) fn tree(&self) -> Option<&Arc<PieceTree>> {
        self.scheduler.get().map(|(tree, _)| tree)
    }

    /// The scheduler, once the hashes of the pieces are known.
    pub(crate) fn scheduler(&self) -> Option<MutexGuard<'_, PieceScheduler>> {
        // A piece is requested or not, at any moment.
        self.scheduler.get().map(|(_, scheduler)| scheduler.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether all pieces are here.
    pub(crate) fn is_done(&self) -> bool {
        self.scheduler().is_some_and(|scheduler| scheduler.is_done())
    }

    /// Sets the hashes of the pieces, and draws their order.
    pub(crate) fn begin(&self, tree: Arc<PieceTree>) -> io::Result<()> {
        let here = self.sink.begin(&tree)?;
        let mut order: Vec<u32> = (0..piece_count(self.blob.bytes).unwrap_or(0)).collect();
        order.shuffle(&mut rand::rng());
        // If another donor has sent them in the meantime, they are the same.
        let _ = self.scheduler.set((tree, Mutex::new(PieceScheduler::new(here, order))));
        Ok(())
    }
}
