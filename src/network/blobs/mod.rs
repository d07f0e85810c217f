//! Blobs: bytes of any size, named by their hash, and fetched from several peers at once, piece by piece.
//!
//! The requester names the blob on a stream and learns whether the peer has all of it, a part or nothing. Then it
//! requests piece after piece, several at a time, and each is answered in turn. Few bytes go up and many come down.
//! Every wait has a time-out on silence, not on the whole transfer.

pub(super) mod fetch;
pub(super) mod fetch_places;
pub(super) mod forward;
pub(super) mod forwarders;
pub(super) mod offer;
pub(super) mod piece_fetch;
pub(super) mod piece_scheduler;
pub(super) mod serve;
pub(super) mod serving_places;
pub(super) mod transfer;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::StreamProtocol;

use super::limits::{BLOB_IDLE, BLOB_SLICE_TIMEOUT};
use crate::names::{BlobRef, PeerKey};
use crate::network::connectivity::connect::Unreachable;
use crate::network::standing::PeerAccess;
use crate::pieces::{PieceSet, PieceTree};

/// The protocol of a blob's stream.
pub(crate) const BLOB_PROTOCOL: StreamProtocol = StreamProtocol::new("/pathswarm/blob/2");

/// The protocol of a stream to be forwarded to another peer.
pub(crate) const FORWARD_PROTOCOL: StreamProtocol = StreamProtocol::new("/pathswarm/blob-forward/1");

/// The peer has all of the blob.
pub(crate) const STATUS_HERE: u8 = 0;
/// The peer does not have it.
pub(crate) const STATUS_NOT_HERE: u8 = 1;
/// The peer serves too many: ask another, or later.
pub(crate) const STATUS_BUSY: u8 = 2;
/// The peer has some pieces, and will have more.
pub(crate) const STATUS_IN_PART: u8 = 3;

/// In place of the number of a piece: requests the set of pieces that are here.
pub(crate) const ASK_WHICH: u32 = u32::MAX;
/// In place of the number of a piece: requests the hashes of all pieces.
pub(crate) const ASK_TREE: u32 = u32::MAX - 1;

/// The requested data follows.
pub(crate) const GIVEN: u8 = 0;
/// The requested data is not here.
pub(crate) const LACKING: u8 = 1;

/// The run needs an invitation, and the requester has none.
pub(crate) const STATUS_NOT_INVITED: u8 = 4;

/// The peer forwards from the donor that was named.
pub(crate) const FORWARDS: u8 = 0;
/// It does not: it has no direct connection to the donor, or the donor is no member.
pub(crate) const STATUS_NOT_CONNECTED: u8 = 5;

/// The store, as the network uses it. Called on threads that may block.
pub trait BlobAccess: PeerAccess {
    /// The pieces of a blob that are here; `None` if there are none.
    fn open(&self, blob: BlobRef) -> io::Result<Option<Box<dyn BlobSource>>>;

    /// Begins to receive a blob.
    fn receive(&self, blob: BlobRef) -> io::Result<Box<dyn BlobSink>>;
}

/// A blob, or its pieces, to serve.
pub trait BlobSource: Send + Sync {
    /// The pieces that are here by now.
    fn pieces(&self) -> PieceSet;

    /// The hashes of the pieces, if known.
    fn tree(&self) -> io::Result<Option<Arc<PieceTree>>>;

    /// Reads a piece. Returns whether it is here.
    fn read(&self, piece: u32, into: &mut Vec<u8>) -> io::Result<bool>;
}

/// A blob that is being received. Dropped before [`BlobSink::finish`], it can be resumed.
pub trait BlobSink: Send + Sync {
    /// The hashes of the pieces, if known from before.
    fn tree(&self) -> Option<Arc<PieceTree>>;

    /// Sets the hashes of the pieces. Returns the pieces that are already here.
    fn begin(&self, tree: &Arc<PieceTree>) -> io::Result<PieceSet>;

    /// Writes a verified piece.
    fn write(&self, piece: u32, bytes: &[u8]) -> io::Result<()>;

