//! What a node wants done. The driver and the simulator carry out actions in order.

use serde::Serialize;

use super::event::{ReplyToken, RequestId};
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, Version};
use crate::protocol::journal::record::Record;
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::wire::message::{Counted, Message, Request, Response, Update};

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Action {
    /// Write to the journal and sync, before any later action.
    Persist(Record),
    /// Hear this module's topic, and be found as its member.
    Subscribe(ModuleId),
    /// Hear it no longer.
    Unsubscribe(ModuleId),
    /// Say this on the module's topic.
    Publish {
        /// The topic.
        module: ModuleId,
        /// What.
        message: Message,
    },
    /// This peer can be reached there: be connected to it.
    Learn {
        /// Who.
        peer: PeerKey,
        /// Where.
        addresses: Vec<String>,
    },
    /// Ask one peer.
    Ask {
        /// Comes back with the answer.
        id: RequestId,
        /// Whom.
        to: PeerKey,
        /// What.
        request: Request,
    },
    /// Answer one peer.
    Reply {
        /// From its request.
        token: ReplyToken,
        /// What.
        response: Response,
    },
    /// Bring a blob into the store.
    Fetch {
        /// Which, and how large.
        blob: BlobRef,
        /// From whom: several at once, the surest first. Some may not have all of it, or nothing, yet.
        from: Vec<PeerKey>,
    },
    /// Nothing refers to this blob any more.
    Release(BlobHash),
    /// Train a phase of a path, or a part of one, from these states.
    Train {
        /// Which path.
        path: PathId,
        /// Which phase: it sets the learning rate.
        phase: Phase,
        /// What of it.
        part: Part,
        /// Each of its modules, bottom first, and the state to start from.
        start: Vec<(BaseVersion, BlobRef)>,
        /// Where its trainer stood after the phase before, if this peer trained it.
        trainer: Option<BlobRef>,
        /// Go on from here; nothing if the phase has to begin.
        resume: Option<Resume>,
    },
    /// This node has left: nothing follows.
    Gone,
    /// Stop training after the step in hand, and store the middle of the phase.
    Pause,
    /// The phase ends after the step in hand, however many steps it was to have: what they have come to is contributed.
    EndPhase,
    /// The trainer's thread is stuck or dead: leave it behind, and start another.
    RestartTrainer,
    /// The trainer has been restarted so often without getting any further that this peer cannot go on.
    GiveUp {
        /// How often.
        restarts: u32,
    },
    /// Score a path on its held-out text, when nothing trains.
    Evaluate {
        /// Which path.
        path: PathId,
        /// How far all its modules have come.
        phase: Phase,
        /// Each of its modules, bottom first, and its state.
        states: Vec<(ModuleId, BlobRef)>,
    },
    /// A piece of the outer arithmetic.
    Outer(Outer),
    /// Sign this update.
    Seal(Update),
    /// For people and programs that watch.
    Report(Report),
}

/// What of a phase is trained in one go: all of it, but where levels are brought in step one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Inner steps of the phase before it.
    pub first: u64,
    /// And after it.
    pub last: u64,
    /// Inner steps of the phase; they take as much of the learning rate's schedule as a whole phase, however few.
    pub of: u64,
    /// The modules whose outer gradients are taken after it, bottom first.
    pub due: Vec<ModuleId>,
}

impl Part {
    /// A phase of so many steps, after which all these are due.
    pub fn whole(steps: u64, due: Vec<ModuleId>) -> Self {
        Self { first: 0, last: steps, of: steps, due }
    }
}

/// The middle of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resume {
    /// Inner steps made.
    pub steps: u64,
    /// The trainer after them.
    pub blob: BlobRef,
}

/// The outer arithmetic of the modules, done in this order by a worker that keeps nothing but the open sums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Outer {
    /// Begin an empty exact sum for this version of the module, in place of any other.
    OpenSum {
        /// The module.
        module: ModuleId,
        /// The version to be made.
        target: Version,
        /// The module's running norm, by which what is added is capped. With 0 there is none yet: contributions are
        /// measured as they come, and added when all are known, as they are where they may be clipped.
        running: u32,
    },
    /// Add a contribution that is in the store to the sum.
    Accumulate {
        /// The module.
        module: ModuleId,
        /// The version to be made.
        target: Version,
        /// The contribution.
        blob: BlobHash,
        /// Its weight, before it is capped.
        weight: u32,
    },
    /// Average the sum, compress the average, and say which state it makes of this one.
    Combine {
        /// The module.
        module: ModuleId,
        /// The version to be made.
        target: Version,
        /// The state before it.
        from: BlobRef,
        /// What the sum must hold, exactly.
        contributions: Vec<Counted>,
        /// What the update will be to its module.
        portion: Portion,
    },
    /// Count contributions that are in the store again: whether an update is what they make.
    Audit {
        /// The module.
        module: ModuleId,
        /// The update's place: comes back with the answer.
        id: BlobHash,
        /// As it names them.
        contributions: Vec<Counted>,
        /// What it says that they make.
        average: BlobRef,
        /// What the update is to its module.
        portion: Portion,
        /// The state before it, where contributions may be clipped.
        from: Option<BlobRef>,
    },
    /// Whether a blob that is in the store is a contribution at all.
    Inspect {
        /// The module.
        module: ModuleId,
        /// Comes back with the answer.
        id: BlobHash,
        /// Which.
        blob: BlobRef,
    },
    /// Apply an average that is in the store.
    Apply {
        /// The module.
        module: ModuleId,
        /// The version to be made.
        version: Version,
        /// The state before it.
        from: BlobRef,
        /// The compressed average.
        average: BlobRef,
        /// What the update is to its module.
        portion: Portion,
    },
}

