//! The actions that a node asks for. The driver and the simulator carry them out in order.

use serde::Serialize;

use super::event::{ReplyToken, RequestId};
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, Version};
use crate::protocol::journal::record::Record;
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::contributions::Contributions;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::wire::message::{Message, Request, Response, Update};

/// An action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Action {
    /// Write to the journal and sync, before any later action.
    Persist(Record),
    /// Subscribe to this module's topic, and be found as its member.
    Subscribe(ModuleId),
    /// Unsubscribe from it.
    Unsubscribe(ModuleId),
    /// Publish this message on the module's topic.
    Publish {
        /// The topic.
        module: ModuleId,
        /// The message.
        message: Message,
    },
    /// This peer can be reached at these addresses: connect to it.
    Learn {
        /// The peer.
        peer: PeerKey,
        /// Its addresses.
        addresses: Vec<String>,
    },
    /// Send a request to one peer.
    Ask {
        /// Comes back with the response.
        id: RequestId,
        /// The peer.
        to: PeerKey,
        /// The request.
        request: Request,
    },
    /// Respond to one peer.
    Reply {
        /// From its request.
        token: ReplyToken,
        /// The response.
        response: Response,
    },
    /// Bring a blob into the store.
    Fetch {
        /// The blob with its size.
        blob: BlobRef,
        /// Peers to fetch from, the most certain first. Several may be used at once. Some may not have all of it, or
        /// nothing, yet.
        from: Vec<PeerKey>,
    },
    /// Nothing refers to this blob any more.
    Release(BlobHash),
    /// Train a phase of a path, or a part of one, from these base states.
    Train {
        /// The path.
        path: PathId,
        /// The phase. It sets the learning rate.
        phase: Phase,
        /// The part of the phase.
        part: Part,
        /// Its modules, bottom first, each with the state to start from.
        start: Vec<(BaseVersion, BlobRef)>,
        /// The state of its trainer after the previous phase, if this peer trained it.
        trainer: Option<BlobRef>,
        /// Where to resume; nothing if the phase has to begin.
        resume: Option<Resume>,
    },
    /// This node has left. No action follows.
    Gone,
    /// Stop training a path after the current step, and store an inner checkpoint.
    Pause {
        /// The path. Traces have been compared since a time when only one could be in training.
        #[serde(skip)]
        path: PathId,
    },
    /// End the phase of a path after the current step, even if fewer steps than planned were made. What these steps came
    /// to is contributed.
    EndPhase {
        /// The path.
        #[serde(skip)]
        path: PathId,
    },
    /// The thread of a trainer is stuck or dead: abandon it and start another.
    RestartTrainer {
        /// The path that it trains or scores; nothing for a trainer that has no work.
        #[serde(skip)]
        path: Option<PathId>,
    },
    /// The last trainer in service has been restarted so often without progress that this peer cannot continue.
    GiveUp {
        /// How often it was restarted.
        restarts: u32,
    },
    /// Score a path on its held-out text while nothing trains.
    Evaluate {
        /// The path.
        path: PathId,
        /// How far all its modules have come.
        phase: Phase,
        /// Its modules, bottom first, each with its state.
        states: Vec<(ModuleId, BlobRef)>,
    },
    /// A piece of the outer optimization.
    Outer(Outer),
    /// Sign this update.
    Seal(Update),
    /// An observation for users and monitoring.
    Report(Report),
    /// A trainer has been restarted so often without progress that it is out of service. The others go on.
    RetireTrainer {
        /// The path that it trains or scores; nothing for a trainer that has no work.
        path: Option<PathId>,
    },
    /// Read a blob that a peer says is an amendment of the run. If the creator has signed it, it is stored before
    /// [`Event::Amended`](crate::protocol::Event::Amended) comes.
    ReadAmendment(BlobRef),
}

