//! Bans survive a restart: they are stored in the peer's folder, as JSON.

use std::path::{Path, PathBuf};

use crate::network::{Ban, NetworkHandle};
use crate::store::write_file;

/// Limit of the file: all remembered bans, of some 200 bytes each.
const MOST_BYTES: u64 = 4 << 20;

fn bans_file(folder: &Path) -> PathBuf {
    folder.join("bans.json")
}

fn read(folder: &Path) -> Vec<Ban> {
    let path = bans_file(folder);
    if std::fs::metadata(&path).is_ok_and(|about| about.len() > MOST_BYTES) {
        tracing::warn!("{} is too large to hold bans", path.display());
        return Vec::new();
    }
    let Ok(bytes) = std::fs::read(&path) else { return Vec::new() };
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        tracing::warn!("{}: {error}; all bans are lifted", path.display());
        Vec::new()
    })
}

/// Restores the bans of a folder, and stores changes there until the network ends.
pub(crate) fn keep(network: &NetworkHandle, folder: &Path) {
    if network.restore_bans(read(folder)).is_err() {
        tracing::warn!("earlier bans were not restored");
    }
    let (mut bans, folder) = (network.watch_bans(), folder.to_owned());
    tokio::spawn(async move {
        while bans.changed().await.is_ok() {
            let now: Vec<Ban> = bans.borrow_and_update().clone();
            let path = bans_file(&folder);
            let written = tokio::task::spawn_blocking(move || {
                let bytes = serde_json::to_vec_pretty(&now).map_err(std::io::Error::other)?;
                write_file(&path, &bytes).map_err(std::io::Error::other)
            });
            if let Ok(Err(error)) = written.await {
                tracing::warn!(%error, "bans were not stored");
            }
        }
    });
}