/// What an update is to its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Portion {
    /// The paths for which its average is rescaled: the P of √P.
    pub paths: usize,
    /// The weight that it counts.
    pub weight: u64,
    /// And what that would be if no contribution were capped.
    pub uncapped: u64,
    /// The weight of a round; the same, where every update is a round.
    pub full_weight: u64,
}

impl Outer {
    /// Whose arithmetic it is.
    pub fn module(&self) -> ModuleId {
        match self {
            Self::OpenSum { module, .. }
            | Self::Accumulate { module, .. }
            | Self::Combine { module, .. }
            | Self::Audit { module, .. }
            | Self::Inspect { module, .. }
            | Self::Apply { module, .. } => *module,
        }
    }
}

/// A thing worth telling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Report {
    /// The peer took a path.
    PathTaken(PathId),
    /// The peer gave a path to another.
    PathYielded(PathId),
    /// All phases of a path are done.
    PathDone(PathId),
    /// A path that was taken from another comes with its trainer.
    HandedOff {
        /// The path.
        path: PathId,
        /// From whom.
        from: PeerKey,
    },
    /// What its trainer had come to could not be had from that peer: AdamW begins anew, without the residual.
    BeganAfresh {
        /// The path.
        path: PathId,
        /// From whom.
        from: PeerKey,
    },
    /// The trainer has given no sign of life for so long that it is started anew.
    TrainerStuck {
        /// The path that it trains or scores.
        path: PathId,
        /// The steps of its phase that it had made; nothing where it scores.
        steps: Option<u64>,
        /// How long it had given no sign of life.
        silent_ms: u64,
    },
    /// The trainer's thread has died, and is started anew.
    TrainerDied,
    /// A module has a new owner.
    Owner {
        /// The module.
        module: ModuleId,
        /// Who.
        owner: PeerKey,
    },
    /// A module's owner did not do its work, and is not believed to be the owner any more.
    SteppedDown {
        /// The module.
        module: ModuleId,
        /// Who.
        owner: PeerKey,
        /// For people.
        #[serde(skip)]
        reason: String,
    },
    /// A module has a new head here.
    Advanced {
        /// The module.
        module: ModuleId,
        /// Its version.
        version: Version,
        /// How many contributions are in it.
        contributions: usize,
    },
    /// An update was refused; the reason is for people.
    Refused {
        /// The module.
        module: ModuleId,
        /// Who signed it, or sent the chain that it stands in.
        by: PeerKey,
        /// Why.
        #[serde(skip)]
        reason: String,
    },
    /// Two machines run with the key of one peer.
    CopiedIdentity {
        /// Whose; it may be this peer's own.
        peer: PeerKey,
        /// Where either can be reached, as far as known.
        addresses: Vec<String>,
        /// It is this peer's, the other is the one that goes on, and this one has fallen silent: it must stop.
        gives_way: bool,
    },
    /// An update was proven wrong, by counting it again here: its owner is believed nothing any more.
    Caught {
        /// The module.
        module: ModuleId,
        /// Who signed it.
        owner: PeerKey,
        /// The version that it made.
        version: Version,
    },
    /// The chain ends before an update that was proven wrong.
    WentBack {
        /// The module.
        module: ModuleId,
        /// The version of its head before.
        from: Version,
        /// And now.
        to: Version,
    },
    /// A peer was wrong so often, or in such a way, that its offers are not taken for a while.
    Quarantined {
        /// Who.
        peer: PeerKey,
        /// In what, the last time.
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
    /// A contribution of this peer's is in no update known here, and can be in none any more: it is too old, or its
    /// module is done and left.
    Lost {
        /// The module.
        module: ModuleId,
        /// The path.
        path: PathId,
        /// The version that it started from.
        parent: Version,
        /// What it would have weighed.
        weight: u32,
    },
}
