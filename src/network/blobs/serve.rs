//! Serves blobs to other peers.
//!
//! When all places are taken, a peer with a better claim takes that of another, whose stream ends: addresses and keys
//! with few places come before those with many, and among equals members before strangers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{AsyncReadExt, AsyncWrite, AsyncWriteExt, StreamExt};
use libp2p::{PeerId, Stream};
use libp2p_stream::IncomingStreams;
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};

use crate::names::{BlobHash, BlobRef};
use crate::network::blobs::forward::forward;
use crate::network::blobs::offer::{Offer, refuse};
use crate::network::blobs::serving_places::{ServingPlaces, Signals};
use crate::network::blobs::{
    ASK_TREE, ASK_WHICH, BlobSource, GIVEN, LACKING, STATUS_BUSY, STATUS_HERE, STATUS_IN_PART, STATUS_NOT_HERE,
    STATUS_NOT_INVITED, TIMEOUTS, blocking, within,
};
use crate::network::limits::{
    BLOB_IDLE, BLOB_SLICE_BYTES, REFUSAL_LASTS, REFUSALS, SERVING_WAIT, SERVINGS_AND_WAITING, SERVINGS_PER_PEER,
};
use crate::network::protection::places::{Claim, Places};
use crate::network::protection::rate_limiter::{KeyedRateLimiter, blob_streams};
use crate::pieces::piece_count;

/// Accepts every stream at once (libp2p-stream drops others) and serves it in its own task.
pub(crate) async fn serve_all(mut incoming: IncomingStreams, mut to_forward: IncomingStreams, offer: Arc<Offer>) {
    let mut servings = Servings::new(offer);
    loop {
        tokio::select! {
            stream = incoming.next() => {
                let Some((peer, stream)) = stream else { return };
                servings.begin(peer, stream, Wanted::Served);
            }
            stream = to_forward.next() => {
                let Some((peer, stream)) = stream else { return };
                servings.begin(peer, stream, Wanted::Forwarded);
            }
            Some(ended) = servings.tasks.join_next_with_id() => servings.ended(match ended {
                Ok((id, ())) => id,
                Err(error) => error.id(),
            }),
        }
    }
}

/// What is done with a stream.
#[derive(Clone, Copy)]
enum Wanted {
    /// It is served from the own store.
    Served,
    /// It is forwarded to another peer.
    Forwarded,
}

/// The streams that are served or wait for it, and those that are told why they are not. Dropping it ends them all.
struct Servings {
    offer: Arc<Offer>,
    tasks: JoinSet<()>,
    numbers: HashMap<Id, u64>,
    next: u64,
    streams: Places<Arc<Notify>>,
    refusals: Places<Arc<Notify>>,
    rates: KeyedRateLimiter<PeerId>,
    shared: Arc<ServingPlaces>,
}

impl Servings {
    fn new(offer: Arc<Offer>) -> Self {
        let known = offer.clone();
        Self {
            offer,
            tasks: JoinSet::new(),
            numbers: HashMap::new(),
            next: 0,
            streams: Places::new(SERVINGS_AND_WAITING, Duration::ZERO),
            refusals: Places::new(REFUSALS, Duration::ZERO),
            rates: blob_streams(),
            shared: Arc::new(ServingPlaces::new(Box::new(move |peer| known.standing(peer)))),
        }
    }

    /// Why a stream of this peer is not served, if it is not.
    fn refusal(&mut self, peer: &PeerId) -> Option<u8> {
        let busy = self.streams.of_peer(peer) >= SERVINGS_PER_PEER || !self.rates.allows(peer);
        match self.offer.standing(peer).is_admitted() {
            false => Some(STATUS_NOT_INVITED),
            true => busy.then_some(STATUS_BUSY),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "an edge: how long a place is held")]
    fn begin(&mut self, peer: PeerId, stream: Stream, wanted: Wanted) {
        let claim = Claim { ip: self.offer.origins.of(&peer), peer };
        let (refusal, signals, number) = (self.refusal(&peer), Signals::default(), self.next);
        self.next += 1;
        let offer = self.offer.clone();
        let standing = |peer: &PeerId| offer.standing(peer);
        // What is refused takes no place from what is served.
        let places = if refusal.is_some() { &mut self.refusals } else { &mut self.streams };
        let Ok(other) = places.enter(number, claim, signals.evicted.clone(), (Instant::now(), &standing)) else {
            tracing::debug!(%peer, "too many blob streams: one dropped");
            return;
        };
        other.iter().for_each(|other| other.notify_one());
        let evicted = signals.evicted.clone();
        let serving = Serving { offer: offer.clone(), claim, places: self.shared.clone(), signals };
        let task = self.tasks.spawn(async move {
            let serve = async {
                match (refusal, wanted) {
                    (Some(status), _) => within(REFUSAL_LASTS, refuse(stream, status)).await,
                    (None, Wanted::Served) => serving.serve(stream).await,
                    (None, Wanted::Forwarded) => {
                        let place = serving.places.enter(serving.claim, serving.signals.clone());
                        forward(stream, &serving.offer, place).await
                    }
                }
            };
            let served = tokio::select! {
                served = serve => served,
                () = evicted.notified() => Err(io::Error::other("another peer has a better claim to its place")),
            };
            if let Err(error) = served {
                tracing::debug!(%peer, %error, "serving a blob stopped before its end");
            }
        });
        self.numbers.insert(task.id(), number);
    }

