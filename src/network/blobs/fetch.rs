//! Fetching a blob from several peers into the store.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use libp2p::PeerId;
use libp2p_stream::Control;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::names::{BlobHash, BlobRef, PeerKey};
use crate::network::blobs::fetch_places::{FetchPlace, FetchPlaces};
use crate::network::blobs::piece_fetch::{Ended, Through, fetch_pieces};
use crate::network::blobs::transfer::{Streams, Transfer};
use crate::network::blobs::{BlobAccess, FetchError, blocking};
use crate::network::connectivity::routes::Origins;
use crate::network::identity::peer_key;
use crate::network::limits::{
    DONOR_RESTS, DONORS, DONORS_AT_ONCE, DONORS_GROW, FETCH_STUCK, FORWARD_AFTER, FORWARDERS_ASKED,
};
use crate::network::protection::bandwidth_limiter::BandwidthLimiter;
use crate::network::traffic::Counters;
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
    streams: Streams,
    access: Arc<dyn BlobAccess>,
    places: FetchPlaces,
    origins: Arc<Origins>,
}

/// A possible holder during a fetch.
struct Candidate {
    index: usize,
    /// How its streams are opened, or a direct connection that is being made.
    through: Result<Through, oneshot::Receiver<Result<PeerId, FetchError>>>,
    not_before: Instant,
}

