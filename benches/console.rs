//! What the console costs: the share of a core that it takes to show a swarm of 1,000 peers to viewers, and its memory.
//!
//! `cargo bench --bench console --profile release -- 20`, after the seconds of each row; `-- serve one 127.0.0.1:7777`
//! (or `serve many …`) shows the same swarm to a browser until it is killed, for `benches/clients/console.mjs`.
//!
//! `one` is a process with one peer that knows 999 others; `many` is one like `simulate`, with 1,000 peers in full, which
//! know those of their two modules. Each second a tenth of the peers has trained, moved on to another version and applied
//! an update, as all others see, and those answer that the console asks in a second. Viewers are another process. One of
//! them may never read. The time of the console is that of its threads, and of this thread while it takes over statuses
//! and makes frames. Statuses are made up, which costs nothing here, but they are freed: a column says how much of the
//! time that is.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pathswarm::config::run::RunConfig;
use pathswarm::console::{Console, Shows};
use pathswarm::names::{PathId, PeerKey, Phase};
use pathswarm::peer::trainer::task::Stepped;
use pathswarm::peer::{PeerEvent, PeerStatus};
use pathswarm::telemetry::{ASKED_PER_TICK, Feed, RunOutline, Telemetry};
use serde_json::{Value, json};

/// Experts of each of the two levels: 1,024 paths.
const EXPERTS: usize = 32;

const PEERS: usize = 1_000;

/// Of this many peers, one changes in a second.
const CHANGING: usize = 10;

const RUN: &str = r#"
name = "a-thousand-peers"
[text]
held_out_share = 0.05
test_share = 0.05
[model]
blocks = 2
width = 32
heads = 2
vocabulary = 320
context = 64
tied_head = true
[[levels]]
parts = ["embedding", "block.0"]
sharing = { experts = 32 }
[[levels]]
parts = ["block.1", "final-norm"]
sharing = { experts = 32 }
[routing]
prefix_tokens = 8
[training]
batch_sequences = 4
inner_steps = 400
phases = 1000
ancestor_steps = 30
learning_rate = 2e-3
warmup_steps = 10
"#;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", scenario, address] => serve(scenario, address),
        ["row", scenario, seconds, viewers, silent] => {
            row(scenario, seconds.parse().unwrap(), (viewers.parse().unwrap(), silent.parse().unwrap()));
        }
        ["view", address, viewers, silent] => view(address, viewers.parse().unwrap(), silent.parse().unwrap()),
        [] => table("10"),
        [seconds] => table(seconds),
        _ => panic!("-- [SECONDS], or -- serve one|many ADDRESS"),
    }
}

fn table(seconds: &str) {
    println!(
        "| process | viewers | share of a core | of it freeing | a frame | longest turn | memory before | after |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for scenario in ["one", "many"] {
        for (viewers, silent) in [("1", "0"), ("20", "1")] {
            // A process of its own: no row frees memory for the next.
            let mut command = Command::new(std::env::current_exe().unwrap());
            assert!(command.args(["row", scenario, seconds, viewers, silent]).status().unwrap().success());
        }
    }
}

fn row(scenario: &str, seconds: u64, (viewers, silent): (usize, usize)) {
    let mut swarm = Swarm::new(scenario);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let console = Console::open(&swarm.telemetry, listener, None, Shows::Page, None).unwrap();
    // Buffers grow at first, and again when whole states are sent.
    for _ in 0..3 {
        swarm.second();
    }
    let before = resident_mb();
    let mut child = viewers_of(&console, viewers, silent);
    for _ in 0..3 {
        swarm.second();
    }
    let (process, thread) = (cpu(libc::CLOCK_PROCESS_CPUTIME_ID), cpu(libc::CLOCK_THREAD_CPUTIME_ID));
    let began = now();
    let turns: Vec<Duration> = (0..seconds).map(|_| swarm.second()).collect();
    let wall = began.elapsed().as_secs_f64();
    let others = (cpu(libc::CLOCK_PROCESS_CPUTIME_ID) - process) - (cpu(libc::CLOCK_THREAD_CPUTIME_ID) - thread);
    let here: Duration = turns.iter().sum();
    let after = resident_mb();
    let freeing: Duration = (0..3).map(|_| swarm.freeing()).sum();
    let freeing = 100.0 * freeing.as_secs_f64() / 3.0;
    let frame = swarm.frame_bytes();
    drop(console);
    // The viewers' connections end with the console.
    let _ = child.wait();
    let share = 100.0 * (others + here).as_secs_f64() / wall;
    let longest = turns.iter().max().map_or(0.0, |turn| 1e3 * turn.as_secs_f64());
    let silent = if silent > 0 { format!(" and {silent} that never reads") } else { String::new() };
    let (scenario, frame) = (swarm.words, frame as f64 / 1e3);
    println!(
        "| {scenario} | {viewers}{silent} | {share:.1}% | {freeing:.1}% | {frame:.0} kB | {longest:.0} ms | {before} MB | \
         {after} MB |"
    );
}

