//! Fetching a blob from several peers into the store.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use futures::future::{BoxFuture, Shared};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use libp2p::PeerId;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::names::{BlobRef, PeerKey};
use crate::network::blobs::fetch_places::{FetchPlace, FetchPlaces};
use crate::network::blobs::forwarders::Forwarders;
use crate::network::blobs::piece_fetch::{Ended, fetch_pieces};
use crate::network::blobs::transfer::{Streams, Through, Transfer};
use crate::network::blobs::{BlobAccess, FetchError, blocking};
use crate::network::connectivity::routes::Origins;
use crate::network::limits::{DONOR_RESTS, DONORS, DONORS_AT_ONCE, DONORS_GROW, FETCH_STUCK, STREAMS_CUT};
use crate::pieces::{PieceTree, piece_count};

/// A peer that may hold a blob, with the outcome of a direct connection to it.
pub(crate) type Holder = (PeerKey, oneshot::Receiver<Result<PeerId, FetchError>>);

/// The contribution of one peer to a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Donor {
    pub peer: PeerKey,
    pub bytes: u64,
    /// Why it sent no more, if it failed.
    pub failed: Option<FetchError>,
}

/// State shared by all fetches.
pub(crate) struct Fetcher {
    streams: Arc<Streams>,
    access: Arc<dyn BlobAccess>,
    places: FetchPlaces,
    forwarders: Arc<Forwarders>,
}

/// How streams to a holder are opened.
type Connected = Shared<BoxFuture<'static, Result<Through, FetchError>>>;

/// A possible holder during a fetch.
#[derive(Clone, Copy)]
struct Candidate {
    index: usize,
    not_before: Instant,
    /// How many of its streams have ended early in a row, and the pieces that were here when the last did.
    cuts: u32,
    pieces: u32,
    /// Whether it is waited for even if no other donor is left: its last stream ended early.
    is_awaited: bool,
}

/// The donors of one fetch: those that are asked now, and those that are asked later.
struct Donors<'a> {
    told: &'a mut [Donor],
    connected: Vec<Connected>,
    waiting: VecDeque<Candidate>,
    asked: BTreeMap<usize, Candidate>,
    fetching: JoinSet<(usize, Ended)>,
}

impl<'a> Donors<'a> {
    fn new(told: &'a mut [Donor], connected: Vec<Connected>, now: Instant) -> Self {
        let candidate = |index| Candidate { index, not_before: now, cuts: 0, pieces: 0, is_awaited: false };
        let waiting = (0..told.len()).map(candidate).collect();
        Self { told, connected, waiting, asked: BTreeMap::new(), fetching: JoinSet::new() }
    }

    /// Whether no donor is left.
    fn is_empty(&self) -> bool {
        self.fetching.is_empty() && !self.waiting.iter().any(|candidate| candidate.is_awaited)
    }

    /// Asks those that do not rest, as long as no more than this are asked.
    fn ask(&mut self, fetcher: &Arc<Fetcher>, transfer: &Arc<Transfer>, most: usize, now: Instant) {
        while self.fetching.len() < most
            && let Some(place) = self.waiting.iter().position(|candidate| candidate.not_before <= now)
            && let Some(candidate) = self.waiting.remove(place)
        {
            let index = candidate.index;
            let connected = self.connected[index].clone();
            let donor = (index, self.told[index].peer);
            self.asked.insert(index, candidate);
            self.fetching.spawn(fetcher.clone().fetch_from_one(transfer.clone(), connected, donor));
        }
    }

    /// A donor's part has ended; `pieces` are here.
    fn ended(&mut self, index: usize, ended: Ended, pieces: u32, now: Instant) -> Result<(), io::Error> {
        let Some(mut candidate) = self.asked.remove(&index) else { return Ok(()) };
        let rests = match ended {
            Ended::Done => return Ok(()),
            Ended::Storage(error) => return Err(error),
            Ended::Failed(error) => {
                self.told[index].failed = Some(error);
                return Ok(());
            }
            Ended::Rests(error) => {
                self.told[index].failed = Some(error);
                candidate.is_awaited = false;
                DONOR_RESTS
            }
            Ended::Cut(error) => {
                self.told[index].failed = Some(error);
                let before = if pieces > candidate.pieces { 0 } else { candidate.cuts };
                if before >= STREAMS_CUT {
                    return Ok(());
                }
                (candidate.cuts, candidate.pieces, candidate.is_awaited) = (before + 1, pieces, true);
                DONOR_RESTS * (1 << before)
            }
        };
        candidate.not_before = now + rests;
        self.waiting.push_back(candidate);
        Ok(())
    }

