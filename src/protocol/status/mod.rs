//! The status of a node as a value, for the `status` command, progress lines and programs.

pub mod queues;
pub mod waiting;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::PeerKey;
use crate::protocol::reputation::score::Fault;
use crate::protocol::status::waiting::Waiting;

/// The status of a module here.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct ModuleStatus {
    /// Its name, as `level.expert`.
    pub module: String,
    /// Number of updates; nothing while its first state is being fetched.
    pub version: Option<u64>,
    /// Number of completed rounds. It equals the version, unless the run is asynchronous.
    pub phase: Option<u64>,
    /// How many versions late the contributions of recent updates were, on average.
    pub staleness_mean: f64,
    /// How many versions late they were at most.
    pub staleness_most: u64,
    /// BLAKE3 of the whole state at that version.
    pub state_hash: Option<String>,
    /// The owner.
    pub owner: Option<String>,
    /// The owner's term.
    pub term: u64,
    /// Whether this peer is the owner.
    pub owned_here: bool,
    /// Living members, this peer included.
    pub members: usize,
    /// Whether no other living peer has it.
    pub no_replica: bool,
    /// Whether it is here only as a replica: no path here goes through it.
    pub replica: bool,
    /// Contributions of this peer that no update counts: not yet or, if the module is done, never.
    pub uncounted: usize,
    /// Weight lost since this peer started: its own contributions that came too late, and contributions that an
    /// abandoned chain had counted too long ago. A full shard weighs 16384.
    pub weight_lost: u64,
}

/// The status of a path here.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct PathStatus {
    /// Its number.
    pub path: u32,
    /// Which of the path's trainers this peer is, from 1.
    pub trainer: u32,
    /// The path of the grid that it currently stands for. The numbers differ where paths are sampled.
    pub drawn: u32,
    /// Its phase.
    pub phase: Option<u64>,
    /// What the peer does with it.
    pub stage: String,
    /// What it waits for, and why; nothing while it trains.
    pub waits_for: Option<Waiting>,
}

/// The status of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Status {
    /// The peer.
    pub peer: String,
    /// The phase after which modules are done.
    pub phases: u64,
    /// The number of the run's amendment; nothing if it has none.
    #[serde(default)]
    pub amendment: Option<u32>,
    /// Its modules.
    pub modules: Vec<ModuleStatus>,
    /// Its paths.
    pub paths: Vec<PathStatus>,
    /// Known living peers without this one.
    pub peers: Vec<String>,
    /// The same peers with what their heartbeats say, by key.
    #[serde(default)]
    pub members: BTreeMap<PeerKey, MemberStatus>,
    /// Whether every path here is done.
    pub done: bool,
    /// Why nothing trains here; nothing while something does.
    pub waits_for: Option<Waiting>,
    /// Peers, perhaps this one too, whose key is used by two machines.
    pub copied_identities: Vec<CopiedIdentity>,
    /// The newest score of each path.
    pub scores: Vec<ScoreStatus>,
    /// The scores of known peers.
    pub peer_scores: Vec<PeerScoreStatus>,
    /// Audits finished here.
    pub audited: u64,
}

/// Another peer, as its heartbeats describe it. Nothing of this is verified.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its modules that this peer has, too, with the version of its head; nothing while it is fetched.
    pub modules: BTreeMap<String, Option<u64>>,
    /// The modules, of those, whose state differs from this peer's state of the same version.
    pub differs: Vec<String>,
    /// The paths that it holds.
    pub paths: Vec<MemberPath>,
    /// Inner steps that each of its paths makes in 1000 s; 0 if unknown.
    pub steps_per_1000_s: u32,
    /// Number of modules that it replicates for others.
    pub replicas: u32,
    /// Seconds of silence, if it is silent for longer than usual.
    pub silent_s: Option<u64>,
}

/// A path that another peer holds.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MemberPath {
    /// Its number.
    pub path: u32,
    /// Which of the path's trainers the peer is, from 1.
    pub trainer: u32,
    /// Its phase.
    pub phase: u64,
    /// What the peer does with it.
    pub stage: String,
}

/// The score of a peer, as this one has observed it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PeerScoreStatus {
    /// The peer.
    pub peer: PeerKey,
    /// Contributions of it that updates have counted in full.
    pub counted: u64,
    /// Number of faults of each kind.
    pub faults: BTreeMap<Fault, u64>,
    /// Whether it is quarantined now.
    pub quarantined: bool,
    /// The reason for its current or last quarantine.
    pub reason: Option<String>,
}

/// The newest known score of a path. It is not verified.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ScoreStatus {
    /// The path.
    pub path: u32,
    /// The phase that all its modules had reached.
    pub phase: u64,
    /// Thousandths of a bit per byte of held-out text.
    pub millibits_per_byte: u32,
    /// The peer that scored it.
    pub by: PeerKey,
}

/// A peer whose key is used by two machines.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct CopiedIdentity {
    /// The peer.
    pub peer: PeerKey,
    /// Known addresses of both machines.
    pub addresses: Vec<String>,
}
