//! Fetching a blob from several peers into the store.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use libp2p::PeerId;
use libp2p_stream::Control;
use rand::seq::SliceRandom;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::names::{BlobRef, PeerKey};
use crate::network::blobs::piece_fetch::{Ended, give};
use crate::network::blobs::piece_scheduler::{DonorId, SharingOut};
use crate::network::blobs::rate_limiter::Cap;
use crate::network::blobs::{BlobAccess, BlobSink, FetchError, blocking};
use crate::network::limits::{DONOR_RESTS, DONORS, DONORS_AT_ONCE, DONORS_GROW, FETCH_STUCK, FETCHES};
use crate::network::traffic::Counters;
use crate::pieces::{PieceTree, piece_count};

/// Held until a peer has answered on a new stream.
pub(in crate::network) type Door = Arc<tokio::sync::Mutex<()>>;

/// Who may have a blob, and word of a direct connection to it, or why there is none.
pub(in crate::network) type Holder = (PeerKey, oneshot::Receiver<Result<PeerId, FetchError>>);

/// What one peer did for a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Donor {
    /// Who.
    pub peer: PeerKey,
    /// What it gave.
    pub bytes: u64,
    /// Why it gave no more, if it was asked in vain.
    pub failed: Option<FetchError>,
}

/// What all fetches share.
pub(in crate::network) struct Fetcher {
    pub(in crate::network) control: Control,
    access: Arc<dyn BlobAccess>,
    pub(in crate::network) counters: Arc<Counters>,
    pub(in crate::network) cap: Cap,
    places: Semaphore,
    doors: Mutex<HashMap<PeerId, Door>>,
}

/// A blob on its way.
pub(in crate::network) struct Transfer {
    pub(in crate::network) blob: BlobRef,
    pub(in crate::network) sink: Box<dyn BlobSink>,
    /// Known as soon as one donor has told it.
    sharing: OnceLock<(Arc<PieceTree>, Mutex<SharingOut>)>,
    /// A piece has come, or is free again.
    pub(in crate::network) changed: Notify,
    pub(in crate::network) began: Instant,
    given: Vec<AtomicU64>,
}

impl Transfer {
    /// Bytes have come from a donor; how many by now.
    pub(in crate::network) fn count(&self, donor: DonorId, bytes: usize) -> u64 {
        let given = self.given.get(donor).map(|given| given.fetch_add(bytes as u64, Ordering::Relaxed));
        given.unwrap_or(0) + bytes as u64
    }

    /// What the pieces hash to, once that is known.
    pub(in crate::network) fn tree(&self) -> Option<&Arc<PieceTree>> {
        self.sharing.get().map(|(tree, _)| tree)
    }

    /// Who gives which piece, once it is known what they hash to.
    pub(in crate::network) fn sharing(&self) -> Option<MutexGuard<'_, SharingOut>> {
        // A piece is asked for or not.
        self.sharing.get().map(|(_, sharing)| sharing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_done(&self) -> bool {
        self.sharing().is_some_and(|sharing| sharing.is_done())
    }

    /// Says what the pieces hash to. The lot is drawn here.
    pub(in crate::network) fn begin(&self, tree: Arc<PieceTree>) -> io::Result<()> {
        let here = self.sink.begin(&tree)?;
        let mut lot: Vec<u32> = (0..piece_count(self.blob.bytes).unwrap_or(0)).collect();
        lot.shuffle(&mut rand::rng());
        // If another donor has told it meanwhile, it is the same.
        let _ = self.sharing.set((tree, Mutex::new(SharingOut::new(here, lot))));
        Ok(())
    }
}

/// One who may have the blob, while a fetch is under way.
struct Candidate {
    index: usize,
    peer: Result<PeerId, oneshot::Receiver<Result<PeerId, FetchError>>>,
    not_before: Instant,
}

impl Fetcher {
    pub(in crate::network) fn new(
        control: Control,
        access: Arc<dyn BlobAccess>,
        counters: Arc<Counters>,
        cap: Cap,
    ) -> Self {
        Self { control, access, counters, cap, places: Semaphore::new(FETCHES), doors: Mutex::default() }
    }

