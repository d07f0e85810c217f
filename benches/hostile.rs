//! The throughput of honest peers with a peer under attack, as a share of the throughput without the attack.
//!
//! `cargo bench --bench hostile --profile release -- 10`, for one attack with its name after the seconds
//!
//! One peer serves blobs, responds to requests and receives gossip of another, for the given seconds, three times each
//! in peace and under attack, alternately. The attacker is another process, on a core of its own, so that it takes no
//! compute from the attacked process, which is on another core in peace as well. The attacks:
//!
//! - `invalid`: 10,000 invalid messages per second, with a new key after each ban, streams of a single byte, lengths that
//!   no request has, and connections that send nothing;
//! - `places`: eight keys ask for the blob on as many streams as each may have, and read nothing;
//! - `gossip`: four keys say valid things, as many a second as a peer may forward;
//! - `keys`: peers connect, say one thing and go, each with a new key.

#[path = "../tests/network/peers.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod peers;
#[path = "../tests/network/unmannered.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod unmannered;

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pathswarm::names::{BlobRef, PathId, PeerKey, Version};
use pathswarm::network::{Multiaddr, NetworkEvent, NetworkHandle, Offence, Published, RequestToken, limits};
use pathswarm::protocol::Message;
use pathswarm::protocol::wire::encoding;
use pathswarm::protocol::wire::message::Offer;
use peers::{MODULE, Peer, QUIC, TCP, join};
use unmannered::{BLOBS, CONTROL, Rude};

/// Invalid messages per second.
const RUBBISH_PER_SECOND: u64 = 10_000;

/// Honest gossip messages per second, far more than in any run.
const OFFERS_PER_SECOND: u64 = 400;

/// Honest requests per second: half of what a peer may send before it is considered an attacker.
const REQUESTS_PER_SECOND: u64 = limits::ASKED_PER_SECOND as u64 / 2;

/// The attacks, each measured by itself.
const ATTACKS: [&str; 4] = ["invalid", "places", "gossip", "keys"];

/// Keys that hold places.
const HOLDERS: usize = 8;

/// Keys that speak as much as they may.
const SPEAKERS: usize = 4;

/// The size of each blob that is fetched repeatedly.
const BLOB_BYTES: usize = 8 << 20;

const ROUNDS: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().filter(|argument| argument != "--bench").collect();
    let attacks = arguments.get(1).is_some_and(|first| first == "attack");
    if !keep_to_core(usize::from(attacks)) {
        eprintln!("without `taskset` and two cores: the attack takes cores from those who are attacked");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match arguments.get(1).map(String::as_str) {
        Some("attack") => runtime.block_on(attack(arguments[2].parse().unwrap(), &arguments[3])),
        seconds => {
            let window = Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(10));
            let wanted = |name: &&&str| arguments.get(2).is_none_or(|one| one == **name);
            for attack in ATTACKS.iter().filter(wanted) {
                println!("\n{attack}\n");
                runtime.block_on(measure(window, attack));
            }
        }
    }
}

