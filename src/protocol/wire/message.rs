//! What peers say to each other. Everything here is bounded and checked by `wire` and `check` before it is believed.

use serde::{Deserialize, Serialize};

use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, RunId, Term, Version};
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;
use crate::query::{Query, QueryResult};

/// BLAKE3 of an update's encoding: a place in a module's chain.
pub type UpdateHash = BlobHash;

/// The place before the first update.
pub const GENESIS: UpdateHash = BlobHash([0; 32]);

/// The newest update of a module's chain, as one member has applied it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// How many updates.
    pub version: Version,
    /// The newest one.
    pub update: UpdateHash,
    /// The whole state after it: parameters and momentum.
    pub state: BlobRef,
    /// All weight accepted since genesis: the heavier of two chains goes on.
    pub weight: u64,
}

impl Head {
    /// Whether this chain goes on where the two meet: more weight, then the smaller hash.
    pub fn outweighs(&self, other: &Self) -> bool {
        self.weight > other.weight || (self.weight == other.weight && self.update < other.update)
    }
}

/// What a peer does with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// It fetches the path's modules.
    Joining,
    /// It waits for its turn or for its modules.
    Waiting,
    /// It trains.
    Training,
    /// All phases are done.
    Done,
    /// It replicates the modules and stands ready.
    Standby,
    /// It goes, and gives the path to whoever takes it.
    Leaving,
    /// It waits for a module whose round others train without it.
    Skipping,
}

impl Stage {
    /// Whether its holder has the path to itself: others stand by, or are about to go.
    pub fn is_active(self) -> bool {
        !matches!(self, Self::Standby | Self::Leaving)
    }
}

/// A path held by a peer, for as long as its heartbeats say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Which path.
    pub path: PathId,
    /// The phase that it is in.
    pub phase: Phase,
    /// What is being done with it.
    pub stage: Stage,
    /// Where its trainer stood after the last phase that this peer knows of.
    pub trainer: Option<BlobRef>,
}

/// Which start of a peer speaks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// How often this peer has started.
    pub incarnation: u64,
    /// Drawn at this start: who runs with a copy of the peer's folder has counted as far, but drawn another.
    pub nonce: u64,
    /// By the peer's key, over [`Start::signed_bytes`]: proves the start to the peer itself, when others pass it on.
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

impl Start {
    /// What is signed.
    pub fn signed_bytes(peer: PeerKey, incarnation: u64, nonce: u64) -> Vec<u8> {
        [b"pathswarm start".as_slice(), &peer.0, &incarnation.to_le_bytes(), &nonce.to_le_bytes()].concat()
    }

    /// Of two starts of one key, the higher goes on.
    pub fn order(&self) -> (u64, u64) {
        (self.incarnation, self.nonce)
    }
}

/// A peer whose key speaks for two starts at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Whose key.
    pub peer: PeerKey,
    /// The higher start.
    pub start: Start,
}

/// A module of which the sender is the only living holder, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The module.
    pub module: ModuleId,
    /// Whom the sender asks to replicate it.
    pub helper: PeerKey,
}

/// By which members of a module know each other to be alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Which start of this peer speaks.
    pub start: Start,
    /// Counts this start's heartbeats.
    pub sequence: u64,
    /// Where the sender's chain stands; nothing while it is still fetching it.
    pub head: Option<Head>,
    /// Whom the sender takes for the owner.
    pub owner: Option<(Term, PeerKey)>,
    /// The owner's signature over [`claim_bytes`], so that other members can pass the claim on. Empty if the sender does not
    /// have it.
    #[serde(with = "serde_bytes")]
    pub claim: Vec<u8>,
    /// The sender's paths.
    pub leases: Vec<Lease>,
    /// Where the sender can be reached.
    pub addresses: Vec<String>,
    /// How many modules the sender holds for others' sake alone.
    pub replicas: u32,
    /// Modules for which the sender wants a replica.
    pub wanted: Vec<Wanted>,
    /// Peers that the sender hears twice.
    pub copied: Vec<Copied>,
    /// The sender leaves this module now.
    pub leaving: bool,
    /// Inner steps that each of the sender's paths makes in 1000 s; 0 if that has not been measured.
    pub pace: u32,
}

/// The bytes that the owner of a module signs when it claims a term.
pub fn claim_bytes(run: RunId, module: ModuleId, term: Term, owner: PeerKey) -> Vec<u8> {
    let (level, expert) = (module.level.to_le_bytes(), module.expert.to_le_bytes());
    [b"pathswarm claim".as_slice(), &run.0, &level, &expert, &term.0.to_le_bytes(), &owner.0].concat()
}

/// Tells contributions to a module apart: the path, the version that it started from, and the bytes. Where a chain has
/// forked, or two peers held the same path, only the bytes differ.
pub type ContributionKey = (PathId, Version, BlobHash);

/// One path's compressed outer gradient for one module, announced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Which path trained.
    pub path: PathId,
    /// The version that it started from.
    pub parent: Version,
    /// The update that made that version.
    pub parent_update: UpdateHash,
    /// The router's version by then: how often the text was to be shared out anew before this phase.
    pub router: u32,
    /// The bytes.
    pub blob: BlobRef,
    /// Differs each time that it is said: gossip carries the same bytes but once in a while.
    pub sequence: u64,
}

