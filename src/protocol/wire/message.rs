//! The messages between peers. Everything here is bounded, and is validated before it is used.

use serde::{Deserialize, Serialize};

use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, RunId, Term, Version};
use crate::protocol::limits::MAX_TRAINERS;
pub use crate::protocol::wire::contributions::{ContributionKey, Contributions, Counted, distinct_paths};
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;
use crate::query::{Query, QueryResult};

/// BLAKE3 of an update's encoding: identifies an index in a module's chain.
pub type UpdateHash = BlobHash;

/// The parent of the first update.
pub const GENESIS: UpdateHash = BlobHash([0; 32]);

/// The newest update of a module's chain, as one member has applied it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Number of updates.
    pub version: Version,
    /// The hash of the newest update.
    pub update: UpdateHash,
    /// The whole state after it: parameters and momentum.
    pub state: BlobRef,
    /// All weight accepted since genesis. The heavier of two chains wins.
    pub weight: u64,
}

impl Head {
    /// Whether this chain wins over another: more weight, then the smaller hash.
    pub fn outweighs(&self, other: &Self) -> bool {
        self.weight > other.weight || (self.weight == other.weight && self.update < other.update)
    }
}

/// What a peer does with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The peer fetches the path's modules.
    Joining,
    /// The peer waits for its turn or for the path's modules.
    Waiting,
    /// The peer trains the path.
    Training,
    /// All phases are done.
    Done,
    /// The peer replicates the modules as a standby.
    Standby,
    /// The peer leaves and gives the path to whichever peer takes it.
    Leaving,
    /// Skipped round: the peer waits for a module whose round the others train without it.
    Skipping,
}

impl Stage {
    /// Whether the holder has the path to itself. A standby or a leaving peer does not.
    pub fn is_active(self) -> bool {
        !matches!(self, Self::Standby | Self::Leaving)
    }
}

/// A path that a peer holds for as long as its heartbeats say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The path.
    pub path: PathId,
    /// Its current phase.
    pub phase: Phase,
    /// What the holder does with it.
    pub stage: Stage,
    /// The state of its trainer after the last phase that the holder knows of.
    pub trainer: Option<BlobRef>,
}

/// The path of a lease that is none: its phase is the number of trainers that the peer has. No run has so many paths, and
/// who does not know of such leases takes them for those of a standby.
const OF_TRAINERS: PathId = PathId(u32::MAX);

impl Lease {
    /// Tells the number of a peer's trainers, if it is not one.
    pub fn of_trainers(count: usize) -> Option<Self> {
        let told = Self { path: OF_TRAINERS, phase: Phase(count as u64), stage: Stage::Standby, trainer: None };
        (count > 1).then_some(told)
    }
}

/// How many trainers a peer with these leases has: one, if they do not say.
pub fn trainers_of(leases: &[Lease]) -> usize {
    let told = leases.iter().find(|lease| (lease.path, lease.stage) == (OF_TRAINERS, Stage::Standby));
    told.map_or(1, |lease| lease.phase.0.clamp(1, MAX_TRAINERS as u64) as usize)
}

/// Identifies one start of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// How often this peer has started.
    pub incarnation: u64,
    /// Drawn at random at this start. A copy of the peer's folder has the same incarnation, but another nonce.
    pub nonce: u64,
    /// Signature of the peer's key over [`Start::signed_bytes`]. It proves the start to the peer itself when others
    /// pass it on.
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

impl Start {
    /// The signed bytes.
    pub fn signed_bytes(peer: PeerKey, incarnation: u64, nonce: u64) -> Vec<u8> {
        [b"pathswarm start".as_slice(), &peer.0, &incarnation.to_le_bytes(), &nonce.to_le_bytes()].concat()
    }

    /// Of two starts of one key, the higher one continues.
    pub fn order(&self) -> (u64, u64) {
        (self.incarnation, self.nonce)
    }
}

/// A peer whose key is used by two starts at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// The peer.
    pub peer: PeerKey,
    /// The higher start.
    pub start: Start,
}

