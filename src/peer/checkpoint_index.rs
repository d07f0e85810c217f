//! Maintains the store's index of checkpoints: for each path held here, the finished phase and the blobs to resume
//! from. `status` reads it when the peer is stopped. The journal is authoritative; a start updates the index from it.

use std::collections::BTreeMap;

use crate::names::{BlobRef, PathId, Phase};
use crate::peer::manifest::Manifest;
use crate::protocol::journal::record::Finished;
use crate::protocol::{Node, Record};
use crate::store::{Checkpoint, Index, ModuleCheckpoint, StoreError, StoreHandle};

/// The checkpoint of a path whose trainer has finished a phase, with the node's present modules.
fn checkpoint(node: &Node, manifest: &Manifest, path: PathId, phase: Phase, trainer: BlobRef) -> Checkpoint {
    let of_path = node.modules_of(path);
    let states = node.states().into_iter().filter(|(module, _, _)| of_path.contains(module));
    let modules = states.map(|(module, version, state)| ModuleCheckpoint { module, version, state }).collect();
    Checkpoint { phase, trainer, modules, shard: manifest.shard(node.path_at(path, phase)).train }
}

/// Updates the index from a node that has just been restored, and logs where each path resumes.
pub(super) async fn refresh(store: &StoreHandle, node: &Node, manifest: &Manifest) -> Result<(), StoreError> {
    let mut indexed: BTreeMap<PathId, Checkpoint> =
        store.index(|index| index.checkpoints()).await?.into_iter().collect();
    let mut missing = Vec::new();
    for lease in node.leases() {
        let path = lease.path;
        let finished = lease.phase.0.checked_sub(1).map(Phase);
        let known = indexed.remove(&path);
        let (Some(finished), Some(trainer)) = (finished, node.trainer(path)) else {
            missing.extend(known.map(|_| (path, None)));
            continue;
        };
        let current = match known {
            Some(known) if known.trainer == trainer => known,
            _ => {
                let current = checkpoint(node, manifest, path, finished, trainer);
                missing.push((path, Some(current.clone())));
                current
            }
        };
        tracing::info!(%path, phase = %current.phase, trainer = %current.trainer.hash.short(), "a path goes on after this phase");
    }
    missing.extend(indexed.into_keys().map(|path| (path, None)));
    let update = move |index: &mut Index| {
        missing.into_iter().try_for_each(|(path, checkpoint)| match checkpoint {
            Some(checkpoint) => index.set_checkpoint(path, &checkpoint),
            None => index.remove_checkpoint(path),
        })
    };
    store.index(update).await
}

/// Notes a path's record of the journal in the index. If this fails, the next start repairs it.
pub(super) async fn note(store: &StoreHandle, node: &Node, manifest: &Manifest, record: &Record) {
    let noted = match record {
        Record::Finished(Finished { path, phase, trainer, .. }) => {
            let (path, checkpoint) = (*path, checkpoint(node, manifest, *path, *phase, *trainer));
            store.index(move |index| index.set_checkpoint(path, &checkpoint)).await
        }
        Record::Lease { path, held: false, .. } => {
            let path = *path;
            store.index(move |index| index.remove_checkpoint(path)).await
        }
        _ => Ok(()),
    };
    if let Err(error) = noted {
        tracing::warn!(%error, "a checkpoint was not noted in the index");
    }
}
