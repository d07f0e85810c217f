//! Forwards blob streams between peers that are both connected directly to this one, but not to each other, as behind
//! symmetric NATs.
//!
//! The requester names the donor. If this peer forwards, the requester goes on as if it spoke to the donor. The bytes pass
//! unread, within this peer's limits of bandwidth: the requester verifies them.

use std::io;
use std::sync::Arc;

use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::{PeerId, Stream, StreamProtocol};
use tokio::sync::oneshot;

use crate::names::{BlobHash, BlobRef, PeerKey};
use crate::network::blobs::fetch::Fetcher;
use crate::network::blobs::serve::{Serving, refuse};
use crate::network::blobs::transfer::{Streams, Through};
use crate::network::blobs::{BLOB_PROTOCOL, FORWARDS, FetchError, STATUS_BUSY, STATUS_NOT_CONNECTED, TIMEOUTS, within};
use crate::network::identity::{peer_id, peer_key};
use crate::network::limits::{
    BLOB_IDLE, BLOB_OPEN_TIMEOUT, BLOB_SLICE_BYTES, FORWARD_AFTER, FORWARDERS_ASKED, SERVING_WAIT,
};
use crate::network::standing::Standing;

/// The protocol of a stream to be forwarded.
pub(crate) const FORWARD_PROTOCOL: StreamProtocol = StreamProtocol::new("/pathswarm/blob-forward/1");

impl Fetcher {
    /// Waits for a direct connection to a donor. If that takes long or fails, looks for a peer that forwards.
    pub(super) async fn reach(
        self: Arc<Self>,
        blob: BlobRef,
        donor: PeerKey,
        mut connection: oneshot::Receiver<Result<PeerId, FetchError>>,
    ) -> Result<Through, FetchError> {
        let connected = |outcome: Result<_, _>| outcome.unwrap_or(Err(FetchError::Nobody)).map(Through::Donor);
        let soon = tokio::time::timeout(FORWARD_AFTER, &mut connection).await.ok().map(connected);
        if let Some(Ok(through)) = soon {
            return Ok(through);
        }
        for forwarder in self.forwarders(blob, donor) {
            let asked = within(BLOB_IDLE, ask_to_forward(&self.streams, forwarder, donor)).await;
            if let Ok(true) = asked {
                return Ok(Through::Forwarder(forwarder));
            }
        }
        match soon {
            Some(failed) => failed,
            None => connected(connection.await),
        }
    }

    /// The peers that are asked to forward from a donor: connected directly, and others for another blob.
    fn forwarders(&self, blob: BlobRef, donor: PeerKey) -> Vec<PeerId> {
        let may = |peer: &PeerId| {
            let key = peer_key(peer).filter(|key| *key != donor);
            key.is_some_and(|key| self.access.standing(key).is_admitted())
        };
        let mut peers: Vec<PeerId> = self.origins.peers().into_iter().filter(may).collect();
        peers.sort_by_cached_key(|peer| BlobHash::of(&[&blob.hash.0[..], &peer.to_bytes()].concat()));
        peers.truncate(FORWARDERS_ASKED);
        peers
    }
}

/// Whether a peer forwards from this donor.
async fn ask_to_forward(streams: &Streams, forwarder: PeerId, donor: PeerKey) -> io::Result<bool> {
    let lock = streams.lock(forwarder);
    let _held = lock.lock().await;
    let mut stream = streams.open(forwarder, FORWARD_PROTOCOL).await?;
    let forwards = name_donor(&mut stream, donor).await? == FORWARDS;
    within(BLOB_IDLE, stream.close()).await?;
    Ok(forwards)
}

/// Names the donor, and reads whether the peer forwards.
pub(super) async fn name_donor(stream: &mut Stream, donor: PeerKey) -> io::Result<u8> {
    TIMEOUTS.write(stream, &donor.0).await?;
    within(BLOB_OPEN_TIMEOUT, stream.flush()).await?;
    let mut status = [0];
    TIMEOUTS.read(stream, &mut status).await?;
    Ok(status[0])
}

impl Serving {
    /// Forwards a stream, or says why not.
    pub(super) async fn forward(self, mut stream: Stream) -> io::Result<()> {
        let (mut donor, mut named) = ([0; 32], [0; 40]);
        within(BLOB_IDLE, TIMEOUTS.read(&mut stream, &mut donor)).await?;
        // Of strangers, the requester could be the donor as well: only members are forwarded from.
        let is_member = self.offer.access.standing(PeerKey(donor)) == Standing::Member;
        let donor = peer_id(PeerKey(donor)).filter(|donor| is_member && self.offer.origins.is_direct(donor));
        let Some(donor) = donor else { return refuse(stream, STATUS_NOT_CONNECTED).await };
        TIMEOUTS.write(&mut stream, &[FORWARDS]).await?;
        within(BLOB_IDLE, stream.flush()).await?;
        match within(BLOB_IDLE, TIMEOUTS.read(&mut stream, &mut named)).await {
            // It only wanted to know.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let place = tokio::time::timeout(SERVING_WAIT, self.places.enter(self.claim, self.signals.clone())).await;
        let Ok(_place) = place else { return refuse(stream, STATUS_BUSY).await };
        let streams = &self.offer.fetcher.streams;
        let lock = streams.lock(donor);
        let held = lock.clone().lock_owned().await;
        let Ok(mut other) = streams.open(donor, BLOB_PROTOCOL).await else {
            return refuse(stream, STATUS_NOT_CONNECTED).await;
        };
        TIMEOUTS.write(&mut other, &named).await?;
        within(BLOB_OPEN_TIMEOUT, other.flush()).await?;
        let mut status = [0];
        TIMEOUTS.read(&mut other, &mut status).await?;
        drop(held);
        TIMEOUTS.write(&mut stream, &status).await?;
        within(BLOB_IDLE, stream.flush()).await?;
        self.exchange(stream, other).await
    }

    /// Passes requests to the donor and its answers back, until one of them ends or both are silent.
    async fn exchange(&self, requester: Stream, donor: Stream) -> io::Result<()> {
        let ((mut asks, mut to_requester), (mut answers, mut to_donor)) = (requester.split(), donor.split());
        let (up, down) = (&self.offer.limiter, &self.offer.fetcher.streams.limiter);
        let (mut ask, mut answer) = ([0; 1024], vec![0; up.slice(down.slice(BLOB_SLICE_BYTES))]);
        loop {
            tokio::select! {
                read = asks.read(&mut ask) => match read? {
                    0 => return within(BLOB_IDLE, to_donor.close()).await,
                    bytes => {
                        TIMEOUTS.write(&mut to_donor, &ask[..bytes]).await?;
                        within(BLOB_IDLE, to_donor.flush()).await?;
                    }
                },
                read = answers.read(&mut answer) => match read? {
                    0 => return within(BLOB_IDLE, to_requester.close()).await,
                    bytes => {
                        down.take(bytes).await;
                        up.take(bytes).await;
                        self.offer.counters.blobs_forwarded.add(bytes);
                        TIMEOUTS.write(&mut to_requester, &answer[..bytes]).await?;
                        within(BLOB_IDLE, to_requester.flush()).await?;
                    }
                },
                () = tokio::time::sleep(BLOB_IDLE) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }
}
