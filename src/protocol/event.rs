//! The events that a node handles.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, Version};
use crate::protocol::journal::record::Finished;
use crate::protocol::wire::amended::Amended;
use crate::protocol::wire::message::{Counted, Message, Request, Response, SignedUpdate};

/// Identifies a request that this node made. A response with an unknown identifier is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RequestId(pub u64);

/// Identifies a request that a peer made of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ReplyToken(pub u64);

/// A peer that a newcomer was told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contact {
    /// Its key.
    pub peer: PeerKey,
    /// Its addresses.
    pub addresses: Vec<String>,
}

/// Something that happened. Events come in the order in which the driver saw them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Event {
    /// The creator of the run starts: it holds all genesis states and takes all paths.
    Create,
    /// A peer starts, or restarts, and knows these others.
    Join(Vec<Contact>),
    /// The peer can be reached at these addresses.
    Listening(Vec<String>),
    /// Gossip on a module's topic. The driver has authenticated the author and verified the signature of an update, and
    /// the signature of every start of this node's own key that a heartbeat names.
    Heard {
        /// The topic.
        module: ModuleId,
        /// The author.
        author: PeerKey,
        /// The message.
        #[serde(serialize_with = "shared")]
        message: Arc<Message>,
    },
    /// A request of a peer. (The driver answers a request for the manifest.)
    Asked {
        /// The peer.
        from: PeerKey,
        /// Goes into the reply.
        token: ReplyToken,
        /// The request.
        request: Request,
    },
    /// The response to a request, with the signatures of its updates verified.
    Answered {
        /// The request.
        id: RequestId,
        /// The response; nothing if none came.
        response: Option<Response>,
    },
    /// A fetched blob is in the store, or could not be had from that peer.
    Fetched {
        /// The blob.
        blob: BlobHash,
        /// Whether it is in the store.
        found: bool,
    },
    /// A phase of a path was trained. Its blobs are in the store.
    Trained(Finished),
    /// A checkpoint was scored, or could not be. The node asked for it or, at the end of the run, the trainer scored
    /// one of its own.
    Evaluated {
        /// The path.
        path: PathId,
        /// As requested.
        phase: Phase,
        /// Thousandths of a bit per byte of text; nothing if it could not be scored.
        millibits_per_byte: Option<u32>,
    },
    /// The run is over, and the trainer has chosen the parameters with which the path was best. This is the state of
    /// the trainer with that choice.
    Reviewed {
        /// The path.
        path: PathId,
        /// The state of its trainer.
        trainer: BlobRef,
    },
    /// The trainer is alive and has made so many steps of this phase. Reported when it begins the phase, then often.
    Progress {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
        /// Inner steps made in it.
        steps: u64,
    },
    /// An inner checkpoint of a phase is in the store.
    Checkpointed {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
        /// Inner steps made in it.
        steps: u64,
        /// The state of the trainer after them.
        blob: BlobRef,
    },
    /// The trainer has stopped in the middle of a phase, as requested.
    Paused {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
        /// Inner steps made in it and the state of the trainer after them; nothing if it had not begun.
        middle: Option<(u64, BlobRef)>,
    },
    /// A phase cannot begin because the text of its path is not here yet.
    TextMissing {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
    },
    /// The missing text of a path of the grid is here.
    TextHere(PathId),
    /// The thread of a trainer died without an error.
    TrainerDied {
        /// The path that it trained or scored; nothing if it had no work.
        #[serde(skip)]
        path: Option<PathId>,
    },
    /// A contribution was added to the module's sum, or was found invalid.
    Accumulated {
        /// The module.
        module: ModuleId,
        /// The version that the sum is for.
        target: Version,
        /// The contribution.
        blob: BlobHash,
        /// Its norm, as an update states it; nothing if the contribution is invalid.
        norm: Option<u16>,
    },
    /// The sum was averaged and compressed, and the average was applied to a copy. Both blobs are in the store.
    Combined {
        /// The module.
        module: ModuleId,
        /// The version that it makes.
        target: Version,
        /// The compressed average.
        average: BlobRef,
        /// The state that results.
        state: BlobRef,
    },
    /// An audit or an inspection has ended.
    Audited {
        /// As requested.
        id: BlobHash,
        /// Whether the claim is true; nothing if the bytes are gone.
        so: Option<bool>,
    },
    /// A state was checked.
    Decoded {
        /// The module.
        module: ModuleId,
        /// The blob.
        state: BlobHash,
        /// Whether it is a state of the module.
        so: bool,
    },
    /// An update of this node is signed.
    Sealed(SignedUpdate),
    /// The average of an update was applied. The resulting state is in the store.
    Applied {
        /// The module.
        module: ModuleId,
        /// The version made.
        version: Version,
        /// The state; nothing if the average's frame is broken.
        state: Option<BlobRef>,
    },
    /// A deadline that `Node::next_deadline` named has passed.
    Tick,
    /// The user asks the peer to leave in order.
    Leave,
    /// A list of contributions was read.
    ListRead {
        /// The list.
        list: BlobHash,
        /// What it lists; nothing if it is no list.
        contributions: Option<Vec<Counted>>,
    },
    /// A trainer, of several, fails again and again. The driver uses it no more.
    TrainerLost {
        /// The path that it trained or scored; nothing if it had no work.
        path: Option<PathId>,
    },
    /// An amendment is signed by the run's creator, and stored: the one that [`Action::ReadAmendment`] named, or one of this
    /// peer's own user.
    ///
    /// [`Action::ReadAmendment`]: crate::protocol::Action::ReadAmendment
    Amended(Amended),
    /// The blob that was to be read is no amendment of this run, or could not be stored.
    AmendmentRefused {
        /// The blob.
        blob: BlobHash,
        /// Whether it is none; otherwise it may be read again.
        is_false: bool,
    },
}

/// Serializes the value behind the `Arc`.
fn shared<T: Serialize, S: Serializer>(value: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().serialize(serializer)
}
