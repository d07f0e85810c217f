//! Serves blobs to other peers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use futures::{AsyncReadExt, AsyncWrite, AsyncWriteExt, StreamExt};
use libp2p::{PeerId, Stream};
use libp2p_stream::IncomingStreams;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};

use crate::names::{BlobHash, BlobRef};
use crate::network::blobs::{
    ASK_TREE, ASK_WHICH, BlobAccess, BlobSource, GIVEN, LACKING, STATUS_BUSY, STATUS_HERE, STATUS_IN_PART,
    STATUS_NOT_HERE, STATUS_NOT_INVITED, TIMEOUTS, blocking, within,
};
use crate::network::identity::peer_key;
use crate::network::limits::{
    BLOB_IDLE, BLOB_SLICE_BYTES, SERVING_WAIT, SERVINGS, SERVINGS_AND_WAITING, SERVINGS_PER_PEER,
};
use crate::network::protection::bandwidth_limiter::BandwidthLimiter;
use crate::network::protection::rate_limiter::{KeyedRateLimiter, blob_streams};
use crate::network::traffic::Counters;
use crate::pieces::piece_count;

/// Accepts every stream at once (libp2p-stream drops others) and serves it in its own task.
pub(crate) async fn serve_all(mut incoming: IncomingStreams, offer: Arc<Offer>) {
    let permits = Arc::new(Semaphore::new(SERVINGS));
    let mut servings = Servings::default();
    loop {
        tokio::select! {
            stream = incoming.next() => {
                let Some((peer, stream)) = stream else { return };
                let serving = Serving { offer: offer.clone(), permits: permits.clone() };
                servings.begin(peer, stream, serving);
            }
            Some(ended) = servings.tasks.join_next_with_id() => servings.ended(match ended {
                Ok((id, ())) => id,
                Err(error) => error.id(),
            }),
        }
    }
}

/// The streams that are served or wait for it, with their peers. Dropping it ends them all.
struct Servings {
    tasks: JoinSet<()>,
    peers: HashMap<Id, PeerId>,
    rates: KeyedRateLimiter<PeerId>,
}

impl Default for Servings {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), peers: HashMap::new(), rates: blob_streams() }
    }
}

impl Servings {
    fn begin(&mut self, peer: PeerId, stream: Stream, serving: Serving) {
        if self.tasks.len() >= SERVINGS_AND_WAITING {
            tracing::debug!(%peer, "too many blob streams: one dropped");
            return;
        }
        let of_this_peer = self.peers.values().filter(|other| **other == peer).count();
        let slow = self.rates.allows(&peer);
        let invited = peer_key(&peer).is_some_and(|key| serving.offer.access.admits(key));
        let task = self.tasks.spawn(async move {
            let served = match of_this_peer {
                _ if !invited => refuse(stream, STATUS_NOT_INVITED).await,
                0..SERVINGS_PER_PEER if slow => serving.serve(stream).await,
                _ => refuse(stream, STATUS_BUSY).await,
            };
            if let Err(error) = served {
                tracing::debug!(%peer, %error, "serving a blob stopped before its end");
            }
        });
        self.peers.insert(task.id(), peer);
    }

    fn ended(&mut self, task: Id) {
        self.peers.remove(&task);
    }
}

struct Serving {
    offer: Arc<Offer>,
    permits: Arc<Semaphore>,
}

/// The store and its limits, for serving.
pub(crate) struct Offer {
    pub access: Arc<dyn BlobAccess>,
    pub counters: Arc<Counters>,
    pub limiter: BandwidthLimiter,
}

impl Serving {
    async fn serve(self, mut stream: Stream) -> io::Result<()> {
        let mut named = [0; 40];
        // One byte now and then must not hold a slot.
        within(BLOB_IDLE, TIMEOUTS.read(&mut stream, &mut named)).await?;
        let blob = named_blob(&named);
        let Ok(Ok(_permit)) = tokio::time::timeout(SERVING_WAIT, self.permits.acquire()).await else {
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

async fn refuse(mut stream: Stream, status: u8) -> io::Result<()> {
    TIMEOUTS.write(&mut stream, &[status]).await?;
    within(BLOB_IDLE, stream.close()).await
}