/// The part of a phase that is trained in one go. It is the whole phase, except in streaming mode, where levels
/// synchronize one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Inner steps of the phase before this part.
    pub first: u64,
    /// Inner steps of the phase after this part.
    pub last: u64,
    /// Inner steps of the phase. However few, they take as much of the learning rate's schedule as a whole phase.
    pub of: u64,
    /// The modules whose outer gradients are taken after this part, bottom first.
    pub due: Vec<ModuleId>,
}

impl Part {
    /// A whole phase of so many steps, after which the outer gradients of all these modules are due.
    pub fn whole(steps: u64, due: Vec<ModuleId>) -> Self {
        Self { first: 0, last: steps, of: steps, due }
    }
}

/// A point in the middle of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resume {
    /// Inner steps made.
    pub steps: u64,
    /// The state of the trainer after them.
    pub blob: BlobRef,
}

/// The outer optimization of the modules. A worker does it in this order and keeps no state but the open sums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Outer {
    /// Open an empty exact sum for this version of the module, in place of any other.
    OpenSum {
        /// The module.
        module: ModuleId,
        /// The version to make.
        target: Version,
        /// The module's running norm, which caps what is added. 0 means that there is none yet: contributions are
        /// measured as they arrive and added when all are known. The same holds where they may be clipped.
        running: u32,
    },
    /// Add a contribution that is in the store to the sum.
    Accumulate {
        /// The module.
        module: ModuleId,
        /// The version to make.
        target: Version,
        /// The contribution.
        blob: BlobHash,
        /// Its weight, before it is capped.
        weight: u32,
    },
    /// Average the sum, compress the average, and apply it to the state before. Store the list of contributions, if it is a
    /// blob.
    Combine {
        /// The module.
        module: ModuleId,
        /// The version to make.
        target: Version,
        /// The state before it.
        from: BlobRef,
        /// The exact contents of the sum.
        contributions: Contributions,
        /// What share of a round the update is.
        portion: Portion,
    },
    /// Aggregate contributions that are in the store again, and compare the result with an update.
    Audit {
        /// The module.
        module: ModuleId,
        /// The hash of the update. It comes back with the answer.
        id: BlobHash,
        /// As the update lists them.
        contributions: Contributions,
        /// The average that the update claims.
        average: BlobRef,
        /// What share of a round the update is.
        portion: Portion,
        /// The state before it, needed where contributions may be clipped.
        from: Option<BlobRef>,
    },
    /// Check whether a blob in the store is a valid contribution.
    Inspect {
        /// The module.
        module: ModuleId,
        /// Comes back with the answer.
        id: BlobHash,
        /// The blob.
        blob: BlobRef,
    },
    /// Check whether a blob in the store is a state of the module. No other work reads a state that is not.
    Decode {
        /// The module.
        module: ModuleId,
        /// The state.
        state: BlobRef,
    },
    /// Apply an average that is in the store.
    Apply {
        /// The module.
        module: ModuleId,
        /// The version to make.
        version: Version,
        /// The state before it.
        from: BlobRef,
        /// The compressed average.
        average: BlobRef,
        /// What share of a round the update is.
        portion: Portion,
    },
    /// Read a list of contributions that is in the store.
    ReadList {
        /// The module.
        module: ModuleId,
        /// The list.
        list: BlobRef,
    },
}

/// How large an update is in comparison with a round of its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Portion {
    /// Number of paths for which the average is rescaled: the P of √P.
    pub paths: usize,
    /// The weight that the update counts.
    pub weight: u64,
    /// The same weight if no contribution were capped.
    pub uncapped: u64,
    /// The weight of a round. It equals `weight` where every update is a round.
    pub full_weight: u64,
}

impl Outer {
    /// The module that the operation belongs to.
    pub fn module(&self) -> ModuleId {
        match self {
            Self::OpenSum { module, .. }
            | Self::Accumulate { module, .. }
            | Self::Combine { module, .. }
            | Self::Audit { module, .. }
            | Self::Inspect { module, .. }
            | Self::Decode { module, .. }
            | Self::ReadList { module, .. }
            | Self::Apply { module, .. } => *module,
        }
    }
}