    /// Waits for its turn, then fetches from all of these, and says what each gave.
    pub(in crate::network) async fn fetch(
        self: Arc<Self>,
        blob: BlobRef,
        holders: Vec<Holder>,
    ) -> (Vec<Donor>, Result<(), FetchError>) {
        let donor = |(peer, _): &Holder| Donor { peer: *peer, bytes: 0, failed: None };
        let mut donors: Vec<Donor> = holders.iter().take(DONORS).map(donor).collect();
        let Ok(_place) = self.places.acquire().await else { return (donors, Err(FetchError::Nobody)) };
        let result = self.fetch_from(blob, holders, &mut donors).await;
        (donors, result)
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how late a piece is")]
    async fn fetch_from(
        self: &Arc<Self>,
        blob: BlobRef,
        holders: Vec<Holder>,
        donors: &mut [Donor],
    ) -> Result<(), FetchError> {
        let Some(pieces) = piece_count(blob.bytes) else { return Err(FetchError::TooLarge { bytes: blob.bytes }) };
        let access = self.access.clone();
        let sink = blocking(move || access.receive(blob)).await.map_err(storage)?;
        let (sharing, changed, began) = (OnceLock::new(), Notify::new(), Instant::now());
        let given = donors.iter().map(|_| AtomicU64::new(0)).collect();
        let transfer = Arc::new(Transfer { blob, sink, sharing, changed, began, given });
        if let Some(tree) = transfer.sink.tree().or_else(|| PieceTree::single(blob).map(Arc::new)) {
            let transfer = transfer.clone();
            blocking(move || transfer.begin(tree)).await.map_err(storage)?;
        }
        let asked = self.ask_all(&transfer, (holders, donors), DONORS_AT_ONCE.min(pieces as usize)).await;
        for (donor, given) in donors.iter_mut().zip(&transfer.given) {
            donor.bytes = given.load(Ordering::Relaxed);
        }
        asked?;
        blocking(move || transfer.sink.finish()).await.map_err(storage)
    }

    /// Until all pieces are here, or nobody is left to ask. Some give at a time, and more the longer it takes: those that
    /// give nothing must not keep out the others.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long a donor rests")]
    async fn ask_all(
        self: &Arc<Self>,
        transfer: &Arc<Transfer>,
        (holders, donors): (Vec<Holder>, &mut [Donor]),
        mut most: usize,
    ) -> Result<(), FetchError> {
        let now = Instant::now();
        let candidates = holders.into_iter().take(DONORS).enumerate();
        let mut waiting: VecDeque<Candidate> = candidates
            .map(|(index, (_, connected))| Candidate { index, peer: Err(connected), not_before: now })
            .collect();
        let mut giving = JoinSet::new();
        let mut grow = tokio::time::interval_at(tokio::time::Instant::now() + DONORS_GROW, DONORS_GROW);
        let (mut pieces, mut came) = (0, now);
        while !transfer.is_done() {
            let now = Instant::now();
            let here = transfer.sharing().map_or(0, |sharing| sharing.pieces_here());
            if here > pieces {
                (pieces, came) = (here, now);
            }
            if now.duration_since(came) > FETCH_STUCK {
                return Err(FetchError::Stuck { bytes: transfer.blob.bytes });
            }
            while giving.len() < most
                && let Some(place) = waiting.iter().position(|candidate| candidate.not_before <= now)
                && let Some(candidate) = waiting.remove(place)
            {
                let from = donors[candidate.index].peer;
                giving.spawn(self.clone().give(transfer.clone(), candidate, from));
            }
            if giving.is_empty() {
                return Err(first_failure(donors));
            }
            tokio::select! {
                Some(ended) = giving.join_next() => {
                    let Ok((mut candidate, ended)) = ended else { continue };
                    let donor = &mut donors[candidate.index];
                    match ended {
                        Ended::Done => {}
                        Ended::Storage(error) => return Err(storage(error)),
                        Ended::Failed(error) => donor.failed = Some(error),
                        Ended::Rests(error) => {
                            donor.failed = Some(error);
                            candidate.not_before = Instant::now() + DONOR_RESTS;
                            waiting.push_back(candidate);
                        }
                    }
                }
                () = tokio::time::sleep(DONOR_RESTS) => {}
                _ = grow.tick() => most += 1,
            }
        }
        Ok(())
    }

    /// One donor's part, and how it ended.
    async fn give(
        self: Arc<Self>,
        transfer: Arc<Transfer>,
        mut candidate: Candidate,
        from: PeerKey,
    ) -> (Candidate, Ended) {
        let peer = match &mut candidate.peer {
            Ok(peer) => *peer,
            Err(connected) => match connected.await {
                Ok(Ok(peer)) => peer,
                Ok(Err(error)) => return (candidate, Ended::Failed(error)),
                Err(_) => return (candidate, Ended::Failed(FetchError::Nobody)),
            },
        };
        candidate.peer = Ok(peer);
        let ended = give(&self, &transfer, (candidate.index, peer, from)).await;
        if let Some(mut sharing) = transfer.sharing() {
            sharing.ends(candidate.index);
        }
        transfer.changed.notify_waiters();
        (candidate, ended)
    }

    /// One at a time goes in to a peer with a new stream, until it has answered: libp2p-stream drops a stream that
    /// arrives while its taker is busy with another.
    pub(in crate::network) fn door(&self, peer: PeerId) -> Door {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.retain(|other, door| *other == peer || Arc::strong_count(door) > 1);
        doors.entry(peer).or_default().clone()
    }
}

/// What to tell of a fetch that all failed: what the surest holder did.
fn first_failure(donors: &[Donor]) -> FetchError {
    donors.iter().find_map(|donor| donor.failed.clone()).unwrap_or(FetchError::Nobody)
}

fn storage(error: io::Error) -> FetchError {
    FetchError::Storage { kind: error.kind(), reason: error.to_string() }
}
