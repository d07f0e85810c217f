//! The status of a stopped peer: the checkpoints in its store, and its disk usage.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::output::Output;
use crate::names::{BlobRef, PathId, RunId};
use crate::peer::folder::store_folder;
use crate::sizes::in_words;
use crate::store::{Checkpoint, OpenError, StoreReader};

pub(super) struct StoppedPeer {
    folder: PathBuf,
    run: RunId,
    checkpoints: Vec<(PathId, Checkpoint)>,
    /// Blobs of checkpoints that the disk has lost.
    missing: Vec<BlobRef>,
    bytes: u64,
}

/// Reads the index of the store in a peer's folder; `None` if there is no store.
pub(super) fn stopped_peer(folder: &Path) -> Result<Option<StoppedPeer>, OpenError> {
    let store = match StoreReader::open(&store_folder(folder)) {
        Err(OpenError::NotAStore(_)) => return Ok(None),
        opened => opened?,
    };
    let checkpoints = store.checkpoints()?;
    let named = checkpoints.iter().flat_map(|(_, checkpoint)| {
        checkpoint.modules.iter().map(|held| held.state).chain([checkpoint.trainer, checkpoint.shard])
    });
    let held = store.blobs()?;
    let mut missing: Vec<BlobRef> = named.filter(|blob| held.binary_search(blob).is_err()).collect();
    missing.sort_unstable();
    missing.dedup();
    let bytes = held.iter().map(|blob| blob.bytes).sum();
    Ok(Some(StoppedPeer { folder: folder.to_owned(), run: store.run, checkpoints, missing, bytes }))
}

impl StoppedPeer {
    /// Prints it for people or for programs.
    pub fn print(&self, output: Output) -> std::io::Result<()> {
        self.lines().iter().try_for_each(|line| output.text(line))?;
        let path = |(path, checkpoint): &(PathId, Checkpoint)| json!({ "path": path, "checkpoint": checkpoint });
        output.json(&json!({
            "event": "stopped",
            "folder": self.folder.display().to_string(),
            "run": self.run,
            "checkpoints": self.checkpoints.iter().map(path).collect::<Vec<_>>(),
            "missing": self.missing,
            "blob_bytes": self.bytes,
        }))
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{}  run {}, not running; {} on disk",
            self.folder.display(),
            self.run.short(),
            in_words(self.bytes)
        )];
        for (path, Checkpoint { phase, trainer, modules, shard }) in &self.checkpoints {
            let modules: Vec<String> =
                modules.iter().map(|held| format!("{} at version {}", held.module, held.version)).collect();
            let sizes = format!("trainer {}, shard {}", in_words(trainer.bytes), in_words(shard.bytes));
            lines.push(format!("path {path}  finished phase {phase}; {}; {sizes}", modules.join(", ")));
        }
        if self.checkpoints.is_empty() {
            lines.push("no path of this folder has finished a phase".to_owned());
        }
        lines.extend(
            self.missing.iter().map(|blob| format!("missing  blob {} of {}", blob.hash.short(), in_words(blob.bytes))),
        );
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{ModuleId, Phase, Version};
    use crate::store::{ModuleCheckpoint, StoreFolder};

    #[test]
    fn a_stopped_peer_tells_its_checkpoints_and_what_its_disk_has_lost() {
        let folder = tempfile::tempdir().unwrap();
        assert!(stopped_peer(folder.path()).unwrap().is_none());
        let mut store = StoreFolder::open(&store_folder(folder.path()), RunId([7; 32])).unwrap();
        assert!(matches!(stopped_peer(folder.path()), Err(OpenError::InUse { .. })));
        let [trainer, shard] = [b"trainer", b"tokens!"].map(|bytes| store.blobs.put(bytes).unwrap());
        let state = BlobRef::of(b"gone");
        let modules = vec![ModuleCheckpoint { module: ModuleId { level: 1, expert: 0 }, version: Version(4), state }];
        store.index.set_checkpoint(PathId(3), &Checkpoint { phase: Phase(3), trainer, modules, shard }).unwrap();
        drop(store);
        let stopped = stopped_peer(folder.path()).unwrap().unwrap();
        assert_eq!((stopped.missing.as_slice(), stopped.bytes), (&[state][..], 14));
        let lines = stopped.lines();
        assert!(lines[1].starts_with("path 3  finished phase 3; 1.0 at version 4; trainer 7 B"), "{lines:?}");
        assert!(lines[2].starts_with(&format!("missing  blob {}", state.hash.short())), "{lines:?}");
    }
}
