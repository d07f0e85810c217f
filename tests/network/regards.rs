//! What a peer makes of others, as a test says.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use pathswarm::names::{BlobRef, PeerKey};
use pathswarm::network::{BlobAccess, BlobSink, BlobSource, Identity, NetworkConfig, PeerAccess, Standing, Verdict};

use crate::peers::{Blobs, Peer};
use crate::unmannered::DEADLINE;

/// The store of a peer, and its view of others.
pub struct Regards {
    store: Arc<dyn BlobAccess>,
    by_invitation: bool,
    known: Mutex<BTreeMap<PeerKey, Standing>>,
    asked: Mutex<BTreeMap<PeerKey, usize>>,
}

impl Regards {
    pub fn new(store: Arc<dyn BlobAccess>, by_invitation: bool) -> Arc<Self> {
        Arc::new(Self { store, by_invitation, known: Mutex::default(), asked: Mutex::default() })
    }

    pub fn set(&self, peer: PeerKey, standing: Standing) {
        self.known.lock().unwrap().insert(peer, standing);
    }

    fn of(&self, peer: PeerKey) -> Standing {
        let unknown = if self.by_invitation { Standing::NotAdmitted } else { Standing::Stranger };
        self.known.lock().unwrap().get(&peer).copied().unwrap_or(unknown)
    }

    /// How often the network has asked for the standing of a peer: for each thing that its gossip brings, among others.
    pub fn times_asked(&self, about: PeerKey) -> usize {
        self.asked.lock().unwrap().get(&about).copied().unwrap_or_default()
    }

    pub async fn wait_until_asked(&self, about: PeerKey, times: usize) {
        let asked = async {
            while self.times_asked(about) < times {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, asked).await.expect("the network did not ask about a peer");
    }
}

impl PeerAccess for Regards {
    fn is_by_invitation(&self) -> bool {
        self.by_invitation
    }

    fn standing(&self, peer: PeerKey) -> Standing {
        *self.asked.lock().unwrap().entry(peer).or_default() += 1;
        self.of(peer)
    }

    fn verdict(&self, author: PeerKey, _: &[u8]) -> Verdict {
        if self.of(author).gossips() { Verdict::Accept } else { Verdict::Ignore }
    }
}

impl BlobAccess for Regards {
    fn open(&self, blob: BlobRef) -> io::Result<Option<Box<dyn BlobSource>>> {
        self.store.open(blob)
    }

    fn receive(&self, blob: BlobRef) -> io::Result<Box<dyn BlobSink>> {
        self.store.receive(blob)
    }
}

impl Peer {
    /// A peer that regards others as the test says; in a run by invitation or an open one.
    pub async fn regarding(listen: &[&str], by_invitation: bool) -> (Self, Arc<Regards>) {
        let listen = listen.iter().map(|address| address.parse().unwrap()).collect();
        let config = NetworkConfig { listen, ..NetworkConfig::visitor(Identity::generate()) };
        let blobs = Blobs::new();
        let regards = Regards::new(blobs.access.clone(), by_invitation);
        (Self::with_access(config, blobs, regards.clone()).await, regards)
    }
}