/// Restricts this process, and all threads that it will start, to this core.
fn keep_to_core(core: usize) -> bool {
    let mut taskset = Command::new("taskset");
    taskset.args(["-cp", &core.to_string(), &std::process::id().to_string()]).stdout(Stdio::null());
    taskset.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The work done so far.
#[derive(Default)]
struct Done {
    offers: AtomicU64,
    answers: AtomicU64,
    blob_bytes: AtomicU64,
    stop: AtomicBool,
}

impl Done {
    fn read(&self) -> [u64; 3] {
        [self.offers.load(Relaxed), self.answers.load(Relaxed), self.blob_bytes.load(Relaxed)]
    }
}

async fn measure(window: Duration, attack: &str) {
    let (victim, mut honest) = (Peer::on(&[QUIC, TCP]).await, Peer::on(&[QUIC]).await);
    for peer in [&victim, &honest] {
        peer.handle.subscribe(MODULE).await.unwrap();
    }
    join(&honest, &victim).await;
    honest.wait_for_member(MODULE, victim.key()).await;
    let blob = victim.blobs.put(&bytes());
    let addresses = victim.addresses().await;
    let over_tcp = addresses.iter().find(|address| address.to_string().contains("/tcp/")).unwrap().clone();
    let (key, handle, done) = (victim.key(), victim.handle.clone(), Arc::new(Done::default()));
    let honest_key = honest.key();
    let attended = tokio::spawn(attend(victim, honest_key, done.clone()));
    let spoken = tokio::spawn(speak(honest.handle.clone(), done.clone()));
    let worked = tokio::spawn(work(honest, key, blob, done.clone()));

    let mut sums = [[0; 3]; 2];
    let mut most_rss = [0; 2];
    for round in 0..2 * ROUNDS {
        let attacked = round % 2;
        let attacker = (attacked == 1).then(|| Attacker::start(&over_tcp, attack));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = done.read();
        tokio::time::sleep(window).await;
        let after = done.read();
        drop(attacker);
        for (sum, (after, before)) in sums[attacked].iter_mut().zip(after.into_iter().zip(before)) {
            *sum += after - before;
        }
        most_rss[attacked] = most_rss[attacked].max(own_bytes());
    }
    done.stop.store(true, Relaxed);
    for task in [attended, spoken, worked] {
        task.abort();
    }
    assert!(handle.bans().iter().all(|ban| ban.peer != honest_key), "the honest peer was banned: {:?}", handle.bans());
    report(window * ROUNDS as u32, sums, most_rss, &handle);
}

fn report(time: Duration, [peace, attack]: [[u64; 3]; 2], [calm, most]: [u64; 2], handle: &NetworkHandle) {
    let bans = handle.bans().len();
    println!("| | in peace | under attack | ratio |\n|---|---|---|---|");
    let per_second = |amount: u64, unit: f64| amount as f64 / unit / time.as_secs_f64();
    for (at, (what, unit)) in
        [("gossip, messages/s", 1.0), ("requests/s", 1.0), ("blobs, MB/s", 1e6)].iter().enumerate()
    {
        let (before, after) = (per_second(peace[at], *unit), per_second(attack[at], *unit));
        println!("| {what} | {before:.1} | {after:.1} | {:.3} |", after / before);
    }
    println!("| own memory, MB | {:.1} | {:.1} | |", calm as f64 / 1e6, most as f64 / 1e6);
    println!("\n{bans} keys were banned");
}

/// As a peer does, penalizes the author of an unreadable message. Returns whether the message is readable.
fn penalize_unreadable(peer: &Peer, author: PeerKey, gossip: &[u8]) -> bool {
    let reads = encoding::decode::<Message>(gossip).is_ok();
    if !reads {
        let _ = peer.handle.penalize(author, Offence::Unreadable);
    }
    reads
}

/// Receives offers and responds to requests.
async fn attend(mut victim: Peer, honest: PeerKey, done: Arc<Done>) {
    loop {
        match victim.wait_for("anything", taken).await {
            Taken::Gossip(author, bytes) => {
                let offer = penalize_unreadable(&victim, author, &bytes) && author == honest;
                done.offers.fetch_add(u64::from(offer), Relaxed);
            }
            Taken::Request(from, token, bytes) if from == honest => drop(victim.handle.respond(token, bytes)),
            Taken::Request(from, ..) => drop(victim.handle.penalize(from, Offence::Unreadable)),
            _ => {}
        }
    }
}

/// An event to be handled.
enum Taken {
    Gossip(PeerKey, Vec<u8>),
    Request(PeerKey, RequestToken, Vec<u8>),
    Answer(bool),
    Blob(bool),
    Nothing,
}

/// Accepts every event, because ignored events would be stored.
fn taken(event: &NetworkEvent) -> Option<Taken> {
    Some(match event {
        NetworkEvent::Gossip { author, bytes, .. } => Taken::Gossip(*author, bytes.clone()),
        NetworkEvent::Request { from, token, bytes } => Taken::Request(*from, *token, bytes.clone()),
        NetworkEvent::Response { result, .. } => Taken::Answer(result.is_ok()),
        NetworkEvent::Fetched { result, .. } => Taken::Blob(result.is_ok()),
        _ => Taken::Nothing,
    })
}

/// Publishes offers at a steady rate.
async fn speak(honest: NetworkHandle, done: Arc<Done>) {
    let mut tick = tokio::time::interval(Duration::from_micros(1_000_000 / OFFERS_PER_SECOND));
    for sequence in 0.. {
        tick.tick().await;
        if done.stop.load(Relaxed) {
            return;
        }
        let _ = honest.publish(MODULE, offer(sequence)).await;
    }
}

/// Keeps one request and one blob in flight until it is stopped. Requests are no faster than a peer may send them.
async fn work(mut honest: Peer, victim: PeerKey, blob: BlobRef, done: Arc<Done>) {
    let ask = |honest: &Peer| honest.handle.request(0, victim, vec![], vec![7; 4_096]).is_ok();
    let fetch = |honest: &Peer| assert_eq!(honest.handle.fetch(1, blob, vec![(victim, vec![])]), Ok(()));
    let mut tick = tokio::time::interval(Duration::from_micros(1_000_000 / REQUESTS_PER_SECOND));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut asked = false;
    fetch(&honest);
    while !done.stop.load(Relaxed) {
        let taken = tokio::select! {
            taken = honest.wait_for("anything", taken) => taken,
            _ = tick.tick(), if !asked => {
                asked = ask(&honest);
                continue;
            }
        };
        match taken {
            Taken::Answer(fine) => {
                done.answers.fetch_add(u64::from(fine), Relaxed);
                asked = false;
            }
            Taken::Blob(fine) => {
                done.blob_bytes.fetch_add(u64::from(fine) * blob.bytes, Relaxed);
                fetch(&honest);
            }
            Taken::Gossip(author, bytes) => {
                penalize_unreadable(&honest, author, &bytes);
            }
            _ => {}
        }
    }
}

struct Attacker(Child);

impl Attacker {
    fn start(address: &Multiaddr, attack: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self(command.arg("attack").arg(address.to_string()).arg(attack).stdout(Stdio::inherit()).spawn().unwrap())
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The bytes of the blob.
fn bytes() -> Vec<u8> {
    let mut bytes = vec![0; BLOB_BYTES];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

async fn attack(victim: Multiaddr, name: &str) {
    match name {
        "places" => {
            let holders: Vec<_> = (0..HOLDERS).map(|_| tokio::spawn(hold_places(victim.clone()))).collect();
            for holder in holders {
                holder.await.unwrap();
            }
        }
        "gossip" => {
            let speakers: Vec<_> = (0..SPEAKERS).map(|_| tokio::spawn(speak_much(victim.clone()))).collect();
            for speaker in speakers {
                speaker.await.unwrap();
            }
        }
        "keys" => loop {
            say_once(&victim).await;
        },
        _ => send_invalid(victim).await,
    }
}

/// Holds as many places as one key may have, and takes others when they are lost.
async fn hold_places(victim: Multiaddr) {
    let blob = BlobRef::of(&bytes());
    let named = [&blob.hash.0[..], &blob.bytes.to_le_bytes()].concat();
    loop {
        let Ok(mut rude) = tokio::time::timeout(Duration::from_secs(5), Rude::at(victim.clone())).await else {
            continue;
        };
        for _ in 0..100 {
            let mut held = Vec::new();
            for _ in 0..limits::SERVINGS_PER_PEER {
                held.extend(rude.stream(BLOBS, &named).await);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

fn offer(sequence: u64) -> Vec<u8> {
    let blob = BlobRef::of(b"an outer gradient");
    let (path, parent, parent_update) = (PathId(1), Version(1), blob.hash);
    encoding::encode(&Message::Offer(Offer { path, parent, parent_update, router: 0, steps: 1, blob, sequence }))
        .unwrap()
}

/// Says as much as a peer may forward.
async fn speak_much(victim: Multiaddr) {
    let hostile = Peer::on(&[]).await;
    hostile.handle.subscribe(MODULE).await.unwrap();
    let _ = hostile.handle.dial(victim).await;
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    for sequence in 0.. {
        tick.tick().await;
        let _ = hostile.handle.publish(MODULE, offer(sequence)).await;
    }
}

async fn say_once(victim: &Multiaddr) {
    let hostile = Peer::on(&[]).await;
    hostile.handle.subscribe(MODULE).await.unwrap();
    let _ = hostile.handle.dial(victim.clone()).await;
    let _ = hostile.handle.publish(MODULE, offer(0)).await;
    hostile.wait_for_end().await;
}

async fn send_invalid(victim: Multiaddr) {
    let socket = victim.to_string().split('/').nth(4).unwrap().to_owned();
    let _silent: Vec<TcpStream> = (0..limits::PENDING_CONNECTIONS / 2)
        .filter_map(|_| TcpStream::connect(format!("127.0.0.1:{socket}")).ok())
        .collect();
    tokio::spawn(stall(victim.clone()));
    loop {
        rubbish(&victim).await;
    }
}

/// Stalls the victim until it is banned, and then again with another key.
async fn stall(victim: Multiaddr) {
    loop {
        let Ok(mut rude) = tokio::time::timeout(Duration::from_secs(5), Rude::at(victim.clone())).await else {
            continue;
        };
        let mut kept = Vec::new();
        for _ in 0..limits::SERVINGS_PER_PEER {
            kept.extend(rude.stream(BLOBS, &[7]).await);
        }
        while let Some(stream) = rude.stream(CONTROL, &u32::MAX.to_le_bytes()).await {
            kept.push(stream);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how long it has been banned")]
async fn rubbish(victim: &Multiaddr) {
    let hostile = Peer::on(&[]).await;
    hostile.handle.subscribe(MODULE).await.unwrap();
    if hostile.handle.dial(victim.clone()).await.is_err() {
        return;
    }
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    let began = Instant::now();
    for number in 0_u64.. {
        if number % (RUBBISH_PER_SECOND / 1_000) == 0 {
            tick.tick().await;
        }
        let said = hostile.handle.publish(MODULE, [&number.to_le_bytes()[..], &[7; 500]].concat()).await;
        if said == Ok(Published::NobodyListens) && began.elapsed() > Duration::from_secs(1) {
            // It is banned.
            return;
        }
    }
}

/// The memory of this process without mapped files, such as libraries.
fn own_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() * 1024
}
