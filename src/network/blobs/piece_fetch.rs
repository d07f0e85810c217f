//! Fetches pieces from one peer over one stream: several are requested at a time, and each is verified before it is
//! stored.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::AsyncWriteExt;
use libp2p::Stream;
use tokio::task::JoinHandle;

use crate::names::PeerKey;
use crate::network::blobs::piece_scheduler::{DonorId, Next};
use crate::network::blobs::transfer::{Streams, Through, Transfer, name_donor};
use crate::network::blobs::{
    ASK_TREE, ASK_WHICH, BLOB_PROTOCOL, FORWARD_PROTOCOL, FORWARDS, FetchError, GIVEN, LACKING, STATUS_BUSY,
    STATUS_HERE, STATUS_IN_PART, STATUS_NOT_CONNECTED, STATUS_NOT_HERE, STATUS_NOT_INVITED, TIMEOUTS, blocking, within,
};
use crate::network::limits::{
    BLOB_OPEN_TIMEOUT, BLOB_SLICE_BYTES, DONOR_RESTS, DONOR_WAITS, PIECE_LATENESS, PIECES_ASKED, PIECES_ASKED_AT_FIRST,
    PIECES_LACKED,
};
use crate::pieces::{PieceSet, PieceTree, piece_bytes, piece_count};

/// Attempts to open a stream before the peer counts as failed, and the first pause between two.
const OPEN_ATTEMPTS: u32 = 5;
const OPEN_RETRY_PAUSE: Duration = Duration::from_millis(20);

/// How a donor's part ended.
pub(crate) enum Ended {
    /// All pieces are here.
    Done,
    /// The donor may have more later.
    Rests(FetchError),
    /// The stream ended in the middle, as it does when the donor serves another peer first.
    Cut(FetchError),
    /// The donor failed.
    Failed(FetchError),
    /// The own disk failed.
    Storage(io::Error),
}

/// Why a donor's part ended early.
enum Stop {
    Ended(Ended),
    /// The stream failed.
    Stream(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Stream(error)
    }
}

/// Fetches from one peer until all pieces are here or it has no more.
pub(crate) async fn fetch_pieces(
    streams: &Streams,
    transfer: &Arc<Transfer>,
    (donor, through, from): (DonorId, Through, PeerKey),
) -> Ended {
    let mut fetch = PieceFetch {
        streams,
        transfer,
        donor,
        through,
        from,
        received: 0,
        is_open: false,
        asked: VecDeque::new(),
        most: PIECES_ASKED_AT_FIRST,
        is_whole: false,
        lacked: 0,
        storing: None,
    };
    match fetch.run().await {
        Ok(()) => Ended::Done,
        // The donor may have sent the right ones.
        Err(Stop::Ended(Ended::Failed(FetchError::WrongHash { .. }))) if matches!(through, Through::Forwarder(_)) => {
            let reason = "what was forwarded does not match the hash of the blob".to_owned();
            Ended::Failed(FetchError::Broken { from, received: fetch.received, reason })
        }
        Err(Stop::Ended(ended)) => ended,
        Err(Stop::Stream(error)) => {
            let is_cut = fetch.is_open && ended_early(&error);
            let error = match error.kind() {
                io::ErrorKind::TimedOut => FetchError::Stalled { from, received: fetch.received },
                _ => fetch.broken(&error),
            };
            if is_cut { Ended::Cut(error) } else { Ended::Failed(error) }
        }
    }
}

