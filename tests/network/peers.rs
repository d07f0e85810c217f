//! Peers on loopback with their blobs in a temporary folder.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pathswarm::names::{BlobHash, BlobRef, ModuleId, PeerKey, RunId};
use pathswarm::network::{
    BlobAccess, BlobSink, Identity, Multiaddr, NetworkConfig, NetworkEvent, NetworkEvents, NetworkHandle, start,
};
use tempfile::{NamedTempFile, TempDir};

pub const QUIC: &str = "/ip4/127.0.0.1/udp/0/quic-v1";
pub const TCP: &str = "/ip4/127.0.0.1/tcp/0";
pub const RUN: RunId = RunId([0x42; 32]);
pub const MODULE: ModuleId = ModuleId { level: 1, expert: 2 };

/// Far more than anything here takes: a test that gets there has failed.
const DEADLINE: Duration = Duration::from_secs(60);

pub struct Peer {
    pub handle: NetworkHandle,
    pub blobs: Arc<Folder>,
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
        let blobs = Arc::new(Folder::new());
        let (handle, events) = start(config, blobs.clone()).await.unwrap();
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
            NetworkEvent::Gossip { module, author, bytes } => Some((*module, *author, bytes.clone())),
            _ => None,
        })
        .await
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

/// Blobs in a folder, as files named by their hashes.
pub struct Folder {
    folder: TempDir,
    begun: Mutex<Vec<BlobHash>>,
}

impl Folder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), begun: Mutex::default() }
    }

    pub fn path(&self, hash: BlobHash) -> PathBuf {
        self.folder.path().join(hash.to_string())
    }

    pub fn put(&self, bytes: &[u8]) -> BlobRef {
        let blob = BlobRef::of(bytes);
        std::fs::write(self.path(blob.hash), bytes).unwrap();
        blob
    }

    pub fn begun(&self) -> Vec<BlobHash> {
        self.begun.lock().unwrap().clone()
    }

    pub fn files(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count()
    }
}

impl BlobAccess for Folder {
    fn open(&self, hash: BlobHash) -> io::Result<Option<(File, u64)>> {
        match File::open(self.path(hash)) {
            Ok(file) => file.metadata().map(|metadata| Some((file, metadata.len()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn receive(&self, blob: BlobRef) -> io::Result<Box<dyn BlobSink>> {
        self.begun.lock().unwrap().push(blob.hash);
        let file = NamedTempFile::new_in(self.folder.path())?;
        Ok(Box::new(Receiving { file, path: self.path(blob.hash) }))
    }
}

struct Receiving {
    file: NamedTempFile,
    path: PathBuf,
}

impl Write for Receiving {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl BlobSink for Receiving {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.file.persist(self.path).map(drop).map_err(io::Error::from)
    }
}
