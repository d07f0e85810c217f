//! Tests of a node as whole lists of actions.
//!
//! There is one module shared by two paths: the smallest swarm in which everything happens.

mod amendment;
mod heartbeat;
mod incarnation;
mod module;
mod path;
mod queries;
mod restore;
mod retention;

use std::collections::BTreeMap;

use crate::clock::Millis;
use crate::config::OuterMode;
use crate::grid::{Grid, Sharing};
use crate::names::{BlobRef, ModuleId, PathId, PeerKey, Phase, Term, Version};
use crate::protocol::journal::record::Finished;
use crate::protocol::module::chain::Chain;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::wire::message::{
    Counted, Head, Heartbeat, Lease, Message, Offer, SignedUpdate, Stage, Start, Update,
};
use crate::protocol::{
    Action, Contact, Event, Node, Outer, Part, Portion, Record, Report, Request, RequestId, RunPlan,
};

const MODULE: ModuleId = ModuleId { level: 0, expert: 0 };
const ME: PeerKey = PeerKey([1; 32]);
const OTHER: PeerKey = PeerKey([2; 32]);
const THIRD: PeerKey = PeerKey([3; 32]);
const FOURTH: PeerKey = PeerKey([4; 32]);
const PHASES: u64 = 40;
/// The norm of every contribution, and the running norm of such contributions: 1.
const NORM: u16 = 0x3F80;
const RUNNING: u32 = 0x3F80_0000;
const INNER_STEPS: u64 = 64;

fn plan() -> RunPlan {
    RunPlan {
        slots: Grid::with_paths(vec![Sharing::Shared], 2).unwrap().into(),
        mode: OuterMode::Synchronous,
        phases: PHASES,
        inner_steps: INNER_STEPS,
        streaming: None,
        reshard: Vec::new(),
        weights: vec![100, 60],
        genesis: BTreeMap::from([(MODULE, state(0))]),
        offer_bytes: vec![1_000],
        average_bytes: vec![1_000],
        norm_cap: 2.0,
        audit_share: 0.0,
        centred_clipping: false,
        deterministic: false,
    }
}

/// The state of a chain to install arrives and is found to be one. Returns the actions.
fn installed(node: &mut Node, now: Millis, state: BlobRef) -> Vec<Action> {
    let actions = node.handle(now, Event::Fetched { blob: state.hash, found: true });
    let mut modules = actions.iter().filter_map(|action| match action {
        Action::Outer(Outer::Decode { module, state: read }) => (*read == state).then_some(*module),
        _ => None,
    });
    let module = modules.next_back().expect("the state is read before its chain is adopted");
    node.handle(now, Event::Decoded { module, state: state.hash, so: true })
}

/// The state at a version.
fn state(version: u64) -> BlobRef {
    BlobRef { bytes: 200, ..BlobRef::of(format!("state {version}").as_bytes()) }
}

/// The average that makes a version.
fn average(version: u64) -> BlobRef {
    BlobRef::of(format!("average {version}").as_bytes())
}

/// The contribution of a path to a version.
fn gradient(path: u32, parent: u64) -> BlobRef {
    BlobRef::of(format!("gradient {path} {parent}").as_bytes())
}

fn offer(path: u32, parent: Head) -> Offer {
    Offer {
        path: PathId(path),
        parent: parent.version,
        parent_update: parent.update,
        router: 0,
        steps: INNER_STEPS as u32,
        blob: gradient(path, parent.version.0),
        sequence: 1,
    }
}

fn counted(path: u32, parent: u64) -> Counted {
    let weight = plan().weights[path as usize];
    Counted {
        path: PathId(path),
        parent: Version(parent),
        steps: INNER_STEPS as u32,
        uncapped: weight,
        weight,
        norm: NORM,
        blob: gradient(path, parent),
    }
}

fn genesis() -> Head {
    Chain::genesis(state(0)).head()
}

fn head(signed: &SignedUpdate) -> Head {
    crate::protocol::module::chain::head_of(&signed.update).unwrap()
}

/// The update after a head, in a term of an owner, with the contributions of both paths.
fn update(before: Head, term: u64, owner: PeerKey) -> SignedUpdate {
    let version = before.version.next();
    let update = Update {
        module: MODULE,
        term: Term(term),
        owner,
        version,
        parent: before.update,
        contributions: vec![counted(0, before.version.0), counted(1, before.version.0)].into(),
        norm: RUNNING,
        average: average(version.0),
        state: state(version.0),
        weight: before.weight + 160,
    };
    SignedUpdate { update, signature: vec![7; 64] }
}

/// The portion of an update with both paths.
const BOTH: Portion = Portion { paths: 2, weight: 160, uncapped: 160, full_weight: 160 };

/// A chain of so many updates from genesis.
fn updates(count: u64, owner: PeerKey) -> Vec<SignedUpdate> {
    let mut made: Vec<SignedUpdate> = Vec::new();
    for _ in 0..count {
        let before = made.last().map_or(genesis(), head);
        made.push(update(before, 1, owner));
    }
    made
}

fn lease(path: u32, phase: u64, stage: Stage) -> Lease {
    Lease { path: PathId(path), phase: Phase(phase), stage, trainer: None }
}

