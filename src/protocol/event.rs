//! What happens to a node.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, Version};
use crate::protocol::journal::record::Finished;
use crate::protocol::wire::message::{Message, Request, Response, SignedUpdate};

/// Names a request that a node made, so that a late answer finds nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RequestId(pub u64);

/// Names a request that a peer made of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ReplyToken(pub u64);

/// A peer that a newcomer was told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contact {
    /// Who.
    pub peer: PeerKey,
    /// Where.
    pub addresses: Vec<String>,
}

/// Something that happened, in the order in which the driver saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Event {
    /// The run's founder begins: it holds all genesis states and takes all paths.
    Create,
    /// A peer begins, or begins again, and knows these others.
    Join(Vec<Contact>),
    /// The peer can be reached at these addresses.
    Listening(Vec<String>),
    /// Gossip on a module's topic; the author is authenticated, an update's signature verified, and so is that of every
    /// start that a heartbeat names of this node's own key.
    Heard {
        /// The topic.
        module: ModuleId,
        /// Who said it.
        author: PeerKey,
        /// What.
        #[serde(serialize_with = "shared")]
        message: Arc<Message>,
    },
    /// A peer asks. (A request for the manifest is answered by the driver.)
    Asked {
        /// Who.
        from: PeerKey,
        /// To answer with.
        token: ReplyToken,
        /// What.
        request: Request,
    },
    /// An answer, its updates' signatures verified; nothing if there was none.
    Answered {
        /// To which request.
        id: RequestId,
        /// What.
        response: Option<Response>,
    },
    /// A blob that was asked for is in the store, or could not be had from that peer.
    Fetched {
        /// Which.
        blob: BlobHash,
        /// Whether it is there.
        found: bool,
    },
    /// A phase of a path was trained; its blobs are in the store.
    Trained(Finished),
    /// A checkpoint was scored, or could not be: one that the node asked for, or at the end of the run one of its own.
    Evaluated {
        /// Of which path.
        path: PathId,
        /// As asked.
        phase: Phase,
        /// Thousandths of a bit for each byte of text; nothing if it could not be scored.
        millibits_per_byte: Option<u32>,
    },
    /// The run is over, and this is what a path's trainer carries now that it is known with which parameters the path was
    /// best.
    Reviewed {
        /// The path.
        path: PathId,
        /// Its trainer.
        trainer: BlobRef,
    },
    /// The trainer lives, and has made so many steps of this phase. Said when it begins with it, then often.
    Progress {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
        /// Inner steps made in it.
        steps: u64,
    },
    /// The middle of a phase is in the store.
    Checkpointed {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
        /// Inner steps made in it.
        steps: u64,
        /// The trainer after them.
        blob: BlobRef,
    },
    /// The trainer has stopped in the middle of a phase, as it was asked to.
    Paused {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
        /// Inner steps made in it and the trainer after them; nothing if it had not begun.
        middle: Option<(u64, BlobRef)>,
    },
    /// A phase cannot begin: the text of its path is not here yet.
    TextMissing {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
    },
    /// The text of a path of the grid that was missing is here.
    TextHere(PathId),
    /// The trainer's thread is gone without a word.
    TrainerDied,
    /// A contribution was added to the module's sum, or is no valid one.
    Accumulated {
        /// The module.
        module: ModuleId,
        /// The version that the sum is for.
        target: Version,
        /// The contribution.
        blob: BlobHash,
        /// How long it is, as an update tells it; nothing if it is none.
        norm: Option<u16>,
    },
    /// The sum was averaged, compressed and applied to a copy; both blobs are in the store.
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
    /// What was to be audited or inspected was.
    Audited {
        /// As asked.
        id: BlobHash,
        /// Whether it is so; nothing if its bytes are gone.
        so: Option<bool>,
    },
    /// An update of this node's has its signature.
    Sealed(SignedUpdate),
    /// An update's average was applied; the state that resulted is in the store.
    Applied {
        /// The module.
        module: ModuleId,
        /// The version made.
        version: Version,
        /// The state; nothing if the average's frame is broken.
        state: Option<BlobRef>,
    },
    /// A deadline that `Node::next_deadline` named has come.
    Tick,
    /// The user asks the peer to leave in order.
    Leave,
}

/// What is shared is written as if it were not.
fn shared<T: Serialize, S: Serializer>(value: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().serialize(serializer)
}