    /// All pieces are here: adds the blob to the store.
    fn finish(&self) -> io::Result<()>;
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// Blobs do not go through relays, no direct connection could be made, and no other peer forwards them.
    #[error("peer {} is connected only through a relay, which carries no blobs, no direct connection to it could be \
        made, and no member is connected directly to both", from.short())]
    OnlyRelayed { from: PeerKey },
    #[error("peer {} does not have the blob", from.short())]
    NotHere { from: PeerKey },
    #[error("peer {} is busy: ask another peer, or try again later", from.short())]
    Busy { from: PeerKey },
    #[error("peer {} sends blobs only to invited peers", from.short())]
    NotInvited { from: PeerKey },
    #[error("{bytes} bytes exceed the largest size of a blob")]
    TooLarge { bytes: u64 },
    #[error("no piece of the blob of {bytes} bytes has arrived for a long time from any peer asked")]
    Stuck { bytes: u64 },
    #[error("no peer is known to hold the blob")]
    Nobody,
    #[error("peer {} sent bytes that do not match the hash of the blob", from.short())]
    WrongHash { from: PeerKey },
    #[error("peer {} stopped sending after {received} bytes", from.short())]
    Stalled { from: PeerKey, received: u64 },
    #[error("the stream from peer {} broke after {received} bytes: {reason}", from.short())]
    Broken { from: PeerKey, received: u64, reason: String },
    #[error("the blob could not be stored: {reason}")]
    Storage { kind: io::ErrorKind, reason: String },
}

/// Time-outs of a transfer: for any byte, and for a slice.
pub(crate) struct Timeouts {
    idle: Duration,
    slice: Duration,
}

/// A transfer ends after 10 s of silence, or if a slice of at most 64 KiB takes 30 s. The whole transfer has no
/// time-out.
pub(crate) const TIMEOUTS: Timeouts = Timeouts { idle: BLOB_IDLE, slice: BLOB_SLICE_TIMEOUT };

impl Timeouts {
    /// Fills a slice.
    pub(crate) async fn read(&self, stream: &mut (impl AsyncRead + Unpin), slice: &mut [u8]) -> io::Result<()> {
        self.read_counted(stream, slice, |_| {}).await
    }

    /// Fills a slice, and counts the bytes as they come.
    pub(crate) async fn read_counted(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
        slice: &mut [u8],
        mut count: impl FnMut(usize),
    ) -> io::Result<()> {
        within(self.slice, async {
            let mut filled = 0;
            while filled < slice.len() {
                match within(self.idle, stream.read(&mut slice[filled..])).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    more => {
                        filled += more;
                        count(more);
                    }
                }
            }
            Ok(())
        })
        .await
    }

    /// Writes a slice.
    pub(crate) async fn write(&self, stream: &mut (impl AsyncWrite + Unpin), slice: &[u8]) -> io::Result<()> {
        within(self.slice, async {
            let mut written = 0;
            while written < slice.len() {
                match within(self.idle, stream.write(&slice[written..])).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    more => written += more,
                }
            }
            Ok(())
        })
        .await
    }
}

/// A wait with a time-out.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Runs work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures::{StreamExt, TryStreamExt, stream};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(50);

    /// One byte at a time, with a pause after each in which time advances.
    fn trickle() -> impl AsyncRead + Unpin {
        let byte = |byte: u8| async move {
            tokio::task::yield_now().await;
            Some((io::Result::Ok([byte]), byte.wrapping_add(1)))
        };
        stream::unfold(0, byte).boxed().into_async_read()
    }

    /// Never accepts a byte.
    struct Stuck;

    impl AsyncWrite for Stuck {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_slow_stream_is_read_to_its_end() {
        let mut piece = [0; 20];
        Timeouts { idle: LONG, slice: LONG }.read(&mut trickle(), &mut piece).await.unwrap();
        assert_eq!(piece[..], (0..20).collect::<Vec<u8>>());
    }

    #[tokio::test]
    async fn bytes_are_counted_as_they_come_and_not_when_a_slice_is_full() {
        let mut counted = Vec::new();
        let count = |bytes| counted.push(bytes);
        let timeouts = Timeouts { idle: LONG, slice: SHORT };
        let read = timeouts.read_counted(&mut trickle(), &mut vec![0; 1 << 28], count).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(!counted.is_empty() && counted.iter().all(|bytes| *bytes == 1));
    }

    #[tokio::test]
    async fn silence_ends_a_transfer() {
        let mut silence = stream::pending::<io::Result<[u8; 1]>>().into_async_read();
        let timeouts = Timeouts { idle: SHORT, slice: LONG };
        let error = timeouts.read(&mut silence, &mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = timeouts.write(&mut Stuck, &[0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_trickle_is_not_waited_for_for_ever() {
        let timeouts = Timeouts { idle: LONG, slice: SHORT };
        let error = timeouts.read(&mut trickle(), &mut vec![0; 1 << 28]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_is_an_error() {
        let mut short: &[u8] = &[1, 2, 3];
        let error = TIMEOUTS.read(&mut short, &mut [0; 4]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
