//! How streams to a donor are opened: directly, or through a peer that forwards.

use std::cmp::Reverse;
use std::io;
use std::sync::Arc;

use futures::stream::FuturesUnordered;
use futures::{AsyncWriteExt, StreamExt};
use libp2p::PeerId;
use tokio::sync::oneshot;

use crate::names::{BlobHash, BlobRef, PeerKey};
use crate::network::blobs::transfer::{Streams, Through, name_donor};
use crate::network::blobs::{BlobAccess, FORWARD_PROTOCOL, FORWARDS, FetchError, within};
use crate::network::connectivity::routes::Origins;
use crate::network::identity::peer_key;
use crate::network::limits::{BLOB_IDLE, FORWARD_AFTER, FORWARD_ANSWER, FORWARDERS_ASKED};
use crate::network::standing::Standing;

/// The peers that may forward to this one.
pub(crate) struct Forwarders {
    pub access: Arc<dyn BlobAccess>,
    /// The peers with a direct connection.
    pub origins: Arc<Origins>,
}

impl Forwarders {
    /// Waits for a direct connection to a donor. If that takes long or fails, looks for a peer that forwards.
    pub(crate) async fn reach(
        self: Arc<Self>,
        streams: Arc<Streams>,
        (blob, donor): (BlobRef, PeerKey),
        mut connection: oneshot::Receiver<Result<PeerId, FetchError>>,
    ) -> Result<Through, FetchError> {
        let connected =
            |outcome: Result<Result<_, _>, _>| outcome.unwrap_or(Err(FetchError::Nobody)).map(Through::Donor);
        let soon = tokio::time::timeout(FORWARD_AFTER, &mut connection).await.ok().map(connected);
        if let Some(Ok(through)) = soon {
            return Ok(through);
        }
        let peers = self.to_ask(blob, donor).into_iter();
        let mut asked: FuturesUnordered<_> = peers.map(|peer| ask_to_forward(&streams, peer, donor)).collect();
        let forwarder = async {
            while let Some(answer) = asked.next().await {
                if let Ok(Some(forwarder)) = answer {
                    return Some(forwarder);
                }
            }
            None
        };
        // Whoever does not answer delays nothing for long.
        if let Ok(Some(forwarder)) = tokio::time::timeout(FORWARD_ANSWER, forwarder).await {
            return Ok(Through::Forwarder(forwarder));
        }
        match soon {
            Some(failed) => failed,
            None => connected(connection.await),
        }
    }

    /// The peers that are asked to forward from a donor: connected directly, members first, and others for another blob.
    fn to_ask(&self, blob: BlobRef, donor: PeerKey) -> Vec<PeerId> {
        let standing = |peer: &PeerId| {
            let key = peer_key(peer).filter(|key| *key != donor);
            key.map_or(Standing::NotAdmitted, |key| self.access.standing(key))
        };
        let mut peers = self.origins.peers();
        peers.retain(|peer| standing(peer).is_admitted());
        peers.sort_by_cached_key(|peer| {
            (Reverse(standing(peer)), BlobHash::of(&[&blob.hash.0[..], &peer.to_bytes()].concat()))
        });
        peers.truncate(FORWARDERS_ASKED);
        peers
    }
}

/// The peer itself, if it forwards from this donor.
async fn ask_to_forward(streams: &Streams, forwarder: PeerId, donor: PeerKey) -> io::Result<Option<PeerId>> {
    let lock = streams.lock(forwarder);
    let _held = lock.lock().await;
    let mut stream = streams.open(forwarder, FORWARD_PROTOCOL).await?;
    let forwards = name_donor(&mut stream, donor).await? == FORWARDS;
    within(BLOB_IDLE, stream.close()).await?;
    Ok(forwards.then_some(forwarder))
}