struct PieceFetch<'a> {
    streams: &'a Streams,
    transfer: &'a Arc<Transfer>,
    donor: DonorId,
    through: Through,
    from: PeerKey,
    received: u64,
    /// Whether the peer has confirmed that it has some of the blob.
    is_open: bool,
    /// Requested pieces that have not arrived, with the times of their requests.
    asked: VecDeque<(u32, Instant)>,
    /// Number of pieces requested at a time.
    most: usize,
    /// Whether it has all pieces.
    is_whole: bool,
    /// How often the donor lacked a piece that it had offered.
    lacked: u32,
    /// The write of the previous piece.
    storing: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl PieceFetch<'_> {
    async fn run(&mut self) -> Result<(), Stop> {
        let mut stream = self.open().await?;
        self.is_open = true;
        if self.transfer.tree().is_none() {
            self.learn_tree(&mut stream).await?;
        }
        self.learn_pieces(&mut stream).await?;
        let mut spare = Vec::new();
        loop {
            let is_done = self.ask_for_more(&mut stream).await?;
            let Some((piece, since)) = self.asked.front().copied() else {
                self.stored().await?;
                if is_done {
                    // Politeness only, so the result does not matter.
                    let _ = within(Duration::from_secs(1), stream.close()).await;
                    return Ok(());
                }
                self.wait_for_more(&mut stream).await?;
                continue;
            };
            let bytes = self.read_piece(&mut stream, piece, spare).await?;
            self.asked.pop_front();
            self.adapt(since);
            spare = match bytes {
                Some(bytes) => self.keep(piece, bytes).await?,
                None => Vec::new(),
            };
        }
    }

    /// Opens a stream on which the peer has confirmed that it has some of the blob. A peer that accepts several streams
    /// at once may drop one unread, so this retries.
    async fn open(&mut self) -> Result<Stream, Stop> {
        let (peer, protocol) = match self.through {
            Through::Donor(peer) => (peer, BLOB_PROTOCOL),
            Through::Forwarder(peer) => (peer, FORWARD_PROTOCOL),
        };
        let lock = self.streams.lock(peer);
        let _held = lock.lock().await;
        let mut attempts = 1;
        loop {
            let mut stream = self.streams.open(peer, protocol.clone()).await?;
            match self.begin(&mut stream).await {
                Err(error) if ended_early(&error) && attempts < OPEN_ATTEMPTS => {
                    tokio::time::sleep(OPEN_RETRY_PAUSE * attempts).await;
                    attempts += 1;
                }
                // It has too many streams to say that it is busy.
                Err(error) if ended_early(&error) => return Err(Stop::Ended(Ended::Rests(self.broken(&error)))),
                Err(error) => return Err(error.into()),
                Ok(STATUS_HERE) => {
                    self.is_whole = true;
                    return Ok(stream);
                }
                Ok(STATUS_IN_PART) => return Ok(stream),
                Ok(STATUS_NOT_HERE) => return Err(Stop::Ended(Ended::Rests(FetchError::NotHere { from: self.from }))),
                Ok(STATUS_NOT_INVITED) => {
                    // The proof of the invitation may still be on its way.
                    return Err(Stop::Ended(Ended::Rests(FetchError::NotInvited { from: self.from })));
                }
                Ok(STATUS_NOT_CONNECTED) => {
                    return Err(Stop::Ended(Ended::Failed(FetchError::OnlyRelayed { from: self.from })));
                }
                Ok(STATUS_BUSY) => return Err(Stop::Ended(Ended::Rests(FetchError::Busy { from: self.from }))),
                Ok(other) => return Err(unknown(other)),
            }
        }
    }

    fn broken(&self, error: &io::Error) -> FetchError {
        FetchError::Broken { from: self.from, received: self.received, reason: error.to_string() }
    }

    /// Names the blob and reads the peer's status.
    async fn begin(&self, stream: &mut Stream) -> io::Result<u8> {
        let blob = self.transfer.blob;
        if let Through::Forwarder(_) = self.through {
            let status = name_donor(stream, self.from).await?;
            if status != FORWARDS {
                return Ok(status);
            }
        }
        let mut named = [0; 40];
        named[..32].copy_from_slice(&blob.hash.0);
        named[32..].copy_from_slice(&blob.bytes.to_le_bytes());
        TIMEOUTS.write(stream, &named).await?;
        within(BLOB_OPEN_TIMEOUT, stream.flush()).await?;
        read_byte(stream).await
    }

    async fn learn_tree(&mut self, stream: &mut Stream) -> Result<(), Stop> {
        let blob = self.transfer.blob;
        ask(stream, ASK_TREE).await?;
        match read_byte(stream).await? {
            GIVEN => {}
            LACKING => return Err(Stop::Ended(Ended::Rests(FetchError::NotHere { from: self.from }))),
            other => return Err(unknown(other)),
        }
        let mut values = vec![[0; 32]; piece_count(blob.bytes).unwrap_or(0) as usize];
        self.read(stream, values.as_flattened_mut()).await?;
        let tree = PieceTree::of_values(blob, values).map(Arc::new);
        let tree = tree.ok_or(Stop::Ended(Ended::Failed(FetchError::WrongHash { from: self.from })))?;
        let transfer = self.transfer.clone();
        blocking(move || transfer.begin(tree)).await.map_err(ours)
    }

    /// Requests the set of the peer's pieces.
    async fn learn_pieces(&mut self, stream: &mut Stream) -> Result<(), Stop> {
        let count = piece_count(self.transfer.blob.bytes).unwrap_or(0);
        let pieces = match self.is_whole {
            true => PieceSet::all(count),
            false => {
                ask(stream, ASK_WHICH).await?;
                match read_byte(stream).await? {
                    GIVEN => {}
                    other => return Err(unknown(other)),
                }
                let mut bits = vec![0; count.div_ceil(8) as usize];
                TIMEOUTS.read(stream, &mut bits).await?;
                PieceSet::of_bytes(count, &bits).unwrap_or_else(|| PieceSet::none(count))
            }
        };
        if let Some(mut scheduler) = self.transfer.scheduler() {
            scheduler.offers(self.donor, pieces);
        }
        Ok(())
    }

    /// Requests as many pieces as may be pending. Returns whether all pieces are here.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long a piece takes")]
    async fn ask_for_more(&mut self, stream: &mut Stream) -> io::Result<bool> {
        let mut wishes = Vec::new();
        let now = self.transfer.began.elapsed();
        let mut is_done = false;
        while self.asked.len() < self.most {
            let next = self.transfer.scheduler().map(|mut scheduler| scheduler.next(self.donor, self.asked.len(), now));
            match next {
                Some(Next::Ask(piece)) => {
                    self.asked.push_back((piece, Instant::now()));
                    wishes.extend(piece.to_le_bytes());
                }
                Some(Next::Done) => {
                    is_done = true;
                    break;
                }
                Some(Next::Nothing) | None => break,
            }
        }
        if !wishes.is_empty() {
            TIMEOUTS.write(stream, &wishes).await?;
            within(BLOB_OPEN_TIMEOUT, stream.flush()).await?;
        }
        // A requested piece is read even if another donor has sent it: the next answers come after it.
        Ok(is_done)
    }

    /// The donor has nothing new for now.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long a donor waits")]
    async fn wait_for_more(&mut self, stream: &mut Stream) -> Result<(), Stop> {
        let began = Instant::now();
        while began.elapsed() < DONOR_WAITS {
            // Changes in between are seen after the pause.
            let _ = tokio::time::timeout(DONOR_RESTS, self.transfer.changed.notified()).await;
            if !self.is_whole {
                self.learn_pieces(stream).await?;
            }
            if self.ask_for_more(stream).await? || !self.asked.is_empty() {
                return Ok(());
            }
        }
        Err(Stop::Ended(Ended::Rests(FetchError::NotHere { from: self.from })))
    }

    /// The next answer; `None` if the peer lacks the piece.
    async fn read_piece(
        &mut self,
        stream: &mut Stream,
        piece: u32,
        mut into: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Stop> {
        match read_byte(stream).await? {
            GIVEN => {}
            LACKING => {
                if let Some(mut scheduler) = self.transfer.scheduler() {
                    scheduler.lacks(self.donor, piece);
                }
                self.transfer.changed.notify_waiters();
                self.lacked += 1;
                if self.lacked > PIECES_LACKED {
                    return Err(Stop::Ended(Ended::Rests(FetchError::NotHere { from: self.from })));
                }
                return Ok(None);
            }
            other => return Err(unknown(other)),
        }
        into.resize(piece_bytes(self.transfer.blob.bytes, piece), 0);
        self.read(stream, &mut into).await?;
        Ok(Some(into))
    }

    /// Reads within the bandwidth limit, and counts what comes: also less than a slice shows that a donor sends.
    async fn read(&mut self, stream: &mut Stream, into: &mut [u8]) -> io::Result<()> {
        let limiter = &self.streams.limiter;
        for slice in into.chunks_mut(limiter.slice(BLOB_SLICE_BYTES)) {
            limiter.take(slice.len()).await;
            let count = |bytes| {
                self.received = self.transfer.count(self.donor, bytes);
                self.streams.counters.blobs_received.add(bytes);
            };
            TIMEOUTS.read_counted(stream, slice, count).await?;
        }
        Ok(())
    }

    /// Requests as many pieces as the donor sends within [`PIECE_LATENESS`]. This fills the link, and leaves the rest
    /// to other donors.
    fn adapt(&mut self, since: Instant) {
        match since.elapsed() {
            took if took > 2 * PIECE_LATENESS => self.most = (self.most - 1).max(PIECES_ASKED_AT_FIRST),
            took if took < PIECE_LATENESS => self.most = (self.most + 1).min(PIECES_ASKED),
            _ => {}
        }
    }

    /// Verifies and stores a piece while the next one arrives. Returns the buffer of the previous piece.
    async fn keep(&mut self, piece: u32, bytes: Vec<u8>) -> Result<Vec<u8>, Stop> {
        let spare = self.stored().await?;
        let (transfer, from) = (self.transfer.clone(), self.from);
        self.storing = Some(tokio::task::spawn_blocking(move || {
            if !transfer.tree().is_some_and(|tree| tree.verifies(piece, &bytes)) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, FetchError::WrongHash { from }));
            }
            transfer.sink.write(piece, &bytes)?;
            if let Some(mut scheduler) = transfer.scheduler() {
                scheduler.came(piece);
            }
            transfer.changed.notify_waiters();
            Ok(bytes)
        }));
        Ok(spare)
    }

    /// Waits until the previous piece is on the disk.
    async fn stored(&mut self) -> Result<Vec<u8>, Stop> {
        let Some(storing) = self.storing.take() else { return Ok(Vec::new()) };
        let stored = storing.await.map_err(io::Error::other)?;
        stored.map_err(|error| match error.get_ref().is_some_and(|inner| inner.is::<FetchError>()) {
            true => Stop::Ended(Ended::Failed(FetchError::WrongHash { from: self.from })),
            false => ours(error),
        })
    }
}

fn ours(error: io::Error) -> Stop {
    Stop::Ended(Ended::Storage(error))
}

fn unknown(byte: u8) -> Stop {
    Stop::Stream(io::Error::new(io::ErrorKind::InvalidData, format!("unknown status {byte}")))
}

async fn ask(stream: &mut Stream, what: u32) -> io::Result<()> {
    TIMEOUTS.write(stream, &what.to_le_bytes()).await?;
    within(BLOB_OPEN_TIMEOUT, stream.flush()).await
}

async fn read_byte(stream: &mut Stream) -> io::Result<u8> {
    let mut byte = [0];
    TIMEOUTS.read(stream, &mut byte).await?;
    Ok(byte[0])
}

/// Whether the stream ended before the answer was complete.
fn ended_early(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof, WriteZero};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof | WriteZero)
}
