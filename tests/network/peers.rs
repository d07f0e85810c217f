//! Peers on loopback with their blobs in a temporary folder.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pathswarm::names::{BlobRef, ModuleId, PeerKey, RunId};
use pathswarm::network::{
    BlobAccess, BlobSink, Donor, FetchError, Identity, Multiaddr, NetworkConfig, NetworkEvent, NetworkEvents,
    NetworkHandle, start,
};
use pathswarm::peer::StoredBlobs;
use pathswarm::store::BlobStore;
use tempfile::TempDir;

pub const QUIC: &str = "/ip4/127.0.0.1/udp/0/quic-v1";
pub const TCP: &str = "/ip4/127.0.0.1/tcp/0";
pub const RUN: RunId = RunId([0x42; 32]);
pub const MODULE: ModuleId = ModuleId { level: 1, expert: 2 };

/// Far more than anything here takes: a test that gets there has failed.
const DEADLINE: Duration = Duration::from_secs(60);

pub struct Peer {
    pub handle: NetworkHandle,
    pub blobs: Blobs,
    events: NetworkEvents,
    /// Seen while waiting for something else.
    seen: VecDeque<NetworkEvent>,
}

impl Peer {
    /// A peer that has joined [`RUN`] and listens on these addresses.
    pub async fn on(listen: &[&str]) -> Self {
        Self::with_identity(Identity::generate(), listen).await
    }

    /// The same, with a key that another may have as well.
    pub async fn with_identity(identity: Identity, listen: &[&str]) -> Self {
        let listen = listen.iter().map(|address| address.parse().unwrap()).collect();
        Self::with(NetworkConfig { listen, ..NetworkConfig::visitor(identity) }).await
    }

    /// A peer that has joined [`RUN`] and whom others reach through these relays only.
    pub async fn behind(relays: &[Multiaddr]) -> Self {
        Self::with(NetworkConfig { relays: relays.to_vec(), ..NetworkConfig::visitor(Identity::generate()) }).await
    }

    pub async fn with(config: NetworkConfig) -> Self {
        let blobs = Blobs::new();
        let access = blobs.access.clone();
        Self::with_access(config, blobs, access).await
    }

    pub async fn with_access(config: NetworkConfig, blobs: Blobs, access: Arc<dyn BlobAccess>) -> Self {
        let (handle, events) = start(config, access).await.unwrap();
        handle.join_run(RUN).await.unwrap();
        Self { handle, blobs, events, seen: VecDeque::new() }
    }

    pub fn key(&self) -> PeerKey {
        self.handle.me()
    }

    pub async fn addresses(&self) -> Vec<Multiaddr> {
        self.handle.join_addresses().await.unwrap()
    }

    /// The first event, from now on or seen already, of which this knows something. Others are kept for later.
    pub async fn wait_for<T>(&mut self, what: &str, mut wanted: impl FnMut(&NetworkEvent) -> Option<T>) -> T {
        let seen = self.seen.iter().enumerate().find_map(|(at, event)| wanted(event).map(|value| (at, value)));
        if let Some((at, value)) = seen {
            self.seen.remove(at);
            return value;
        }
        let waiting = async {
            loop {
                let event = self.events.next().await.expect("the network stopped");
                if let Some(value) = wanted(&event) {
                    return value;
                }
                self.seen.push_back(event);
            }
        };
        tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("waited for {what} in vain"))
    }

    /// Whether something was seen while something else was waited for.
    pub fn has_seen(&self, what: impl FnMut(&NetworkEvent) -> bool) -> bool {
        self.seen.iter().any(what)
    }

    /// Until this peer knows of a connection to another.
    pub async fn wait_for_connection(&mut self, to: PeerKey) {
        self.wait_for("a connection", |event| match event {
            NetworkEvent::Connected(peer) if *peer == to => Some(()),
            _ => None,
        })
        .await;
    }

    /// Until this peer knows that another listens to a module.
    pub async fn wait_for_member(&mut self, of: ModuleId, who: PeerKey) {
        self.wait_for("a member", |event| match event {
            NetworkEvent::Subscribed { module, peer } if (*module, *peer) == (of, who) => Some(()),
            _ => None,
        })
        .await;
    }

    pub async fn hear(&mut self) -> (ModuleId, PeerKey, Vec<u8>) {
        self.wait_for("gossip", |event| match event {
            NetworkEvent::Gossip { module, author, bytes, .. } => Some((*module, *author, bytes.clone())),
            _ => None,
        })
        .await
    }

    /// Asks these peers for a blob, and waits for it.
    pub async fn fetch(&mut self, id: u64, blob: BlobRef, from: &[&Peer]) -> (Vec<Donor>, Result<(), FetchError>) {
        let mut holders = Vec::new();
        for peer in from {
            holders.push((peer.key(), peer.addresses().await));
        }
        self.handle.fetch(id, blob, holders).unwrap();
        self.fetched(id).await
    }

    /// Waits for what became of a fetch.
    pub async fn fetched(&mut self, wanted: u64) -> (Vec<Donor>, Result<(), FetchError>) {
        self.wait_for("a blob", |event| match event {
            NetworkEvent::Fetched { id, donors, result, .. } if *id == wanted => Some((donors.clone(), result.clone())),
            _ => None,
        })
        .await
    }

    /// Until so many bytes of blobs have come, stored or not.
    pub async fn wait_for_bytes(&self, bytes: u64) {
        let coming = async {
            while self.handle.traffic().blobs_received < bytes {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, coming).await.expect("waited for bytes in vain");
    }

    pub async fn wait_for_end(mut self) {
        let ended = async { while self.events.next().await.is_some() {} };
        drop(self.handle);
        tokio::time::timeout(DEADLINE, ended).await.expect("the network did not stop");
    }
}

/// Connects two peers over the first address of the second.
pub async fn join(one: &Peer, other: &Peer) {
    let address = other.addresses().await.remove(0);
    assert_eq!(one.handle.dial(address).await, Ok(other.key()));
}

/// A peer's store, all of which it serves.
pub struct Blobs {
    _folder: TempDir,
    store: BlobStore,
    pub access: Arc<StoredBlobs>,
}

impl Blobs {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).unwrap();
        let access = StoredBlobs::default();
        access.take_in(store.clone());
        access.serve_all_but(BTreeSet::new(), None);
        Self { _folder: folder, store, access: Arc::new(access) }
    }

    pub fn put(&self, bytes: &[u8]) -> BlobRef {
        self.store.put(bytes).unwrap()
    }

    /// The blobs that are whole.
    pub fn list(&self) -> Vec<BlobRef> {
        self.store.list().unwrap()
    }

    pub fn get(&self, blob: BlobRef) -> Option<Vec<u8>> {
        self.store.get(blob.hash, blob.bytes).unwrap()
    }

    /// Bytes that all blobs take, those included that are on their way.
    pub fn used_bytes(&self) -> u64 {
        self.store.used_bytes()
    }

    /// Begins to receive a blob, as a peer does that is half-way.
    pub fn receive(&self, blob: BlobRef) -> Box<dyn BlobSink> {
        self.access.receive(blob).unwrap()
    }
}
