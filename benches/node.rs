//! Events per second that a node handles, and bytes of memory per known member.
//!
//! `cargo bench --no-default-features --bench node --profile release`

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use pathswarm::clock::Millis;
use pathswarm::config::OuterMode;
use pathswarm::grid::{Grid, Sharing};
use pathswarm::names::{BlobRef, ModuleId, PathId, PeerKey, Phase};
use pathswarm::protocol::journal::record::{Finished, Record};
use pathswarm::protocol::limits::{HEARTBEAT_MS, SWEEP_MS};
use pathswarm::protocol::module::chain::head_of;
use pathswarm::protocol::wire::message::{Head, Heartbeat, Lease, Offer, Stage, Start};
use pathswarm::protocol::{Action, Event, Message, Node, Outer, RunPlan, SignedUpdate};

/// Members of a module, including the node.
const MEMBERS: [u32; 3] = [4, 16, 64];

/// Seconds of heartbeats in a phase.
const PHASE_S: u64 = 30;

fn blob(name: String) -> BlobRef {
    BlobRef { bytes: 400, ..BlobRef::of(name.as_bytes()) }
}

/// A grid of two levels, in which this many paths go through each module.
fn plan(members: u32) -> Arc<RunPlan> {
    let grid = Grid::new(vec![Sharing::Experts(members); 2]).unwrap();
    let genesis = grid.modules().into_iter().map(|module| (module, blob(module.to_string()))).collect();
    let weights = vec![1 << 14; grid.path_count() as usize];
    let (mode, offer_bytes) = (OuterMode::Synchronous, vec![1_000; 2]);
    let average_bytes = offer_bytes.clone();
    let (slots, reshard) = (grid.into(), Vec::new());
    Arc::new(RunPlan {
        slots,
        mode,
        phases: 1 << 40,
        inner_steps: 100,
        streaming: None,
        reshard,
        weights,
        genesis,
        offer_bytes,
        average_bytes,
        norm_cap: 2.0,
        audit_share: 0.0,
        centred_clipping: false,
        deterministic: false,
    })
}

fn key(path: PathId) -> PeerKey {
    PeerKey(*blake3::hash(&path.0.to_le_bytes()).as_bytes())
}

/// The peer of path 0 in its two modules, with all other members.
struct Neighbourhood {
    node: Node,
    plan: Arc<RunPlan>,
    now: Millis,
    sequence: u64,
    events: u64,
    /// The heads of the others, which apply the updates that they receive.
    heads: BTreeMap<ModuleId, Head>,
}

impl Neighbourhood {
    fn new(members: u32) -> Self {
        let plan = plan(members);
        let path = PathId(0);
        let genesis = |module: ModuleId| Record::Genesis { module, state: plan.genesis[&module] };
        let mut records: Vec<Record> = plan.slots.modules(path, Phase(0)).into_iter().map(genesis).collect();
        records.push(Record::Lease { path, held: true, standby: false });
        let node = Node::restore(key(path), plan.clone(), records);
        let heads = node.chains().map(|(module, chain)| (module, chain.head())).collect();
        let mut here = Self { node, plan, now: Millis(0), sequence: 0, events: 0, heads };
        here.handle(Event::Join(vec![]));
        here
    }

    fn handle(&mut self, event: Event) {
        let mut due = VecDeque::from([event]);
        while let Some(event) = due.pop_front() {
            self.events += 1;
            let actions = self.node.handle(self.now, event);
            due.extend(actions.into_iter().filter_map(|action| self.carried_out(action)));
        }
    }

    /// The immediate result of an action, with made-up bytes.
    fn carried_out(&mut self, action: Action) -> Option<Event> {
        Some(match action {
            Action::Fetch { blob, .. } => Event::Fetched { blob: blob.hash, found: true },
            Action::Seal(update) => Event::Sealed(SignedUpdate { update, signature: vec![7; 64] }),
            Action::Outer(Outer::Accumulate { module, target, blob, .. }) => {
                Event::Accumulated { module, target, blob, norm: Some(0x3F80) }
            }
            Action::Outer(Outer::Combine { module, target, .. }) => {
                let made = |what| blob(format!("{what} {module} {target}"));
                Event::Combined { module, target, average: made("average"), state: made("state") }
            }
            Action::Outer(Outer::Apply { module, version, .. }) => {
                Event::Applied { module, version, state: Some(blob(format!("state {module} {version}"))) }
            }
            Action::Train { path, phase, start, .. } => {
                let offers = start.iter().map(|(from, _)| (*from, blob(format!("{path} {} {phase}", from.module))));
                let (offers, trainer) = (offers.collect(), blob(format!("trainer {phase}")));
                Event::Trained(Finished { path, phase, steps: 1, offers, trainer, base_states: vec![] })
            }
            Action::Publish { module, message: Message::Update(signed) } => {
                self.heads.extend(head_of(&signed.update).map(|head| (module, head)));
                return None;
            }
            _ => return None,
        })
    }