impl Offer {
    /// Which contribution it announces.
    pub fn key(&self) -> ContributionKey {
        (self.path, self.parent, self.blob.hash)
    }

    /// Whose work it is and from where: the path, the version and the update that it was trained from.
    pub fn start(&self) -> (PathId, Version, UpdateHash) {
        (self.path, self.parent, self.parent_update)
    }
}

/// A contribution as an update counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Counted {
    /// Which path.
    pub path: PathId,
    /// The version that it started from.
    pub parent: Version,
    /// Its integer weight in the sum: less where it is longer than the cap.
    pub weight: u32,
    /// How long it is: the upper 16 bits of an f32 ([`norm_cap`](crate::protocol::reputation::norm_cap)).
    pub norm: u16,
    /// Its bytes.
    pub blob: BlobRef,
}

impl Counted {
    /// Which contribution it is.
    pub fn key(&self) -> ContributionKey {
        (self.path, self.parent, self.blob.hash)
    }
}

/// How many paths are among these: the P of √P.
pub fn distinct_paths(contributions: &[Counted]) -> usize {
    let mut paths: Vec<PathId> = contributions.iter().map(|counted| counted.path).collect();
    paths.sort_unstable();
    paths.dedup();
    paths.len()
}

/// What takes a module from one version to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// The module.
    pub module: ModuleId,
    /// In which the owner combined.
    pub term: Term,
    /// Who combined.
    pub owner: PeerKey,
    /// The version that this makes.
    pub version: Version,
    /// The update before it.
    pub parent: UpdateHash,
    /// Everything counted, in order, each once.
    pub contributions: Vec<Counted>,
    /// The module's running norm after it: the bits of an f32; 0 before anything had a length.
    pub norm: u32,
    /// The compressed average.
    pub average: BlobRef,
    /// The whole state after it.
    pub state: BlobRef,
    /// All weight since genesis, this update's included.
    pub weight: u64,
}

/// An update with its owner's signature, so that anybody can serve it again.
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
    /// Which path.
    pub path: PathId,
    /// All its modules had come this far.
    pub phase: Phase,
    /// Thousandths of a bit for each byte of text.
    pub millibits_per_byte: u32,
}

/// What is said to be wrong. Whoever hears it finds out for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// This update is not what its contributions make.
    Update(SignedUpdate),
    /// What was offered so is no contribution.
    Contribution {
        /// For which path.
        path: PathId,
        /// For which version.
        parent: Version,
        /// The bytes.
        blob: BlobRef,
    },
}

/// Said by whoever has found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FraudProof {
    /// Differs each time that it is said.
    pub sequence: u64,
    /// What is wrong.
    pub what: Evidence,
}

/// On a module's topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Alive.
    Heartbeat(Heartbeat),
    /// Trained.
    Offer(Offer),
    /// Combined.
    Update(SignedUpdate),
    /// Evaluated.
    Score(Score),
    /// Found wrong.
    FraudProof(FraudProof),
}

/// A peer and its paths, as another knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryEntry {
    /// Who.
    pub peer: PeerKey,
    /// Where.
    pub addresses: Vec<String>,
    /// What it holds.
    pub leases: Vec<Lease>,
}

/// Asked of one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The run's manifest: how a newcomer who knows an address alone begins.
    Manifest,
    /// Who holds which path, as far as you know?
    Directory {
        /// Which start of a peer asks; nothing if it is none of the run's peers.
        start: Option<Start>,
    },
    /// Bring me from this place in the module's chain to your head.
    CatchUp {
        /// The module.
        module: ModuleId,
        /// Where I am; nothing if I have no state at all.
        from: Option<(Version, UpdateHash)>,
    },
    /// I take this path from you: what has its trainer come to?
    Path(PathId),
    /// A query about text. The inference server answers it, not the node.
    Query(Query),
}

/// What a path's trainer has come to, for the peer that takes the path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathHandOff {
    /// It is being stopped, or I have not heard yet that you take the path: ask again.
    pub later: bool,
    /// After the last phase that was finished: AdamW's moments, the data cursor, the residuals.
    pub trainer: Option<BlobRef>,
    /// In the middle of a phase, if it was.
    pub checkpoint: Option<InnerCheckpoint>,
}

/// Answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// The manifest's bytes.
    Manifest(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Peers and their paths, the sender among them.
    Directory(Vec<DirectoryEntry>),
    /// The updates that follow yours, oldest first; none if you are at my head.
    Replay(Vec<SignedUpdate>),
    /// Yours is too old or not in my chain: take the state that the last of these updates attests.
    Snapshot(Vec<SignedUpdate>),
    /// I cannot; the reason is for people.
    Refused(String),
    /// The path is yours, with this; nothing if I know nothing of it.
    Path(Option<PathHandOff>),
    /// The result of a query about text.
    QueryResult(QueryResult),
}