/// A module of which the sender is the only living holder, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The module.
    pub module: ModuleId,
    /// The peer that the sender asks to replicate it.
    pub helper: PeerKey,
}

/// Tells the members of a module that the sender is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's start.
    pub start: Start,
    /// Counts the messages of this start.
    pub sequence: u64,
    /// The head of the sender's chain; nothing while the sender is still fetching it.
    pub head: Option<Head>,
    /// The owner that the sender accepts, and its term.
    pub owner: Option<(Term, PeerKey)>,
    /// The owner's signature over [`claim_bytes`], so that other members can pass the claim on. Empty if the sender does not
    /// have it.
    #[serde(with = "serde_bytes")]
    pub claim: Vec<u8>,
    /// The sender's paths.
    pub leases: Vec<Lease>,
    /// The addresses of the sender.
    pub addresses: Vec<String>,
    /// How many modules the sender holds only as a replica.
    pub replicas: u32,
    /// Modules for which the sender wants a replica.
    pub wanted: Vec<Wanted>,
    /// Peers that the sender hears from two starts.
    pub copied: Vec<Copied>,
    /// The sender leaves this module now.
    pub leaving: bool,
    /// Inner steps that each of the sender's paths makes in 1000 s; 0 if not measured.
    pub pace: u32,
}

/// The bytes that the owner of a module signs when it claims a term.
pub fn claim_bytes(run: RunId, module: ModuleId, term: Term, owner: PeerKey) -> Vec<u8> {
    let (level, expert) = (module.level.to_le_bytes(), module.expert.to_le_bytes());
    [b"pathswarm claim".as_slice(), &run.0, &level, &expert, &term.0.to_le_bytes(), &owner.0].concat()
}

/// Announces the compressed outer gradient of one path for one module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The path that was trained.
    pub path: PathId,
    /// Its base version.
    pub parent: Version,
    /// The update that made the base version.
    pub parent_update: UpdateHash,
    /// The router's version at that time: how often the text was to be resharded before this phase.
    pub router: u32,
    /// Inner steps that led to it, from 1 to those of a phase.
    pub steps: u32,
    /// The compressed outer gradient.
    pub blob: BlobRef,
    /// Differs each time the offer is published, because gossip suppresses repeated bytes.
    pub sequence: u64,
}

impl Offer {
    /// Identifies the announced contribution.
    pub fn key(&self) -> ContributionKey {
        (self.path, self.parent, self.blob.hash)
    }

    /// The path with the version and the update that it was trained from.
    pub fn start(&self) -> (PathId, Version, UpdateHash) {
        (self.path, self.parent, self.parent_update)
    }
}

/// Takes a module from one version to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// The module.
    pub module: ModuleId,
    /// The term of the owner.
    pub term: Term,
    /// The owner that aggregated it.
    pub owner: PeerKey,
    /// The version that it makes.
    pub version: Version,
    /// The update before it.
    pub parent: UpdateHash,
    /// Every counted contribution, in order, each once.
    pub contributions: Contributions,
    /// The module's running norm after it: the bits of an f32; 0 before any contribution had a norm.
    pub norm: u32,
    /// The compressed average.
    pub average: BlobRef,
    /// The whole state after it.
    pub state: BlobRef,
    /// All weight since genesis, including this update's.
    pub weight: u64,
}

/// An update with its owner's signature, so that any peer can serve it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedUpdate {
    /// What is signed.
    pub update: Update,
    /// ed25519 over the update's encoding.
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

/// How well a path's checkpoint predicts the path's held-out text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// The path.
    pub path: PathId,
    /// The phase that all its modules had reached.
    pub phase: Phase,
    /// Thousandths of a bit per byte of text.
    pub millibits_per_byte: u32,
}