fn serve(scenario: &str, address: &str) {
    let mut swarm = Swarm::new(scenario);
    let console =
        Console::open(&swarm.telemetry, TcpListener::bind(address).unwrap(), None, Shows::Page, None).unwrap();
    println!("{}", console.link());
    loop {
        swarm.second();
    }
}

/// A process of viewers.
fn viewers_of(console: &Console, viewers: usize, silent: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("view").arg(console.address().to_string()).arg(viewers.to_string()).arg(silent.to_string());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // It says so when all have their first bytes.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

fn view(address: &str, viewers: usize, silent: usize) {
    let connect = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(format!("GET /api/stream HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    let _silent: Vec<TcpStream> = (0..silent).map(|_| connect()).collect();
    let mut streams: Vec<TcpStream> = (0..viewers).map(|_| connect()).collect();
    for stream in &mut streams {
        stream.read_exact(&mut [0; 16]).unwrap();
    }
    println!("all are here");
    std::thread::scope(|scope| {
        for mut stream in streams {
            scope.spawn(move || {
                let mut bytes = vec![0; 1 << 18];
                while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
            });
        }
    });
}

/// A made-up swarm.
struct Swarm {
    telemetry: Telemetry,
    words: &'static str,
    feeds: Vec<Feed>,
    statuses: Vec<PeerStatus>,
    seconds: u64,
}

impl Swarm {
    fn new(scenario: &str) -> Self {
        let (in_full, words) = match scenario {
            "one" => (1, "1 peer that knows 999"),
            "many" => (PEERS, "1,000 peers in full"),
            _ => panic!("one or many, not {scenario}"),
        };
        let telemetry = Telemetry::default();
        let outline = RunOutline::new(&RunConfig::from_toml(RUN).unwrap()).unwrap();
        let feeds = (0..in_full).map(|peer| Feed::new(&telemetry, &label(peer), outline.clone())).collect();
        let statuses = (0..in_full).map(|peer| status(peer, in_full)).collect();
        Self { telemetry, words, feeds, statuses, seconds: 0 }
    }

    /// A second passes. Returns the time that the console's part has taken of this thread.
    fn second(&mut self) -> Duration {
        let began = now();
        self.seconds += 1;
        self.statuses.iter_mut().enumerate().for_each(|(peer, status)| change(peer, status, self.seconds));
        let statuses = self.asked();
        let took = cpu(libc::CLOCK_THREAD_CPUTIME_ID);
        for (peer, feed) in self.feeds.iter().enumerate().filter(|(peer, _)| changes(*peer, self.seconds)) {
            feed.hear(&PeerEvent::Stepped(stepped(peer, self.seconds)), None);
        }
        for (peer, status) in statuses {
            self.telemetry.show(&label(peer), status);
        }
        self.telemetry.send_frame();
        let took = cpu(libc::CLOCK_THREAD_CPUTIME_ID) - took;
        pause(Duration::from_secs(1).saturating_sub(began.elapsed()));
        took
    }

    /// The statuses of the peers that the console asks in this second.
    fn asked(&self) -> Vec<(usize, PeerStatus)> {
        let rounds = self.statuses.len().div_ceil(ASKED_PER_TICK);
        let turn = self.seconds as usize % rounds;
        self.statuses.iter().cloned().enumerate().skip(turn).step_by(rounds).collect()
    }

    /// The time that it takes to free the statuses of a second.
    fn freeing(&self) -> Duration {
        let statuses = self.asked();
        let took = cpu(libc::CLOCK_THREAD_CPUTIME_ID);
        drop(statuses);
        cpu(libc::CLOCK_THREAD_CPUTIME_ID) - took
    }

    /// The length of the next frame.
    fn frame_bytes(&mut self) -> usize {
        let mut viewer = self.telemetry.subscribe();
        self.second();
        viewer.frames.try_recv().map_or(0, |frame| frame.len())
    }
}

fn label(peer: usize) -> String {
    format!("peer {peer}")
}

fn key(peer: usize) -> PeerKey {
    PeerKey(*blake3::hash(&peer.to_le_bytes()).as_bytes())
}

fn modules(peer: usize) -> [String; 2] {
    [format!("0.{}", peer / EXPERTS), format!("1.{}", peer % EXPERTS)]
}

fn changes(peer: usize, second: u64) -> bool {
    peer % CHANGING == second as usize % CHANGING
}

/// How often a peer has changed.
fn round(peer: usize, second: u64) -> u64 {
    second.saturating_sub((peer % CHANGING) as u64) / CHANGING as u64
}

fn status(peer: usize, in_full: usize) -> PeerStatus {
    let own = modules(peer);
    // A single peer knows everybody, as in a run with a module that all share.
    let known = |other: &usize| *other != peer && (in_full == 1 || modules(*other).iter().any(|it| own.contains(it)));
    let known: Vec<usize> = (0..PEERS).filter(known).collect();
    let member = |other: usize| {
        let shared: serde_json::Map<String, Value> = modules(other).into_iter().map(|it| (it, json!(0))).collect();
        let path = json!({ "path": other, "trainer": 1, "phase": 0, "stage": "training" });
        json!({ "modules": shared, "differs": [], "paths": [path], "steps_per_1000_s": 900, "replicas": 0,
                "silent_s": null })
    };
    let module = |name: &String| {
        json!({ "module": name, "version": 0, "phase": 0, "staleness_mean": 0.0, "staleness_most": 0,
                "state_hash": key(0), "owner": key(0), "term": 1, "owned_here": false, "members": EXPERTS,
                "no_replica": false, "replica": false, "uncounted": 0, "weight_lost": 0 })
    };
    let score = |other: &usize| json!({ "peer": key(*other), "counted": 0, "faults": {}, "quarantined": false, "reason": null });
    let members: serde_json::Map<String, Value> =
        known.iter().map(|other| (key(*other).to_string(), member(*other))).collect();
    let path = json!({ "path": peer, "trainer": 1, "drawn": peer, "phase": 0, "stage": "training", "waits_for": null });
    let traffic = json!({ "blob_bytes_sent": 0, "blob_bytes_received": 0, "blob_bytes_forwarded": 0,
                          "message_bytes_sent": 0, "message_bytes_received": 0 });
    let synced = json!({ "contribution_bytes": 0, "contribution_parameters": 0, "average_bytes": 0,
                         "average_parameters": 0 });
    let status = json!({
        "run": key(0), "name": "a-thousand-peers", "peer": key(peer), "phases": 1_000,
        "modules": own.iter().map(module).collect::<Vec<Value>>(), "paths": [path],
        "peers": known.iter().map(|other| key(*other)).collect::<Vec<PeerKey>>(), "members": members,
        "done": false, "waits_for": null, "copied_identities": [], "scores": [],
        "peer_scores": known.iter().map(score).collect::<Vec<Value>>(), "audited": 0,
        "parameter_hashes": {}, "addresses": ["/ip4/192.0.2.1/udp/7400/quic-v1"], "traffic": traffic,
        "synced": synced, "text": null, "phases_trained": 0, "scored": [], "bans": [], "invited": null,
    });
    serde_json::from_value(status).unwrap()
}

/// What is different in a second.
fn change(peer: usize, status: &mut PeerStatus, second: u64) {
    status.activity.uptime_s = second;
    if changes(peer, second) {
        let round = round(peer, second);
        let activity = &mut status.activity;
        (activity.path, activity.phase, activity.step) = (Some(peer as u32), Some(round), Some(10 * (second % 40)));
        (activity.loss, activity.tokens) = (Some(loss(peer, second)), 2_560 * round);
        (activity.tokens_per_s, activity.trained_s) = (Some(2_000.0 + second as f64), second as f64);
        status.traffic.blob_bytes_sent += 1_000_000;
        status.traffic.message_bytes_sent += 10_000;
        status.node.modules.iter_mut().for_each(|module| module.version = Some(round));
    }
    // Of the others any tenth: keys are hashes.
    for score in &mut status.node.peer_scores {
        score.counted += u64::from(changes(usize::from(score.peer.0[0]), second));
    }
    for (key, member) in &mut status.node.members {
        if changes(usize::from(key.0[0]), second) {
            member.modules.values_mut().for_each(|version| *version = Some(second / CHANGING as u64));
            member.paths.iter_mut().for_each(|path| path.phase = second / CHANGING as u64);
        }
    }
}

fn loss(peer: usize, second: u64) -> f64 {
    2.0 + 4.0 / (1.0 + 0.05 * second as f64) + 0.01 * (peer % 7) as f64
}

fn stepped(peer: usize, second: u64) -> Stepped {
    Stepped {
        path: PathId(peer as u32),
        phase: Phase(round(peer, second)),
        step: 10 * (second % 40),
        loss: loss(peer, second),
        gradient_norm: 1.0,
        learning_rate: 2e-3,
        tokens: 2_560,
        seconds: 1.0,
    }
}

/// The time that a clock of the system has counted for this process or this thread.
fn cpu(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a timespec, and nothing else.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Memory of this process.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1_000
}

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "statuses come once a second")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
