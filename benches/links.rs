//! The cost of an outer step's bytes over home links: one module, its owner and members, and real connections over
//! emulated slow links.
//!
//! `cargo bench --bench links --profile release [-- ROUNDS]`. Nothing is trained. In each round the owner fetches every
//! member's contribution, and every member fetches the average from the owner and from other members. Then a newcomer
//! joins and fetches the module's whole state from all. Prints a table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use pathswarm::config::Link;
use pathswarm::names::{BlobRef, PeerKey};
use pathswarm::network::{Identity, Multiaddr, NetworkConfig, NetworkEvent, NetworkEvents, NetworkHandle, start};
use pathswarm::peer::StoredBlobs;
use pathswarm::store::BlobStore;
use tempfile::TempDir;

/// Parameters of the module: a quarter of a path of 10 million.
const PARAMETERS: usize = 2_500_000;

/// A contribution or an average in int4.
const FRAME_BYTES: usize = PARAMETERS * 35 / 80;

/// Parameters and momentum.
const STATE_BYTES: usize = PARAMETERS * 8;

/// Seconds of inner steps for which utilisation is computed.
const PHASE_S: f64 = 60.0;

type Holder = (PeerKey, Vec<Multiaddr>);

struct Peer {
    handle: NetworkHandle,
    events: NetworkEvents,
    blobs: BlobStore,
    next: u64,
    _folder: TempDir,
}

impl Peer {
    async fn begin(link: Link) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::open(folder.path()).unwrap();
        let access = StoredBlobs::default();
        access.take_in(blobs.clone());
        access.serve_all_but(BTreeSet::new(), None);
        let listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
        let config = NetworkConfig { listen, link: Some(link), ..NetworkConfig::visitor(Identity::generate()) };
        let (handle, events) = start(config, Arc::new(access)).await.unwrap();
        Self { handle, events, blobs, next: 0, _folder: folder }
    }

    async fn holder(&self) -> Holder {
        (self.handle.me(), self.handle.join_addresses().await.unwrap())
    }

    /// Fetches all of these at once. Returns when each one arrived.
    #[expect(clippy::disallowed_methods, reason = "a bench measures time")]
    async fn fetch(&mut self, wanted: Vec<(BlobRef, Vec<Holder>)>) -> Vec<Instant> {
        let mut left = wanted.len();
        for (blob, holders) in wanted {
            self.next += 1;
            self.handle.fetch(self.next, blob, holders).unwrap();
        }
        let mut here = Vec::new();
        while left > 0 {
            if let Some(NetworkEvent::Fetched { result, .. }) = self.events.next().await {
                result.unwrap();
                here.push(Instant::now());
                left -= 1;
            }
        }
        here
    }
}

/// Pseudorandom bytes that depend on the name.
fn noise(bytes: usize, name: &str) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new().update(name.as_bytes()).finalize_xof().fill(&mut noise);
    noise
}

fn at(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// A row of the table.
struct Row {
    bytes_per_sync: f64,
    p50_s: f64,
    p95_s: f64,
    join_s: f64,
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
async fn measure(members: usize, link: Link, rounds: usize) -> Row {
    let mut peers = Vec::new();
    for _ in 0..members {
        peers.push(Peer::begin(link).await);
    }
    let holders = join_all(peers.iter().map(Peer::holder)).await;
    let mut seconds = Vec::new();
    let mut sent = 0;
    // The first round establishes the connections.
    for round in 0..=rounds {
        let before: u64 = peers.iter().map(|peer| peer.handle.traffic().blobs_sent).sum();
        let contribution =
            |(index, peer): (usize, &Peer)| peer.blobs.put(&noise(FRAME_BYTES, &format!("{round} {index}")));
        let offered: Vec<BlobRef> = peers.iter().enumerate().map(|it| contribution(it).unwrap()).collect();
        let began = Instant::now();
        let (owner, others) = peers.split_first_mut().unwrap();
        let wanted = (1..members).map(|index| (offered[index], vec![holders[index].clone()])).collect();
        owner.fetch(wanted).await;
        let average = owner.blobs.put(&noise(FRAME_BYTES, &format!("average {round}"))).unwrap();
        let owners = Instant::now();
        let fetched = others.iter_mut().enumerate().map(|(index, member)| {
            // The owner first, then the other members, beginning with the next one.
            let mut from = vec![holders[0].clone()];
            from.extend((1..members - 1).map(|step| holders[1 + (index + step) % (members - 1)].clone()));
            member.fetch(vec![(average, from)])
        });
        let here = join_all(fetched).await.into_iter().flatten().chain([owners]);
        let took: Vec<f64> = here.map(|here| (here - began).as_secs_f64()).collect();
        if round > 0 {
            seconds.extend(took);
            sent += peers.iter().map(|peer| peer.handle.traffic().blobs_sent).sum::<u64>() - before;
        }
    }
    let state = noise(STATE_BYTES, "state");
    peers.iter().for_each(|peer| assert_eq!(peer.blobs.put(&state).unwrap().bytes, state.len() as u64));
    let began = Instant::now();
    let mut newcomer = Peer::begin(link).await;
    newcomer.fetch(vec![(BlobRef::of(&state), holders)]).await;
    let join_s = began.elapsed().as_secs_f64();
    seconds.sort_by(f64::total_cmp);
    let bytes_per_sync = sent as f64 / (rounds * members) as f64;
    Row { bytes_per_sync, p50_s: at(&seconds, 0.5), p95_s: at(&seconds, 0.95), join_s }
}

fn main() {
    let rounds = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(2);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    println!("| members | link | MB sent a member and sync | outer step p50 | p95 | utilisation | join |");
    println!("|---|---|---|---|---|---|---|");
    for link in ["20mbit", "100mbit", "1000mbit"] {
        for round_trip in ["0ms", "50ms", "200ms"] {
            let link = format!("{link}/{round_trip}");
            for members in [2, 4, 8, 16] {
                let Row { bytes_per_sync, p50_s, p95_s, join_s } =
                    runtime.block_on(measure(members, link.parse().unwrap(), rounds));
                let utilisation = 100.0 * PHASE_S / (PHASE_S + p50_s);
                println!(
                    "| {members} | {link} | {:.2} | {p50_s:.2} s | {p95_s:.2} s | {utilisation:.1}% | {join_s:.2} s |",
                    bytes_per_sync / 1e6
                );
            }
        }
    }
}