/// A heartbeat of another peer, to be adapted by the test.
fn heartbeat(sequence: u64, head: Option<Head>, owner: Option<(u64, PeerKey)>) -> Heartbeat {
    Heartbeat {
        start: Start { incarnation: 1, ..Start::default() },
        sequence,
        head,
        owner: owner.map(|(term, owner)| (Term(term), owner)),
        // As if the owner had signed it.
        claim: owner.map_or_else(Vec::new, |_| vec![7; 64]),
        leases: vec![],
        addresses: vec!["somewhere".to_owned()],
        replicas: 0,
        wanted: vec![],
        copied: vec![],
        leaving: false,
        pace: 0,
    }
}

fn heard(author: PeerKey, message: Message) -> Event {
    Event::Heard { module: MODULE, author, message: message.into() }
}

fn heard_heartbeat(author: PeerKey, heartbeat: Heartbeat) -> Event {
    heard(author, Message::Heartbeat(heartbeat))
}

/// The requests for what others have, with the peers that they go to.
fn requests(actions: &[(u64, Action)]) -> Vec<(RequestId, PeerKey)> {
    let asked = actions.iter().filter_map(|(_, action)| match action {
        Action::Ask { id, to, request: Request::CatchUp { .. } } => Some((*id, *to)),
        _ => None,
    });
    asked.collect()
}

fn learn(peer: PeerKey) -> Action {
    Action::Learn { peer, addresses: vec!["somewhere".to_owned()] }
}

/// `ME` publishes this; whoever carries that out signs a claim of its own.
fn publish(mut message: Message) -> Action {
    if let Message::Heartbeat(heartbeat) = &mut message
        && heartbeat.owner.is_some_and(|(_, owner)| owner == ME)
    {
        heartbeat.claim.clear();
    }
    Action::Publish { module: MODULE, message }
}

fn term(term: u64, owner: PeerKey) -> Action {
    Action::Persist(Record::Term { module: MODULE, term: Term(term), owner })
}

fn new_owner(owner: PeerKey) -> Action {
    Action::Report(Report::Owner { module: MODULE, owner })
}

fn started_from(head: Head) -> BaseVersion {
    BaseVersion { module: MODULE, version: head.version, update: head.update }
}

fn trained(path: u32, from: Head) -> Finished {
    Finished {
        path: PathId(path),
        phase: Phase(from.version.0),
        steps: INNER_STEPS,
        offers: vec![(started_from(from), gradient(path, from.version.0))],
        trainer: BlobRef::of(format!("trainer {path} {}", from.version).as_bytes()),
        base_states: vec![],
    }
}

/// A whole phase in one part.
fn whole() -> Part {
    Part::whole(INNER_STEPS, vec![MODULE])
}

fn train(path: u32, from: Head, trainer: Option<BlobRef>) -> Action {
    let start = vec![(started_from(from), from.state)];
    Action::Train { path: PathId(path), phase: Phase(from.version.0), part: whole(), start, trainer, resume: None }
}

/// Lets time pass sweep by sweep. A node that is not called for longer assumes that it was suspended.
fn pass(node: &mut Node, from_ms: u64, to_ms: u64) -> Vec<(u64, Action)> {
    let times = (from_ms / 250 * 250 + 250..=to_ms).step_by(250);
    times.flat_map(|now| node.handle(Millis(now), Event::Tick).into_iter().map(move |action| (now, action))).collect()
}

fn contact(peer: PeerKey) -> Contact {
    Contact { peer, addresses: vec!["somewhere".to_owned()] }
}

/// A node that holds path 0 and the module after these updates. `OTHER` owns the module in term 1. The node knows no
/// other peer.
fn member(updates: &[SignedUpdate]) -> Node {
    let mut records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: OTHER },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    records.extend(updates.iter().cloned().map(Record::Head));
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    began_in_time(&mut node);
    node
}

/// As if the phase in training had begun at the same time as those of other peers.
fn began_in_time(node: &mut Node) {
    node.trainers.get_mut(0).began_in_time();
}

/// Like [`member`], with `OTHER` alive at the same head and holding path 1.
fn member_with_owner(updates: &[SignedUpdate]) -> Node {
    let mut node = member(updates);
    let head = updates.last().map_or(genesis(), head);
    let heartbeat = Heartbeat {
        leases: vec![lease(1, head.version.0, Stage::Waiting)],
        ..heartbeat(1, Some(head), Some((1, OTHER)))
    };
    node.handle(Millis(0), heard_heartbeat(OTHER, heartbeat));
    node
}

/// Like [`member_with_owner`], but `ME` has owned the module in term 1 for so long that it no longer needs to listen.
/// The time is 2 s, and path 0 is in training.
fn owner() -> Node {
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: ME },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    let mut node = Node::restore(ME, plan(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    let heartbeat =
        Heartbeat { leases: vec![lease(1, 0, Stage::Waiting)], ..heartbeat(1, Some(genesis()), Some((1, ME))) };
    node.handle(Millis(0), heard_heartbeat(OTHER, heartbeat));
    node.handle(Millis(2_000), Event::Tick);
    began_in_time(&mut node);
    node
}
