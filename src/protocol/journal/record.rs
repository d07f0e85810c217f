//! The records of the journal: what must survive a kill. A record is written and synced before it is acted upon.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::names::{BlobRef, ModuleId, PathId, PeerKey, Phase, Term, Version};
use crate::protocol::limits::MAX_CONTROL_BYTES;
use crate::protocol::wire::contribution_list::read_list;
use crate::protocol::wire::contributions::Entries;
use crate::protocol::wire::encoding::framed;
use crate::protocol::wire::inner_checkpoint::{BaseVersion, InnerCheckpoint};
use crate::protocol::wire::message::{Counted, SignedUpdate, UpdateHash};

/// A finished phase of a path, or a part of one: its offers and the state of its trainer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The path.
    pub path: PathId,
    /// The phase.
    pub phase: Phase,
    /// Inner steps that led to its outer gradients.
    pub steps: u64,
    /// Its base versions, each with the outer gradient for it.
    pub offers: Vec<(BaseVersion, BlobRef)>,
    /// The state of the trainer after it: AdamW's moments, the data cursor, the residuals.
    pub trainer: BlobRef,
    /// In streaming mode: the base states of the trainer, bottom first.
    pub base_states: Vec<(BaseVersion, BlobRef)>,
}

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// The peer has started this many times.
    Started(u64),
    /// The peer accepts this owner of the module.
    Term {
        /// The module.
        module: ModuleId,
        /// The term.
        term: Term,
        /// The owner.
        owner: PeerKey,
    },
    /// The peer, as owner, has signed this update. It may already be published.
    Sealed(SignedUpdate),
    /// The peer holds the module at genesis.
    Genesis {
        /// The module.
        module: ModuleId,
        /// Its state.
        state: BlobRef,
    },
    /// The peer has applied this update: the new head.
    Head(SignedUpdate),
    /// The peer has left the module.
    Left(ModuleId),
    /// The peer holds this path, or no longer holds it.
    Lease {
        /// The path.
        path: PathId,
        /// Whether the peer holds it.
        held: bool,
        /// Whether the peer is only a standby.
        standby: bool,
    },
    /// The peer has finished a phase.
    Finished(Finished),
    /// The peer has switched to the chain that ends with these updates. The last state is in the store. It is one
    /// record because half a chain would have a head without a state.
    Installed {
        /// At least one update.
        updates: Vec<SignedUpdate>,
        /// After this version, the averages are in the store too.
        replays_from: Version,
    },
    /// The state of the trainer of a held path. A finished phase contains it too; this record is for a compacted
    /// journal.
    Trainer {
        /// The path.
        path: PathId,
        /// The state of its trainer.
        trainer: BlobRef,
    },
    /// The peer keeps a contribution from an abandoned chain, to re-propose it to the other chain.
    Reproposed {
        /// The module.
        module: ModuleId,
        /// The update that it was trained from.
        parent_update: UpdateHash,
        /// As the abandoned chain counted it.
        counted: Counted,
    },
    /// The peer holds the module as a replica, until it leaves it or takes a path through it.
    Replica(ModuleId),
    /// The peer has made these steps of a phase. Replaces the earlier checkpoint of this path.
    Checkpoint(InnerCheckpoint),
    /// The peer does not resume the interrupted phase of this path.
    Abandoned(PathId),
    /// This update is not the result of its contributions. It is invalidated, and its owner is no longer trusted.
    Invalidated {
        /// The module.
        module: ModuleId,
        /// The hash of the update.
        update: UpdateHash,
        /// The signer.
        owner: PeerKey,
    },
}

impl Record {
    /// The updates in it.
    pub fn updates_mut(&mut self) -> &mut [SignedUpdate] {
        match self {
            Self::Sealed(signed) | Self::Head(signed) => std::slice::from_mut(signed),
            Self::Installed { updates, .. } => updates,
            _ => &mut [],
        }
    }
}

/// Reads the lists of contributions that the updates of a journal name, as far as they are still in the store. Records do
/// not hold them.
pub fn read_lists(records: &mut [Record], read: impl Fn(BlobRef) -> Option<Vec<u8>>) {
    let mut known: BTreeMap<BlobRef, Option<Arc<Entries>>> = BTreeMap::new();
    for signed in records.iter_mut().flat_map(Record::updates_mut) {
        let contributions = &mut signed.update.contributions;
        let Some(list) = contributions.unread() else { continue };
        let entries = known.entry(list).or_insert_with(|| Some(Entries::of(read_list(&read(list)?)?)));
        entries.iter().for_each(|entries| contributions.fill(entries));
    }
}

framed! {
    Record = 5, MAX_CONTROL_BYTES;
}