/// The claim of a fraud proof. Each receiver verifies it itself.
#[expect(clippy::large_enum_variant, reason = "few exist at a time, and most are updates")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// This update is not the result of its contributions.
    Update(SignedUpdate),
    /// These bytes were offered, but are no valid contribution.
    Contribution {
        /// The path.
        path: PathId,
        /// The base version.
        parent: Version,
        /// The bytes.
        blob: BlobRef,
    },
}

/// Published by a peer that has found a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FraudProof {
    /// Differs each time the proof is published.
    pub sequence: u64,
    /// The evidence.
    pub what: Evidence,
}

/// A message on a module's topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The sender is alive.
    Heartbeat(Heartbeat),
    /// A contribution is available.
    Offer(Offer),
    /// The owner has made an update.
    Update(SignedUpdate),
    /// A checkpoint was scored.
    Score(Score),
    /// A peer was proven wrong.
    FraudProof(FraudProof),
}

impl Message {
    /// The updates in it.
    pub fn updates(&self) -> &[SignedUpdate] {
        match self {
            Self::Update(signed) | Self::FraudProof(FraudProof { what: Evidence::Update(signed), .. }) => {
                std::slice::from_ref(signed)
            }
            _ => &[],
        }
    }

    /// The updates in it.
    pub fn updates_mut(&mut self) -> &mut [SignedUpdate] {
        match self {
            Self::Update(signed) | Self::FraudProof(FraudProof { what: Evidence::Update(signed), .. }) => {
                std::slice::from_mut(signed)
            }
            _ => &mut [],
        }
    }
}

/// A peer and its paths, as another peer knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryEntry {
    /// The peer.
    pub peer: PeerKey,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// The paths that it holds.
    pub leases: Vec<Lease>,
}

/// A request to one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The run's manifest. A newcomer that only knows an address starts with it.
    Manifest,
    /// Peers and the paths that they hold, as far as the receiver knows.
    Directory {
        /// The sender's start; nothing if the sender is not a peer of the run.
        start: Option<Start>,
    },
    /// Updates from this chain index to the receiver's head.
    CatchUp {
        /// The module.
        module: ModuleId,
        /// The sender's chain index; nothing if it has no state.
        from: Option<(Version, UpdateHash)>,
    },
    /// The sender takes this path from the receiver and asks for the state of its trainer.
    Path(PathId),
    /// A query about text. The inference server answers it, not the node.
    Query(Query),
    /// The receiver's status. Its driver answers, not the node.
    Status,
}

/// The state of a path's trainer, for the peer that takes the path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathHandOff {
    /// The trainer is being stopped, or the sender has not yet heard that the other takes the path: ask again.
    pub later: bool,
    /// After the last finished phase: AdamW's moments, the data cursor, the residuals.
    pub trainer: Option<BlobRef>,
    /// In the middle of a phase, if there is one.
    pub checkpoint: Option<InnerCheckpoint>,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// The manifest's bytes.
    Manifest(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Peers and their paths, including the sender.
    Directory(Vec<DirectoryEntry>),
    /// The updates after the requested index, oldest first; none if that is the sender's head.
    Replay(Vec<SignedUpdate>),
    /// The requested index is too old or not in the sender's chain. The receiver takes the state that the last of these
    /// updates attests.
    Snapshot(Vec<SignedUpdate>),
    /// The request was refused. The reason is for users.
    Refused(String),
    /// The path is handed off with this state; nothing if the sender does not know it.
    Path(Option<PathHandOff>),
    /// The result of a query about text.
    QueryResult(QueryResult),
    /// The sender's status as it tells others: JSON, compressed with zstd.
    Status(#[serde(with = "serde_bytes")] Vec<u8>),
}

impl Response {
    /// The updates in it.
    pub fn updates(&self) -> &[SignedUpdate] {
        match self {
            Self::Replay(updates) | Self::Snapshot(updates) => updates,
            _ => &[],
        }
    }

    /// The updates in it.
    pub fn updates_mut(&mut self) -> &mut [SignedUpdate] {
        match self {
            Self::Replay(updates) | Self::Snapshot(updates) => updates,
            _ => &mut [],
        }
    }
}
