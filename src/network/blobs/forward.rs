//! Forwards blob streams between peers that are both connected directly to this one, but not to each other, as behind
//! symmetric NATs.
//!
//! The requester names the donor, then the blob as to any donor. The bytes pass unread: the requester verifies them. Relays
//! carry no blobs; a member that forwards does so within its own limits of bandwidth.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::{PeerId, Stream, StreamProtocol};
use libp2p_stream::IncomingStreams;
use tokio::task::{Id, JoinSet};

use crate::names::PeerKey;
use crate::network::blobs::fetch::Fetcher;
use crate::network::blobs::serve::Offer;
use crate::network::blobs::transfer::Streams;
use crate::network::blobs::{BLOB_PROTOCOL, STATUS_BUSY, STATUS_NOT_CONNECTED, TIMEOUTS, within};
use crate::network::identity::{peer_id, peer_key};
use crate::network::limits::{
    BLOB_IDLE, BLOB_OPEN_TIMEOUT, BLOB_SLICE_BYTES, FORWARDS, FORWARDS_OF_OTHERS, FORWARDS_PER_PEER,
};
use crate::network::standing::Standing;

/// The protocol of a stream to be forwarded.
pub(crate) const FORWARD_PROTOCOL: StreamProtocol = StreamProtocol::new("/pathswarm/blob-forward/1");

/// Forwards every stream in its own task, as many at once as the limits allow.
pub(crate) async fn forward_all(mut incoming: IncomingStreams, offer: Arc<Offer>, fetcher: Arc<Fetcher>) {
    let mut tasks = JoinSet::new();
    let mut requesters: HashMap<Id, (PeerId, Standing)> = HashMap::new();
    loop {
        tokio::select! {
            stream = incoming.next() => {
                let Some((peer, stream)) = stream else { return };
                let standing = peer_key(&peer).map_or(Standing::NotAdmitted, |key| offer.access.standing(key));
                let refused = refusal(&requesters, (peer, standing));
                let (offer, fetcher) = (offer.clone(), fetcher.clone());
                let task = tasks.spawn(async move {
                    let forwarded = match refused {
                        Some(status) => refuse(stream, status).await,
                        None => forward(stream, &offer, fetcher.streams()).await,
                    };
                    if let Err(error) = forwarded {
                        tracing::debug!(%peer, %error, "forwarding a blob stopped before its end");
                    }
                });
                requesters.insert(task.id(), (peer, standing));
            }
            Some(ended) = tasks.join_next_with_id() => {
                let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                requesters.remove(&id);
            }
        }
    }
}

/// Why a peer's stream is not forwarded, if it is not.
fn refusal(requesters: &HashMap<Id, (PeerId, Standing)>, (peer, standing): (PeerId, Standing)) -> Option<u8> {
    let count = |is_one: &dyn Fn(&(PeerId, Standing)) -> bool| requesters.values().filter(|it| is_one(it)).count();
    let is_member = standing == Standing::Member;
    let busy = requesters.len() >= FORWARDS
        || count(&|(other, _)| *other == peer) >= FORWARDS_PER_PEER
        || (!is_member && count(&|(_, standing)| *standing != Standing::Member) >= FORWARDS_OF_OTHERS);
    match standing.is_admitted() {
        false => Some(STATUS_NOT_CONNECTED),
        true => busy.then_some(STATUS_BUSY),
    }
}

async fn refuse(mut stream: Stream, status: u8) -> io::Result<()> {
    TIMEOUTS.write(&mut stream, &[status]).await?;
    within(BLOB_IDLE, stream.close()).await
}

async fn forward(mut stream: Stream, offer: &Offer, streams: &Streams) -> io::Result<()> {
    let (mut donor, mut named) = ([0; 32], [0; 40]);
    within(BLOB_IDLE, async {
        TIMEOUTS.read(&mut stream, &mut donor).await?;
        TIMEOUTS.read(&mut stream, &mut named).await
    })
    .await?;
    // Of strangers, either could be the other: members alone are forwarded from.
    let is_member = offer.access.standing(PeerKey(donor)) == Standing::Member;
    let donor = peer_id(PeerKey(donor)).filter(|donor| is_member && offer.origins.is_direct(donor));
    let Some(donor) = donor else { return refuse(stream, STATUS_NOT_CONNECTED).await };
    let lock = streams.lock(donor);
    let held = lock.lock().await;
    let Ok(mut other) = open(streams, donor).await else { return refuse(stream, STATUS_NOT_CONNECTED).await };
    TIMEOUTS.write(&mut other, &named).await?;
    within(BLOB_OPEN_TIMEOUT, other.flush()).await?;
    let mut status = [0];
    TIMEOUTS.read(&mut other, &mut status).await?;
    drop(held);
    TIMEOUTS.write(&mut stream, &status).await?;
    within(BLOB_IDLE, stream.flush()).await?;
    exchange(stream, other, offer, streams).await
}

async fn open(streams: &Streams, donor: PeerId) -> io::Result<Stream> {
    let mut control = streams.control.clone();
    within(BLOB_OPEN_TIMEOUT, async {
        control.open_stream(donor, BLOB_PROTOCOL).await.map_err(|error| io::Error::other(error.to_string()))
    })
    .await
}

/// Passes requests to the donor and its answers back, until one of them ends or both are silent.
async fn exchange(requester: Stream, donor: Stream, offer: &Offer, streams: &Streams) -> io::Result<()> {
    let ((mut asks, mut to_requester), (mut answers, mut to_donor)) = (requester.split(), donor.split());
    let most = offer.limiter.slice(streams.limiter.slice(BLOB_SLICE_BYTES));
    let (mut ask, mut answer) = ([0; 1024], vec![0; most]);
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
                    streams.limiter.take(bytes).await;
                    offer.limiter.take(bytes).await;
                    streams.counters.blobs_forwarded.add(bytes);
                    TIMEOUTS.write(&mut to_requester, &answer[..bytes]).await?;
                    within(BLOB_IDLE, to_requester.flush()).await?;
                }
            },
            () = tokio::time::sleep(BLOB_IDLE) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