    fn ended(&mut self, task: Id) {
        if let Some(number) = self.numbers.remove(&task) {
            self.streams.leave(number);
            self.refusals.leave(number);
        }
    }
}

/// A stream that is served or forwarded.
struct Serving {
    offer: Arc<Offer>,
    claim: Claim,
    places: Arc<ServingPlaces>,
    signals: Signals,
}

impl Serving {
    async fn serve(self, mut stream: Stream) -> io::Result<()> {
        let mut named = [0; 40];
        // One byte now and then must not hold a slot.
        within(BLOB_IDLE, TIMEOUTS.read(&mut stream, &mut named)).await?;
        let blob = named_blob(&named);
        let place = tokio::time::timeout(SERVING_WAIT, self.places.enter(self.claim, self.signals.clone())).await;
        let Ok(_place) = place else {
            return refuse(stream, STATUS_BUSY).await;
        };
        let access = self.offer.access.clone();
        let opened = match piece_count(blob.bytes) {
            Some(_) => blocking(move || access.open(blob)).await?,
            None => None,
        };
        let Some(source) = opened.map(Arc::<dyn BlobSource>::from) else {
            TIMEOUTS.write(&mut stream, &[STATUS_NOT_HERE]).await?;
            return within(BLOB_IDLE, stream.close()).await;
        };
        let status = if source.pieces().is_whole() { STATUS_HERE } else { STATUS_IN_PART };
        TIMEOUTS.write(&mut stream, &[status]).await?;
        within(BLOB_IDLE, stream.flush()).await?;
        let (mut asks, mut answers) = stream.split();
        let mut piece = Vec::new();
        // Until the requester has enough, falls silent or sends an invalid request.
        loop {
            let mut what = [0; 4];
            match TIMEOUTS.read(&mut asks, &mut what).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return within(BLOB_IDLE, answers.close()).await;
                }
                read => read?,
            }
            piece = self.answer(&source, blob, u32::from_le_bytes(what), piece, &mut answers).await?;
        }
    }

    /// Answers one request, and returns the buffer.
    async fn answer(
        &self,
        source: &Arc<dyn BlobSource>,
        blob: BlobRef,
        what: u32,
        mut piece: Vec<u8>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<Vec<u8>> {
        let answer = match what {
            ASK_WHICH => {
                piece.clear();
                piece.extend(source.pieces().as_bytes());
                Some(piece)
            }
            ASK_TREE => {
                let source = source.clone();
                let tree = blocking(move || source.tree()).await?;
                tree.map(|tree| tree.values().as_flattened().to_vec())
            }
            what if piece_count(blob.bytes).is_some_and(|count| what < count) => {
                let source = source.clone();
                let read = move || Ok((source.read(what, &mut piece)?, piece));
                let (is_here, piece) = blocking(read).await?;
                is_here.then_some(piece)
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "no such piece")),
        };
        let Some(answer) = answer else {
            TIMEOUTS.write(stream, &[LACKING]).await?;
            within(BLOB_IDLE, stream.flush()).await?;
            return Ok(Vec::new());
        };
        TIMEOUTS.write(stream, &[GIVEN]).await?;
        let limiter = &self.offer.limiter;
        for slice in answer.chunks(limiter.slice(BLOB_SLICE_BYTES)) {
            limiter.take(slice.len()).await;
            TIMEOUTS.write(stream, slice).await?;
            self.offer.counters.blobs_sent.add(slice.len());
        }
        within(BLOB_IDLE, stream.flush()).await?;
        Ok(answer)
    }
}

fn named_blob(named: &[u8; 40]) -> BlobRef {
    let (hash, bytes) = named.split_at(32);
    let mut blob = BlobRef { hash: BlobHash([0; 32]), bytes: 0 };
    blob.hash.0.copy_from_slice(hash);
    blob.bytes = bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    blob
}