    fn hear(&mut self, module: ModuleId, path: PathId, message: Message) {
        self.handle(Event::Heard { module, author: key(path), message: Arc::new(message) });
    }

    /// Lets a second pass in the middle of a phase, in which every member sends a heartbeat on every module.
    fn second(&mut self) {
        for (module, head) in self.heads.clone() {
            for path in self.plan.slots.through(module, Phase(0)).into_iter().skip(1) {
                self.sequence += 1;
                let phase = Phase(head.version.0);
                let heartbeat = Heartbeat {
                    start: Start { incarnation: 1, nonce: 1, signature: vec![7; 64] },
                    sequence: self.sequence,
                    head: Some(head),
                    owner: None,
                    claim: vec![],
                    leases: vec![Lease { path, phase, stage: Stage::Training, trainer: Some(head.state) }],
                    addresses: vec!["/ip4/203.0.113.7/udp/4001/quic-v1".to_owned()],
                    replicas: 0,
                    wanted: vec![],
                    copied: vec![],
                    leaving: false,
                    pace: 0,
                };
                self.hear(module, path, Message::Heartbeat(heartbeat));
            }
        }
        for _ in 0..HEARTBEAT_MS / SWEEP_MS {
            self.now = self.now + SWEEP_MS;
            self.handle(Event::Tick);
        }
    }

    /// The time that a second takes. The seconds at the end of a phase are not measured.
    #[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
    fn second_of_a_phase(&mut self, second: u64) -> Duration {
        if second.is_multiple_of(PHASE_S) {
            self.phase();
        }
        let began = Instant::now();
        black_box(&mut *self).second();
        began.elapsed()
    }

    /// All others offer their contributions. Then two seconds pass, in which updates are made.
    fn phase(&mut self) {
        for (module, head) in self.heads.clone() {
            for path in self.plan.slots.through(module, Phase(0)).into_iter().skip(1) {
                let offer = Offer {
                    path,
                    parent: head.version,
                    parent_update: head.update,
                    router: 0,
                    steps: 1,
                    blob: blob(format!("{path} {module} {}", head.version)),
                    sequence: head.version.0,
                };
                self.hear(module, path, Message::Offer(offer));
            }
        }
        self.second();
        self.second();
    }
}

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("events");
    for members in MEMBERS {
        let mut quiet = Neighbourhood::new(members);
        for second in 0..10 * PHASE_S {
            quiet.second_of_a_phase(second);
        }
        let before = quiet.events;
        quiet.second();
        group.throughput(Throughput::Elements(quiet.events - before));
        group.bench_function(BenchmarkId::new("a second of heartbeats", members), |bencher| {
            bencher.iter_custom(|seconds| (0..seconds).map(|second| quiet.second_of_a_phase(second)).sum());
        });
        let mut busy = Neighbourhood::new(members);
        (0..30).for_each(|_| busy.phase());
        let (before, versions) = (busy.events, busy.heads.clone());
        busy.phase();
        assert!(
            busy.heads.iter().all(|(module, head)| head.version > versions[module].version),
            "it owns both modules"
        );
        group.throughput(Throughput::Elements(busy.events - before));
        group.bench_function(BenchmarkId::new("an outer step as owner", members), |bencher| {
            bencher.iter(|| black_box(&mut busy).phase());
        });
    }
    group.finish();
}

/// Resident memory of the process.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    4096 * pages.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// The growth of a process for each member of the modules of each of its nodes.
fn memory(_: &mut Criterion) {
    const NODES: usize = 200;
    // All nodes are kept. Memory freed by one group would be reused by the next.
    let mut kept = Vec::new();
    let mut grown_by = |members: u32| {
        let before = resident_bytes();
        let mut nodes: Vec<Neighbourhood> = (0..NODES).map(|_| Neighbourhood::new(members)).collect();
        nodes.iter_mut().for_each(|node| (0..20).for_each(|_| node.phase()));
        kept.push(nodes);
        (resident_bytes() - before) as f64 / NODES as f64
    };
    let (few, many) = (grown_by(16), grown_by(48));
    println!("memory: {few:.0} bytes a node with 16 members in each of 2 modules");
    println!("memory: {:.0} bytes for each further member of a module", (many - few) / (2.0 * 32.0));
    drop(black_box(kept));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = memory, events
}
criterion_main!(benches);
