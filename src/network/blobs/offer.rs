//! What a peer serves and forwards from, and how it refuses.

use std::io;
use std::sync::Arc;

use futures::AsyncWriteExt;
use libp2p::{PeerId, Stream};

use crate::network::blobs::transfer::Streams;
use crate::network::blobs::{BlobAccess, TIMEOUTS, within};
use crate::network::connectivity::routes::Origins;
use crate::network::identity::peer_key;
use crate::network::limits::BLOB_IDLE;
use crate::network::protection::bandwidth_limiter::BandwidthLimiter;
use crate::network::standing::Standing;
use crate::network::traffic::Counters;

/// The store and its limits, for serving.
pub(crate) struct Offer {
    pub access: Arc<dyn BlobAccess>,
    pub origins: Arc<Origins>,
    pub counters: Arc<Counters>,
    pub limiter: BandwidthLimiter,
    /// Streams to the donors from which others are forwarded.
    pub streams: Arc<Streams>,
}

impl Offer {
    pub(crate) fn standing(&self, peer: &PeerId) -> Standing {
        peer_key(peer).map_or(Standing::NotAdmitted, |key| self.access.standing(key))
    }
}

/// Tells a peer why it is not served.
pub(super) async fn refuse(mut stream: Stream, status: u8) -> io::Result<()> {
    TIMEOUTS.write(&mut stream, &[status]).await?;
    within(BLOB_IDLE, stream.close()).await
}
