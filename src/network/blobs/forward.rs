//! Forwards blob streams between peers that are both connected directly to this one, but not to each other, as behind
//! symmetric NATs.
//!
//! The requester names the donor. If this peer forwards, the requester goes on as if it spoke to the donor. The bytes pass
//! unread, within this peer's limits of bandwidth: the requester verifies them.

use std::io;

use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::Stream;

use crate::names::PeerKey;
use crate::network::blobs::offer::{Offer, refuse};
use crate::network::blobs::{BLOB_PROTOCOL, FORWARDS, STATUS_BUSY, STATUS_NOT_CONNECTED, TIMEOUTS, within};
use crate::network::identity::peer_id;
use crate::network::limits::{BLOB_IDLE, BLOB_OPEN_TIMEOUT, BLOB_SLICE_BYTES, SERVING_WAIT};
use crate::network::standing::Standing;

/// Forwards a stream once it has a place, or says why not.
pub(super) async fn forward<P>(mut stream: Stream, offer: &Offer, place: impl Future<Output = P>) -> io::Result<()> {
    let (mut donor, mut named) = ([0; 32], [0; 40]);
    within(BLOB_IDLE, TIMEOUTS.read(&mut stream, &mut donor)).await?;
    // Of strangers, the requester could be the donor as well: only members are forwarded from.
    let is_member = offer.access.standing(PeerKey(donor)) == Standing::Member;
    let donor = peer_id(PeerKey(donor)).filter(|donor| is_member && offer.origins.is_direct(donor));
    let Some(donor) = donor else { return refuse(stream, STATUS_NOT_CONNECTED).await };
    TIMEOUTS.write(&mut stream, &[FORWARDS]).await?;
    within(BLOB_IDLE, stream.flush()).await?;
    match within(BLOB_IDLE, TIMEOUTS.read(&mut stream, &mut named)).await {
        // It only wanted to know.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        read => read?,
    }
    let Ok(_place) = tokio::time::timeout(SERVING_WAIT, place).await else {
        return refuse(stream, STATUS_BUSY).await;
    };
    let lock = offer.streams.lock(donor);
    let held = lock.lock().await;
    let Ok(mut other) = offer.streams.open(donor, BLOB_PROTOCOL).await else {
        return refuse(stream, STATUS_NOT_CONNECTED).await;
    };
    TIMEOUTS.write(&mut other, &named).await?;
    within(BLOB_OPEN_TIMEOUT, other.flush()).await?;
    let mut status = [0];
    TIMEOUTS.read(&mut other, &mut status).await?;
    drop(held);
    TIMEOUTS.write(&mut stream, &status).await?;
    within(BLOB_IDLE, stream.flush()).await?;
    exchange(stream, other, offer).await
}

/// Passes requests to the donor and its answers back, until one of them ends or both are silent.
async fn exchange(requester: Stream, donor: Stream, offer: &Offer) -> io::Result<()> {
    let ((mut asks, mut to_requester), (mut answers, mut to_donor)) = (requester.split(), donor.split());
    let (up, down) = (&offer.limiter, &offer.streams.limiter);
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
                    offer.counters.blobs_forwarded.add(bytes);
                    TIMEOUTS.write(&mut to_requester, &answer[..bytes]).await?;
                    within(BLOB_IDLE, to_requester.flush()).await?;
                }
            },
            () = tokio::time::sleep(BLOB_IDLE) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
