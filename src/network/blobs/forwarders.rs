//! How streams to a donor are opened: directly, or through a peer that forwards.

use std::io;
use std::sync::Arc;

use futures::AsyncWriteExt;
use libp2p::PeerId;
use tokio::sync::oneshot;

use crate::names::{BlobHash, BlobRef, PeerKey};
use crate::network::blobs::transfer::{Streams, Through, name_donor};
use crate::network::blobs::{BlobAccess, FORWARD_PROTOCOL, FORWARDS, FetchError, within};
use crate::network::connectivity::routes::Origins;
use crate::network::identity::peer_key;
use crate::network::limits::{BLOB_IDLE, FORWARD_AFTER, FORWARDERS_ASKED};

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
        for forwarder in self.to_ask(blob, donor) {
            let asked = within(BLOB_IDLE, ask_to_forward(&streams, forwarder, donor)).await;
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
    fn to_ask(&self, blob: BlobRef, donor: PeerKey) -> Vec<PeerId> {
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
