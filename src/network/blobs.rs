//! Blobs: bytes of any size, named by their hash, pulled from a peer over a stream of their own.
//!
//! The asker sends 32 bytes of hash; the answer is one status byte, and if that says so, eight bytes of length (little
//! endian) and the blob. Little goes up and much comes down, and every wait is bounded by silence, not by the whole.

use std::fs::File;
use std::io;
use std::time::Duration;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::StreamProtocol;

use super::connecting::Unreachable;
use super::limits::{BLOB_IDLE, BLOB_PIECE_TIMEOUT};
use crate::names::{BlobHash, BlobRef, PeerKey};

/// The protocol of a blob's stream.
pub(super) const BLOB_PROTOCOL: StreamProtocol = StreamProtocol::new("/pathswarm/blob/1");

/// The blob follows.
pub(super) const STATUS_HERE: u8 = 0;
/// This peer does not have it.
pub(super) const STATUS_NOT_HERE: u8 = 1;
/// Too many are being served: ask another, or later.
pub(super) const STATUS_BUSY: u8 = 2;

/// The store, as the network sees it. Called on threads that may block.
pub trait BlobAccess: Send + Sync + 'static {
    /// The bytes of a blob and how many they are; none if it is not here.
    ///
    /// # Errors
    /// The disk's.
    fn open(&self, hash: BlobHash) -> io::Result<Option<(File, u64)>>;

    /// A place for a blob that is about to arrive.
    ///
    /// # Errors
    /// The disk's, or there is no room.
    fn receive(&self, blob: BlobRef) -> io::Result<Box<dyn BlobSink>>;
}

/// A blob on its way in. Dropped before [`BlobSink::finish`], it leaves nothing behind.
pub trait BlobSink: io::Write + Send {
    /// All bytes are there and have the right hash: keep the blob.
    ///
    /// # Errors
    /// The disk's, or the sink's own check of the bytes.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Why a blob was not fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// There is no way to the peer.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// Blobs do not go through relays, and nothing came of a direct connection.
    #[error("peer {} is connected through a relay only, which carries no blobs, and no direct way to it was found", from.short())]
    OnlyRelayed {
        /// Who was asked.
        from: PeerKey,
    },
    /// The peer does not have it.
    #[error("peer {} does not have the blob", from.short())]
    NotHere {
        /// Who was asked.
        from: PeerKey,
    },
    /// The peer serves many already.
    #[error("peer {} is busy: ask another, or later", from.short())]
    Busy {
        /// Who was asked.
        from: PeerKey,
    },
    /// Refused before reading it.
    #[error("peer {} wants to send {announced} bytes for a blob of {expected}", from.short())]
    WrongSize {
        /// Who was asked.
        from: PeerKey,
        /// By the peer.
        announced: u64,
        /// By the reference.
        expected: u64,
    },
    /// The peer, or its disk, lies.
    #[error("peer {} sent other bytes than the blob's", from.short())]
    WrongHash {
        /// Who was asked.
        from: PeerKey,
    },
    /// The peer fell silent.
    #[error("peer {} fell silent after {received} bytes", from.short())]
    Stalled {
        /// Who was asked.
        from: PeerKey,
        /// Bytes until then.
        received: u64,
    },
    /// The stream ended early, or could not be opened.
    #[error("the stream from peer {} broke after {received} bytes: {reason}", from.short())]
    Broken {
        /// Who was asked.
        from: PeerKey,
        /// Bytes until then.
        received: u64,
        /// What was said.
        reason: String,
    },
    /// Our own disk.
    #[error("the blob could not be stored: {reason}")]
    Storage {
        /// Of what kind.
        kind: io::ErrorKind,
        /// What was said.
        reason: String,
    },
}

/// How long a transfer waits: for any byte, and for a whole piece.
pub(super) struct Patience {
    idle: Duration,
    piece: Duration,
}

/// Silence of 10 s ends a transfer, and so does a trickle below 2 KiB/s. The whole may take as long as it takes.
pub(super) const PATIENCE: Patience = Patience { idle: BLOB_IDLE, piece: BLOB_PIECE_TIMEOUT };

impl Patience {
    /// Fills a piece.
    pub(super) async fn read(&self, stream: &mut (impl AsyncRead + Unpin), piece: &mut [u8]) -> io::Result<()> {
        within(self.piece, async {
            let mut filled = 0;
            while filled < piece.len() {
                match within(self.idle, stream.read(&mut piece[filled..])).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    more => filled += more,
                }
            }
            Ok(())
        })
        .await
    }

    /// Writes a piece.
    pub(super) async fn write(&self, stream: &mut (impl AsyncWrite + Unpin), piece: &[u8]) -> io::Result<()> {
        within(self.piece, async {
            let mut written = 0;
            while written < piece.len() {
                match within(self.idle, stream.write(&piece[written..])).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    more => written += more,
                }
            }
            Ok(())
        })
        .await
    }
}

/// A wait with an end.
pub(super) async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Work for a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
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

    /// A byte at a time, with a pause after each in which clocks are looked at.
    fn trickle() -> impl AsyncRead + Unpin {
        let byte = |byte: u8| async move {
            tokio::task::yield_now().await;
            Some((io::Result::Ok([byte]), byte.wrapping_add(1)))
        };
        stream::unfold(0, byte).boxed().into_async_read()
    }

    /// Takes nothing, ever.
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
        Patience { idle: LONG, piece: LONG }.read(&mut trickle(), &mut piece).await.unwrap();
        assert_eq!(piece[..], (0..20).collect::<Vec<u8>>());
    }

    #[tokio::test]
    async fn silence_ends_a_transfer() {
        let mut silence = stream::pending::<io::Result<[u8; 1]>>().into_async_read();
        let patience = Patience { idle: SHORT, piece: LONG };
        let error = patience.read(&mut silence, &mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = patience.write(&mut Stuck, &[0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_trickle_is_not_waited_for_for_ever() {
        let patience = Patience { idle: LONG, piece: SHORT };
        let error = patience.read(&mut trickle(), &mut vec![0; 1 << 28]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_is_an_error() {
        let mut short: &[u8] = &[1, 2, 3];
        let error = PATIENCE.read(&mut short, &mut [0; 4]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
