//! What must survive a kill, as it stands in the journal. Written and synced before it is acted upon.

use serde::{Deserialize, Serialize};

use crate::names::{BlobRef, ModuleId, PathId, PeerKey, Phase, Term, Version};
use crate::protocol::limits::MAX_CONTROL_BYTES;
use crate::protocol::wire::encoding::framed;
use crate::protocol::wire::inner_checkpoint::{BaseVersion, InnerCheckpoint};
use crate::protocol::wire::message::{Counted, SignedUpdate, UpdateHash};

/// A finished phase of a path, or a part of one: what it offered and where its trainer stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The path.
    pub path: PathId,
    /// The phase.
    pub phase: Phase,
    /// What it started from, and its outer gradient for each.
    pub offers: Vec<(BaseVersion, BlobRef)>,
    /// The trainer after it: AdamW's moments, the data cursor, the residuals.
    pub trainer: BlobRef,
    /// Where levels are brought in step one after the other: what the trainer stands on, bottom first.
    pub base_states: Vec<(BaseVersion, BlobRef)>,
}

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// The peer started for the n-th time.
    Started(u64),
    /// It takes this peer for the owner of the module.
    Term {
        /// The module.
        module: ModuleId,
        /// The term.
        term: Term,
        /// The owner.
        owner: PeerKey,
    },
    /// As owner it has signed this update, which may be out already.
    Sealed(SignedUpdate),
    /// It holds the module at genesis.
    Genesis {
        /// The module.
        module: ModuleId,
        /// Its state.
        state: BlobRef,
    },
    /// It has applied this update: the new head.
    Head(SignedUpdate),
    /// It has left the module.
    Left(ModuleId),
    /// It holds, or no longer holds, this path.
    Lease {
        /// The path.
        path: PathId,
        /// Whether it does.
        held: bool,
        /// Whether it only stands by.
        standby: bool,
    },
    /// It has finished a phase.
    Finished(Finished),
    /// It has taken over the chain that these updates end, whose last state is in the store. One record: half a chain
    /// would have a head without a state.
    Installed {
        /// With one update at least.
        updates: Vec<SignedUpdate>,
        /// After this version, the averages are here as well.
        replays_from: Version,
    },
    /// Where the trainer of a held path stands. A finished phase says so too; this is for a journal that is rewritten.
    Trainer {
        /// The path.
        path: PathId,
        /// Its trainer.
        trainer: BlobRef,
    },
    /// It keeps a contribution from a chain that was given up, to offer it to the other.
    Reproposed {
        /// The module.
        module: ModuleId,
        /// The update that it was trained from.
        parent_update: UpdateHash,
        /// As the other chain counted it.
        counted: Counted,
    },
    /// It holds the module for others' sake, until it leaves it or takes a path through it.
    Replica(ModuleId),
    /// It has made these steps of a phase, in place of what it said before of this path.
    Checkpoint(InnerCheckpoint),
    /// It does not go on with the phase of this path that was left in the middle.
    Abandoned(PathId),
    /// This update is not what its contributions make: it counts for nothing, and its owner is believed nothing any more.
    Invalidated {
        /// The module.
        module: ModuleId,
        /// Its place.
        update: UpdateHash,
        /// Who signed it.
        owner: PeerKey,
    },
}

framed! {
    Record = 5, MAX_CONTROL_BYTES;
}