impl Fetcher {
    pub(crate) fn new(
        control: Control,
        access: Arc<dyn BlobAccess>,
        counters: Arc<Counters>,
        (limiter, limit_bytes_per_s): (BandwidthLimiter, u64),
        origins: Arc<Origins>,
    ) -> Self {
        let streams = Streams { control, counters, limiter, locks: Mutex::default() };
        Self { streams, access, places: FetchPlaces::new(limit_bytes_per_s), origins }
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Waits for its turn, then fetches from all of these peers, and reports the bytes of each.
    pub(crate) async fn fetch(
        self: Arc<Self>,
        blob: BlobRef,
        holders: Vec<Holder>,
    ) -> (Vec<Donor>, Result<(), FetchError>) {
        let donor = |(peer, _): &Holder| Donor { peer: *peer, bytes: 0, failed: None };
        let mut donors: Vec<Donor> = holders.iter().take(DONORS).map(donor).collect();
        let Some(mut place) = self.places.enter().await else { return (donors, Err(FetchError::Nobody)) };
        let result = self.fetch_from(blob, holders, &mut donors, &mut place).await;
        (donors, result)
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how late a piece is")]
    async fn fetch_from(
        self: &Arc<Self>,
        blob: BlobRef,
        holders: Vec<Holder>,
        donors: &mut [Donor],
        place: &mut FetchPlace,
    ) -> Result<(), FetchError> {
        let Some(pieces) = piece_count(blob.bytes) else { return Err(FetchError::TooLarge { bytes: blob.bytes }) };
        let access = self.access.clone();
        let sink = blocking(move || access.receive(blob)).await.map_err(storage)?;
        let transfer = Arc::new(Transfer::new(blob, sink, donors.len(), Instant::now()));
        if let Some(tree) = transfer.sink.tree().or_else(|| PieceTree::single(blob).map(Arc::new)) {
            let transfer = transfer.clone();
            blocking(move || transfer.begin(tree)).await.map_err(storage)?;
        }
        let most = DONORS_AT_ONCE.min(pieces as usize);
        let asked = self.ask_all(&transfer, (holders, donors), most, place).await;
        for (index, donor) in donors.iter_mut().enumerate() {
            donor.bytes = transfer.bytes_from(index);
        }
        asked?;
        blocking(move || transfer.sink.finish()).await.map_err(storage)
    }

    /// Until all pieces are here or no donor is left. Some donors are asked at a time, and more over time, so that
    /// silent donors do not block others.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long a donor rests")]
    async fn ask_all(
        self: &Arc<Self>,
        transfer: &Arc<Transfer>,
        (holders, donors): (Vec<Holder>, &mut [Donor]),
        mut most: usize,
        place: &mut FetchPlace,
    ) -> Result<(), FetchError> {
        let now = Instant::now();
        let candidates = holders.into_iter().take(DONORS).enumerate();
        let mut waiting: VecDeque<Candidate> = candidates
            .map(|(index, (_, connected))| Candidate { index, through: Err(connected), not_before: now })
            .collect();
        let mut fetching = JoinSet::new();
        let mut grow = tokio::time::interval_at(tokio::time::Instant::now() + DONORS_GROW, DONORS_GROW);
        let (mut pieces, mut came) = (0, now);
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
                return Err(FetchError::TooSlow { bytes: transfer.blob.bytes });
            }
            while fetching.len() < most
                && let Some(place) = waiting.iter().position(|candidate| candidate.not_before <= now)
                && let Some(candidate) = waiting.remove(place)
            {
                let from = donors[candidate.index].peer;
                fetching.spawn(self.clone().fetch_from_one(transfer.clone(), candidate, from));
            }
            if fetching.is_empty() {
                return Err(first_failure(donors));
            }
            tokio::select! {
                Some(ended) = fetching.join_next() => {
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

    /// The contribution of one donor, and its end.
    async fn fetch_from_one(
        self: Arc<Self>,
        transfer: Arc<Transfer>,
        mut candidate: Candidate,
        from: PeerKey,
    ) -> (Candidate, Ended) {
        let ended = self.fetch_through(&transfer, &mut candidate, from).await;
        if let Some(mut scheduler) = transfer.scheduler() {
            scheduler.ends(candidate.index);
        }
        transfer.changed.notify_waiters();
        (candidate, ended)
    }

    /// Fetches from a donor directly, or through a peer that forwards if no direct connection comes about soon.
    async fn fetch_through(&self, transfer: &Arc<Transfer>, candidate: &mut Candidate, from: PeerKey) -> Ended {
        let index = candidate.index;
        let pieces = |through| fetch_pieces(&self.streams, transfer, (index, through, from));
        let connecting = match &mut candidate.through {
            Ok(through) => return pieces(*through).await,
            Err(connecting) => connecting,
        };
        let connected = |result: Result<_, oneshot::error::RecvError>| result.unwrap_or(Err(FetchError::Nobody));
        let mut soon = tokio::time::timeout(FORWARD_AFTER, &mut *connecting).await.ok().map(connected);
        if !matches!(soon, Some(Ok(_))) {
            for forwarder in self.forwarders(transfer.blob, from) {
                let through = Through::Forwarder(forwarder);
                let ended = pieces(through).await;
                if !matches!(ended, Ended::Failed(_)) {
                    candidate.through = Ok(through);
                    return ended;
                }
            }
        }
        if soon.is_none() {
            soon = Some(connected(connecting.await));
        }
        match soon {
            Some(Ok(peer)) => {
                candidate.through = Ok(Through::Donor(peer));
                pieces(Through::Donor(peer)).await
            }
            Some(Err(error)) => Ended::Failed(error),
            None => Ended::Failed(FetchError::Nobody),
        }
    }

    /// The peers that may forward from a donor: connected directly, and others for another blob.
    fn forwarders(&self, blob: BlobRef, donor: PeerKey) -> Vec<PeerId> {
        let admitted = |peer: &PeerId| {
            let key = peer_key(peer).filter(|key| *key != donor);
            key.is_some_and(|key| self.access.standing(key).is_admitted())
        };
        let mut peers: Vec<PeerId> = self.origins.peers().into_iter().filter(admitted).collect();
        peers.sort_by_cached_key(|peer| BlobHash::of(&[&blob.hash.0[..], &peer.to_bytes()].concat()));
        peers.truncate(FORWARDERS_ASKED);
        peers
    }
}

/// The error to report if all failed: that of the most likely holder.
fn first_failure(donors: &[Donor]) -> FetchError {
    donors.iter().find_map(|donor| donor.failed.clone()).unwrap_or(FetchError::Nobody)
}

fn storage(error: io::Error) -> FetchError {
    FetchError::Storage { kind: error.kind(), reason: error.to_string() }
}
