//! The speed of fetching a blob from four donors on this machine, compared with a bare QUIC stream of the same bytes.
//!
//! `cargo bench --bench transfer --profile release -- [BYTES [ROUNDS]]`, by default 10^9 bytes and 5 rounds. Prints the
//! limits of hashing and of the disk, then both rates of each round, and the median of their ratios.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::swarm::SwarmEvent;
use libp2p::{StreamProtocol, Swarm, SwarmBuilder};
use pathswarm::names::BlobRef;
use pathswarm::network::{Identity, NetworkConfig, NetworkEvent, NetworkEvents, NetworkHandle, start};
use pathswarm::peer::StoredBlobs;
use pathswarm::pieces::{PIECE_BYTES, value_of};
use pathswarm::store::BlobStore;
use tempfile::TempDir;

const DONORS: usize = 4;
const RAW: StreamProtocol = StreamProtocol::new("/raw/1");

struct Peer {
    handle: NetworkHandle,
    events: NetworkEvents,
    blobs: BlobStore,
    _folder: TempDir,
}

impl Peer {
    async fn begin(listen: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::open(folder.path()).unwrap();
        let access = StoredBlobs::default();
        access.take_in(blobs.clone());
        access.serve_all_but(BTreeSet::new(), None);
        let listen = listen.iter().map(|address| address.parse().unwrap()).collect();
        let config = NetworkConfig { listen, ..NetworkConfig::visitor(Identity::generate()) };
        let (handle, events) = start(config, Arc::new(access)).await.unwrap();
        Self { handle, events, blobs, _folder: folder }
    }

    async fn fetch(&mut self, blob: BlobRef, from: &[Peer]) {
        let mut holders = Vec::new();
        for donor in from {
            holders.push((donor.handle.me(), donor.handle.join_addresses().await.unwrap()));
        }
        self.handle.fetch(1, blob, holders).unwrap();
        loop {
            if let Some(NetworkEvent::Fetched { result, .. }) = self.events.next().await {
                return result.unwrap();
            }
        }
    }
}

fn swarm() -> Swarm<libp2p_stream::Behaviour> {
    let swarm = SwarmBuilder::with_new_identity().with_tokio().with_quic();
    swarm.with_behaviour(|_| libp2p_stream::Behaviour::new()).unwrap().build()
}

/// Seconds for these bytes over one stream from one task to another, which discards them.
#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
async fn raw_s(contents: Arc<Vec<u8>>) -> f64 {
    let (mut server, mut client) = (swarm(), swarm());
    let mut incoming = server.behaviour().new_control().accept(RAW).unwrap();
    let mut control = client.behaviour().new_control();
    server.listen_on("/ip4/127.0.0.1/udp/0/quic-v1".parse().unwrap()).unwrap();
    let address = loop {
        if let SwarmEvent::NewListenAddr { address, .. } = server.select_next_some().await {
            break address;
        }
    };
    let peer = *server.local_peer_id();
    let serving = tokio::spawn(async move { while server.next().await.is_some() {} });
    client.dial(address).unwrap();
    while !matches!(client.select_next_some().await, SwarmEvent::ConnectionEstablished { .. }) {}
    let running = tokio::spawn(async move { while client.next().await.is_some() {} });
    let bytes = contents.len();
    let sending = tokio::spawn(async move {
        let (_, mut stream) = incoming.next().await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
        stream.write_all(&contents).await.unwrap();
        stream.close().await.unwrap();
    });
    let mut stream = control.open_stream(peer, RAW).await.unwrap();
    let began = Instant::now();
    stream.write_all(&[1]).await.unwrap();
    stream.flush().await.unwrap();
    let mut buffer = vec![0; 64 * 1024];
    let mut left = bytes;
    while left > 0 {
        left -= stream.read(&mut buffer).await.unwrap();
    }
    let seconds = began.elapsed().as_secs_f64();
    sending.await.unwrap();
    serving.abort();
    running.abort();
    seconds
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn main() {
    let given: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let (bytes, rounds) = (given.first().copied().unwrap_or(1_000_000_000), given.get(1).copied().unwrap_or(5));
    let mut contents = vec![0; bytes];
    blake3::Hasher::new().update(b"transfer").finalize_xof().fill(&mut contents);
    let contents = Arc::new(contents);
    let rate = |seconds: f64| bytes as f64 / seconds / 1e6;

    let began = Instant::now();
    let pieces = contents.chunks(PIECE_BYTES as usize).zip(0..);
    let values: Vec<[u8; 32]> = pieces.map(|(piece, index)| value_of(index, piece)).collect();
    println!("hashing {} pieces on one core: {:.0} MB/s", values.len(), rate(began.elapsed().as_secs_f64()));
    let began = Instant::now();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&contents).unwrap();
    let written = began.elapsed().as_secs_f64();
    file.sync_all().unwrap();
    println!("writing: {:.0} MB/s, with sync {:.0} MB/s", rate(written), rate(began.elapsed().as_secs_f64()));
    drop(file);

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut donors = Vec::new();
        for _ in 0..DONORS {
            let donor = Peer::begin(&["/ip4/127.0.0.1/udp/0/quic-v1"]).await;
            donor.blobs.put(&contents).unwrap();
            donors.push(donor);
        }
        let blob = BlobRef::of(&contents);
        let mut ratios = Vec::new();
        for round in 0..rounds {
            let raw = raw_s(contents.clone()).await;
            let mut newcomer = Peer::begin(&[]).await;
            let began = Instant::now();
            newcomer.fetch(blob, &donors).await;
            let seconds = began.elapsed().as_secs_f64();
            ratios.push(raw / seconds);
            let ratio = 100.0 * raw / seconds;
            println!(
                "round {round}: raw {:.0} MB/s, {DONORS} donors {:.0} MB/s, {ratio:.0}%",
                rate(raw),
                rate(seconds)
            );
        }
        println!("median of the ratios: {:.0}%", 100.0 * median(ratios));
    });
}