    /// Stops all that are asked, to ask them again later.
    async fn pause(&mut self, transfer: &Transfer) {
        self.fetching.shutdown().await;
        for (index, candidate) in std::mem::take(&mut self.asked) {
            transfer.scheduler().into_iter().for_each(|mut scheduler| scheduler.ends(index));
            self.waiting.push_back(candidate);
        }
    }
}

impl Fetcher {
    pub(crate) fn new(
        streams: Arc<Streams>,
        access: Arc<dyn BlobAccess>,
        origins: Arc<Origins>,
        limit_bytes_per_s: u64,
    ) -> Self {
        let forwarders = Arc::new(Forwarders { access: access.clone(), origins });
        Self { streams, access, places: FetchPlaces::new(limit_bytes_per_s), forwarders }
    }

    /// Waits for a connection and for its turn, then fetches from all of these peers, and reports the bytes of each.
    pub(crate) async fn fetch(
        self: Arc<Self>,
        blob: BlobRef,
        holders: Vec<Holder>,
    ) -> (Vec<Donor>, Result<(), FetchError>) {
        let (mut donors, mut connected) = (Vec::new(), Vec::new());
        for (peer, connection) in holders.into_iter().take(DONORS) {
            donors.push(Donor { peer, bytes: 0, failed: None });
            let reached = self.forwarders.clone().reach(self.streams.clone(), (blob, peer), connection);
            connected.push(reached.boxed().shared());
        }
        let result = self.fetch_from(blob, connected, &mut donors).await;
        (donors, result)
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how late a piece is")]
    async fn fetch_from(
        self: &Arc<Self>,
        blob: BlobRef,
        connected: Vec<Connected>,
        donors: &mut [Donor],
    ) -> Result<(), FetchError> {
        let Some(pieces) = piece_count(blob.bytes) else { return Err(FetchError::TooLarge { bytes: blob.bytes }) };
        // Connecting may take longer than others should wait.
        is_any_connected(&connected, donors).await?;
        let mut place = self.places.enter().await.ok_or(FetchError::Nobody)?;
        let access = self.access.clone();
        let sink = blocking(move || access.receive(blob)).await.map_err(storage)?;
        let transfer = Arc::new(Transfer::new(blob, sink, donors.len(), Instant::now()));
        if let Some(tree) = transfer.sink.tree().or_else(|| PieceTree::single(blob).map(Arc::new)) {
            let transfer = transfer.clone();
            blocking(move || transfer.begin(tree)).await.map_err(storage)?;
        }
        let most = DONORS_AT_ONCE.min(pieces as usize);
        let asked = self.ask_all(&transfer, Donors::new(donors, connected, Instant::now()), most, &mut place).await;
        for (index, donor) in donors.iter_mut().enumerate() {
            donor.bytes = transfer.bytes_from(index);
        }
        asked?;
        blocking(move || transfer.sink.finish()).await.map_err(storage)
    }

    /// Until all pieces are here or no donor is left. Some donors are asked at a time, and more over time, so that
    /// silent donors do not block others. A fetch that has to give up its place waits for the next one.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long a donor rests")]
    async fn ask_all(
        self: &Arc<Self>,
        transfer: &Arc<Transfer>,
        mut donors: Donors<'_>,
        mut most: usize,
        place: &mut FetchPlace,
    ) -> Result<(), FetchError> {
        let mut grow = tokio::time::interval_at(tokio::time::Instant::now() + DONORS_GROW, DONORS_GROW);
        let (mut pieces, mut came) = (0, Instant::now());
        while !transfer.is_done() {
            let now = Instant::now();
            let here = transfer.scheduler().map_or(0, |scheduler| scheduler.pieces_here());
            if here > pieces {
                (pieces, came) = (here, now);
            }
            if now.duration_since(came) > FETCH_STUCK {
                return Err(FetchError::Stuck { bytes: transfer.blob.bytes });
            }
            if self.places.look_at(place, now, transfer.bytes()).is_err() {
                donors.pause(transfer).await;
                self.places.enter_again(place, transfer.bytes()).await.ok_or(FetchError::Nobody)?;
                continue;
            }
            donors.ask(self, transfer, most, now);
            if donors.is_empty() {
                return Err(first_failure(donors.told));
            }
            tokio::select! {
                Some(ended) = donors.fetching.join_next() => {
                    let Ok((index, ended)) = ended else { continue };
                    donors.ended(index, ended, pieces, Instant::now()).map_err(storage)?;
                }
                () = tokio::time::sleep(DONOR_RESTS) => {}
                _ = grow.tick() => most += 1,
            }
        }
        Ok(())
    }

    /// The contribution of one donor, and its end.
    async fn fetch_from_one(
        self: Arc<Self>,
        transfer: Arc<Transfer>,
        connected: Connected,
        (index, from): (usize, PeerKey),
    ) -> (usize, Ended) {
        let through = match connected.await {
            Ok(through) => through,
            Err(error) => return (index, Ended::Failed(error)),
        };
        let ended = fetch_pieces(&self.streams, &transfer, (index, through, from)).await;
        if let Some(mut scheduler) = transfer.scheduler() {
            scheduler.ends(index);
        }
        transfer.changed.notify_waiters();
        (index, ended)
    }
}

/// Waits until one of the donors is connected. If none can be, notes why.
async fn is_any_connected(connected: &[Connected], donors: &mut [Donor]) -> Result<(), FetchError> {
    let attempts = connected.iter().cloned().enumerate();
    let mut attempts: FuturesUnordered<_> =
        attempts.map(|(index, connected)| connected.map(move |outcome| (index, outcome))).collect();
    while let Some((index, outcome)) = attempts.next().await {
        match outcome {
            Ok(_) => return Ok(()),
            Err(error) => donors[index].failed = Some(error),
        }
    }
    Err(first_failure(donors))
}

/// The error to report if all failed: that of the most likely holder.
fn first_failure(donors: &[Donor]) -> FetchError {
    donors.iter().find_map(|donor| donor.failed.clone()).unwrap_or(FetchError::Nobody)
}

fn storage(error: io::Error) -> FetchError {
    FetchError::Storage { kind: error.kind(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::blobs::{BlobSink, BlobSource};
    use crate::network::limits::FETCHES;
    use crate::network::protection::bandwidth_limiter::BandwidthLimiter;
    use crate::network::standing::PeerAccess;
    use crate::network::traffic::Direction;

    struct Nothing;

    impl PeerAccess for Nothing {}

    impl BlobAccess for Nothing {
        fn open(&self, _: BlobRef) -> io::Result<Option<Box<dyn BlobSource>>> {
            Ok(None)
        }

        fn receive(&self, _: BlobRef) -> io::Result<Box<dyn BlobSink>> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[tokio::test]
    async fn a_fetch_that_waits_for_a_connection_takes_no_place() {
        let control = libp2p_stream::Behaviour::new().new_control();
        let limiter = BandwidthLimiter::new(0, Direction::Down, Arc::default());
        let streams = Streams::new(control, Arc::default(), limiter);
        let fetcher = Arc::new(Fetcher::new(Arc::new(streams), Arc::new(Nothing), Arc::default(), 0));
        let mut waiting = Vec::new();
        for _ in 0..2 * FETCHES {
            let (connects, connection) = oneshot::channel();
            let holders = vec![(PeerKey([1; 32]), connection)];
            let mut fetch = Box::pin(fetcher.clone().fetch(BlobRef::of(b"far away"), holders));
            assert!(fetch.as_mut().now_or_never().is_none());
            waiting.push((fetch, connects));
        }
        assert!(fetcher.places.enter().now_or_never().is_some());
        let (fetch, connects) = waiting.remove(0);
        connects.send(Err(FetchError::OnlyRelayed { from: PeerKey([1; 32]) })).unwrap();
        assert_eq!(fetch.await.1, Err(FetchError::OnlyRelayed { from: PeerKey([1; 32]) }));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a moment to count from")]
    fn a_donor_whose_streams_end_early_is_waited_for_a_few_times() {
        let now = Instant::now();
        let error = || FetchError::Broken { from: PeerKey([1; 32]), received: 7, reason: "it ended".to_owned() };
        let mut told = [Donor { peer: PeerKey([1; 32]), bytes: 0, failed: None }];
        let mut donors = Donors::new(&mut told, Vec::new(), now);
        let mut cut = |pieces| {
            let candidate = donors.waiting.pop_front().unwrap();
            donors.asked.insert(0, candidate);
            donors.ended(0, Ended::Cut(error()), pieces, now).unwrap();
            donors.waiting.front().map(|candidate| candidate.not_before - now)
        };
        assert_eq!((cut(0), cut(0), cut(0)), (Some(DONOR_RESTS), Some(2 * DONOR_RESTS), Some(4 * DONOR_RESTS)));
        assert_eq!(cut(1), Some(DONOR_RESTS), "a piece has come since");
        assert!((1..STREAMS_CUT).all(|_| cut(1).is_some()));
        assert_eq!(cut(1), None);
        assert!(donors.is_empty());
        assert_eq!(told[0].failed, Some(error()));
    }
}
