//! What a node is doing and what it waits for, as a value: for `status`, for the progress lines, for programs.

pub(super) mod queues;
pub mod waiting;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::PeerKey;
use crate::protocol::reputation::score::Fault;
use crate::protocol::status::waiting::Waiting;

/// One module here.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct ModuleStatus {
    /// Its name, as `level.expert`.
    pub module: String,
    /// How many updates; nothing while its first state is being fetched.
    pub version: Option<u64>,
    /// How many rounds of its paths these come to: the version, unless the run is asynchronous.
    pub phase: Option<u64>,
    /// How many versions late the contributions of the last updates were, on average.
    pub staleness_mean: f64,
    /// And at the most.
    pub staleness_most: u64,
    /// BLAKE3 of the whole state at that version.
    pub state_hash: Option<String>,
    /// Who combines.
    pub owner: Option<String>,
    /// In which term.
    pub term: u64,
    /// Whether that is this peer.
    pub owned_here: bool,
    /// Living members, this peer included.
    pub members: usize,
    /// Whether no other living peer has it.
    pub no_replica: bool,
    /// Whether it is here as a replica: no path here goes through it.
    pub replica: bool,
    /// Contributions of this peer that no update counts: not yet or, when the module is done, never.
    pub uncounted: usize,
    /// Weight that was lost since this peer started: contributions of this peer that came too late, and what a chain that
    /// was given up had counted too long ago. In units of which a full shard has 16384.
    pub weight_lost: u64,
}

/// One path here.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PathStatus {
    /// Its number.
    pub path: u32,
    /// The path of the grid that it stands for now: another number where these are sampled.
    pub drawn: u32,
    /// Its phase.
    pub phase: Option<u64>,
    /// What is being done with it.
    pub stage: String,
    /// What it waits for, and why; nothing while it trains.
    pub waits_for: Option<Waiting>,
}

/// A whole node.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Status {
    /// Whose.
    pub peer: String,
    /// The phase at which modules are done.
    pub phases: u64,
    /// Its modules.
    pub modules: Vec<ModuleStatus>,
    /// Its paths.
    pub paths: Vec<PathStatus>,
    /// Living peers known, this one not counted.
    pub peers: Vec<String>,
    /// Whether every path here is done.
    pub done: bool,
    /// Why nothing trains here; nothing while something does.
    pub waits_for: Option<Waiting>,
    /// Peers, this one perhaps among them, with whose key two machines run.
    pub copied_identities: Vec<CopiedIdentity>,
    /// Scores of paths, by path.
    pub scores: Vec<ScoreStatus>,
    /// Peers whose contributions are known here, and what was wrong with them.
    pub peer_scores: Vec<PeerScoreStatus>,
    /// Updates of others that were counted again here.
    pub audited: u64,
}

/// How a peer has behaved, as far as this one has seen.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PeerScoreStatus {
    /// Who.
    pub peer: PeerKey,
    /// Its contributions that updates have counted in full.
    pub counted: u64,
    /// How often it was wrong, and in what.
    pub faults: BTreeMap<Fault, u64>,
    /// Whether its offers are not taken for now.
    pub quarantined: bool,
    /// Why it is, or was last, quarantined.
    pub reason: Option<String>,
}

/// The newest score of a path that is known here. It is taken on trust from whoever gave it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ScoreStatus {
    /// Which path.
    pub path: u32,
    /// All its modules had come this far.
    pub phase: u64,
    /// On its held-out text, thousandths of a bit for each byte.
    pub millibits_per_byte: u32,
    /// Who scored it.
    pub by: PeerKey,
}

/// A peer with whose key two machines run.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct CopiedIdentity {
    /// Whose key.
    pub peer: PeerKey,
    /// Where either machine can be reached, as far as known.
    pub addresses: Vec<String>,
}
