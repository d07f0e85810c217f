//! Fetching a blob from a peer into the store.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::AsyncWriteExt;
use libp2p::{PeerId, Stream};
use libp2p_stream::{Control, OpenStreamError};
use tokio::sync::Semaphore;

use super::blobs::{
    BLOB_PROTOCOL, BlobAccess, FetchError, PATIENCE, STATUS_BUSY, STATUS_HERE, STATUS_NOT_HERE, blocking, within,
};
use super::limits::{BLOB_OPEN_TIMEOUT, BLOB_PIECE_BYTES, FETCHES};
use super::traffic::Counters;
use crate::names::{BlobHash, BlobRef, PeerKey};

/// How often a stream to a peer is opened before it counts as broken, and the first pause between two.
const KNOCKS: u32 = 5;
const BETWEEN_KNOCKS: Duration = Duration::from_millis(20);

/// Held until a peer has answered on a new stream.
type Door = Arc<tokio::sync::Mutex<()>>;

/// What all fetches share.
pub(super) struct Fetcher {
    control: Control,
    access: Arc<dyn BlobAccess>,
    counters: Arc<Counters>,
    places: Semaphore,
    doors: Mutex<HashMap<PeerId, Door>>,
}

impl Fetcher {
    pub(super) fn new(control: Control, access: Arc<dyn BlobAccess>, counters: Arc<Counters>) -> Self {
        Self { control, access, counters, places: Semaphore::new(FETCHES), doors: Mutex::default() }
    }

    /// Waits for its turn, then fetches.
    pub(super) async fn fetch(&self, peer: PeerId, from: PeerKey, blob: BlobRef) -> Result<(), FetchError> {
        let _place = self.places.acquire().await.map_err(|error| storage(io::Error::other(error)))?;
        let mut received = 0;
        let broken = |received| {
            move |error: io::Error| match error.kind() {
                io::ErrorKind::TimedOut => FetchError::Stalled { from, received },
                _ => FetchError::Broken { from, received, reason: error.to_string() },
            }
        };
        let mut stream = self.open(peer, from, blob).await.map_err(broken(0))??;

        let access = self.access.clone();
        let mut sink = blocking(move || access.receive(blob)).await.map_err(storage)?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = Vec::new();
        while received < blob.bytes {
            piece.resize((blob.bytes - received).min(BLOB_PIECE_BYTES as u64) as usize, 0);
            PATIENCE.read(&mut stream, &mut piece).await.map_err(broken(received))?;
            received += piece.len() as u64;
            self.counters.blobs_received.add(piece.len());
            (sink, hasher, piece) = blocking(move || {
                hasher.update(&piece);
                sink.write_all(&piece)?;
                Ok((sink, hasher, piece))
            })
            .await
            .map_err(storage)?;
        }
        if BlobHash(*hasher.finalize().as_bytes()) != blob.hash {
            return Err(FetchError::WrongHash { from });
        }
        blocking(move || sink.finish()).await.map_err(storage)
    }

    /// Sends the hash and reads what the peer has to say before the blob itself.
    async fn ask(&self, stream: &mut Stream, from: PeerKey, blob: BlobRef) -> io::Result<Result<(), FetchError>> {
        PATIENCE.write(stream, &blob.hash.0).await?;
        within(BLOB_OPEN_TIMEOUT, stream.flush()).await?;
        let mut status = [0];
        PATIENCE.read(stream, &mut status).await?;
        match status[0] {
            STATUS_HERE => {}
            STATUS_NOT_HERE => return Ok(Err(FetchError::NotHere { from })),
            STATUS_BUSY => return Ok(Err(FetchError::Busy { from })),
            other => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("unknown status {other}"))),
        }
        let mut announced = [0; 8];
        PATIENCE.read(stream, &mut announced).await?;
        let announced = u64::from_le_bytes(announced);
        if announced != blob.bytes {
            return Ok(Err(FetchError::WrongSize { from, announced, expected: blob.bytes }));
        }
        Ok(Ok(()))
    }

    /// A stream on which the peer has said that the blob follows.
    ///
    /// One at a time with each peer, until it has answered: libp2p-stream drops a stream that arrives while its taker is
    /// busy with another. Several peers may still meet at that door, so who is turned away unread knocks again.
    async fn open(&self, peer: PeerId, from: PeerKey, blob: BlobRef) -> io::Result<Result<Stream, FetchError>> {
        let door = self.doors.lock().unwrap_or_else(PoisonError::into_inner).entry(peer).or_default().clone();
        let opened = {
            let _inside = door.lock().await;
            let mut knocks = 1;
            loop {
                let mut stream = match self.negotiate(peer).await {
                    Ok(stream) => stream,
                    Err(error) => break Err(error),
                };
                match self.ask(&mut stream, from, blob).await {
                    Err(error) if turned_away(&error) && knocks < KNOCKS => {
                        tokio::time::sleep(BETWEEN_KNOCKS * knocks).await;
                        knocks += 1;
                    }
                    Err(error) => break Err(error),
                    Ok(answer) => break Ok(answer.map(|()| stream)),
                }
            }
        };
        drop(door);
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.retain(|_, door| Arc::strong_count(door) > 1);
        opened
    }

    async fn negotiate(&self, peer: PeerId) -> io::Result<Stream> {
        let mut control = self.control.clone();
        within(BLOB_OPEN_TIMEOUT, async {
            control.open_stream(peer, BLOB_PROTOCOL).await.map_err(|error| match error {
                OpenStreamError::Io(error) => error,
                other => io::Error::other(other.to_string()),
            })
        })
        .await
    }
}

/// Whether the stream ended before the answer was whole.
fn turned_away(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof, WriteZero};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof | WriteZero)
}

fn storage(error: io::Error) -> FetchError {
    FetchError::Storage { kind: error.kind(), reason: error.to_string() }
}