/// An observation for users and monitoring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Report {
    /// The peer took a path.
    PathTaken(PathId),
    /// The peer gave a path to another.
    PathYielded(PathId),
    /// All phases of a path are done.
    PathDone(PathId),
    /// The trainer of a path that was taken from another peer was handed off with it.
    HandedOff {
        /// The path.
        path: PathId,
        /// The previous holder.
        from: PeerKey,
    },
    /// The state of the trainer could not be had from the previous holder: AdamW starts anew, without the residual.
    BeganAfresh {
        /// The path.
        path: PathId,
        /// The previous holder.
        from: PeerKey,
    },
    /// The trainer has been silent for so long that it is restarted.
    TrainerStuck {
        /// The path that it trains or scores.
        path: PathId,
        /// The steps of its phase that it had made; nothing if it scores.
        steps: Option<u64>,
        /// How long it was silent.
        silent_ms: u64,
    },
    /// A trainer's thread has died and is restarted.
    TrainerDied,
    /// A module has a new owner.
    Owner {
        /// The module.
        module: ModuleId,
        /// The new owner.
        owner: PeerKey,
    },
    /// A module's owner did not do its work. This node no longer accepts it as the owner.
    SteppedDown {
        /// The module.
        module: ModuleId,
        /// The former owner.
        owner: PeerKey,
        /// For users.
        #[serde(skip)]
        reason: String,
    },
    /// A module has a new head here.
    Advanced {
        /// The module.
        module: ModuleId,
        /// Its version.
        version: Version,
        /// Number of contributions in its update.
        contributions: usize,
    },
    /// The other members do not attest the chain that a peer sent.
    Unattested {
        /// The module.
        module: ModuleId,
        /// The peer.
        by: PeerKey,
    },
    /// An update was refused. The reason is for users.
    Refused {
        /// The module.
        module: ModuleId,
        /// The peer that signed it, or sent the chain that contains it.
        by: PeerKey,
        /// The reason.
        #[serde(skip)]
        reason: String,
    },
    /// Two machines run with the key of one peer.
    CopiedIdentity {
        /// The peer; it may be this one.
        peer: PeerKey,
        /// Known addresses of both machines.
        addresses: Vec<String>,
        /// The key is this peer's and the other machine continues. This one has gone silent and must stop.
        gives_way: bool,
    },
    /// An audit here proved an update wrong. Its owner is no longer trusted.
    Caught {
        /// The module.
        module: ModuleId,
        /// The signer.
        owner: PeerKey,
        /// The version that the update made.
        version: Version,
    },
    /// A rollback: the chain now ends before an update that was proven wrong.
    WentBack {
        /// The module.
        module: ModuleId,
        /// The version of the head before.
        from: Version,
        /// The version of the head now.
        to: Version,
    },
    /// A peer failed so often, or in such a way, that its offers are not taken for a while.
    Quarantined {
        /// The peer.
        peer: PeerKey,
        /// Its last fault.
        fault: Fault,
    },
    /// A lighter chain was given up for a heavier one.
    ChainSwitched {
        /// The module.
        module: ModuleId,
        /// The version of the chain given up.
        from: Version,
        /// The version of the chain taken.
        to: Version,
    },
    /// A contribution of this peer is in no update known here and can enter none any more. It is too old, or its module
    /// is done and left.
    Lost {
        /// The module.
        module: ModuleId,
        /// The path.
        path: PathId,
        /// Its base version.
        parent: Version,
        /// The weight that it would have had.
        weight: u32,
    },
    /// A trainer is out of service. The peer goes on with so many.
    TrainerRetired {
        /// The trainers that are left.
        left: usize,
    },
    /// The run was amended by its creator.
    Amended {
        /// Its phases from now on.
        phases: u64,
        /// The number of the amendment.
        number: u32,
    },
}
