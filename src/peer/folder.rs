//! The folder of a peer: its key, the manifest of its run, the amendment of it, its store, its ports, and the folder of the next stage, if
//! the run has two.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::names::RunId;
use crate::network::{Identity, IdentityError, Multiaddr};
use crate::peer::access::access_files::{guests_file, invitation_file};
use crate::peer::manifest::Manifest;
use crate::store::{LockedStore, OpenError, StoreReader, write_file};

/// The file with the scores of what was trained here, once there are any: the `result` line, indented.
pub const RESULT: &str = "result.json";

pub fn store_folder(folder: &Path) -> PathBuf {
    folder.join("store")
}

pub fn manifest_file(folder: &Path) -> PathBuf {
    folder.join("manifest.json")
}

/// Locks the store of a peer's folder, before its run is known.
pub fn lock_store(folder: &Path) -> Result<LockedStore, OpenError> {
    LockedStore::open(&store_folder(folder))
}

/// The file with the run's amendment, if there is one.
pub fn amendment_file(folder: &Path) -> PathBuf {
    folder.join("amendment")
}

/// Takes the amendment in a folder into its manifest. Returns its bytes. One that cannot be read comes again from other
/// peers.
pub fn amend_from(folder: &Path, manifest: &mut Manifest, run: RunId) -> Option<Vec<u8>> {
    let file = amendment_file(folder);
    let bytes = match std::fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        read => read.map_err(anyhow::Error::from),
    };
    let amended = bytes.and_then(|bytes| Ok(manifest.amend(run, &bytes).map(|()| bytes)?));
    amended
        .inspect_err(|error| tracing::error!(file = %file.display(), %error, "the amendment of the run does not count"))
        .ok()
}

/// Writes an amendment into a folder atomically.
pub fn write_amendment(folder: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_file(&amendment_file(folder), bytes)?;
    Ok(())
}

/// The manifest in a folder, if there is one, as its amendment has it. The bytes are those of the manifest alone.
pub fn read_manifest(folder: &Path) -> anyhow::Result<Option<(Vec<u8>, Manifest, RunId)>> {
    let path = manifest_file(folder);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let (mut manifest, run) = Manifest::decode(&bytes).with_context(|| path.display().to_string())?;
    amend_from(folder, &mut manifest, run);
    Ok(Some((bytes, manifest, run)))
}

/// Writes a manifest into a folder atomically.
pub fn write_manifest(folder: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_file(&manifest_file(folder), bytes)?;
    Ok(())
}

/// The run of the store in a peer's folder; `None` if there is no store yet.
pub fn run_of_store(folder: &Path) -> Result<Option<RunId>, OpenError> {
    match StoreReader::open(&store_folder(folder)) {
        Ok(store) => Ok(Some(store.run)),
        Err(OpenError::NotAStore(_)) => Ok(None),
        // Created, but stopped before it was assigned to a run.
        Err(OpenError::NoRun(file)) if !file.exists() => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn key_file(folder: &Path) -> PathBuf {
    folder.join("key")
}

/// The identity of the peer in a folder, which is created if needed.
pub fn identity_of(folder: &Path) -> Result<Identity, IdentityError> {
    let identity = Identity::load_or_generate(&key_file(folder))?;
    identity.keep(&key_file(folder))?;
    Ok(identity)
}

/// The file with the last ports, which are reused so that join commands, forwarded ports and remembered addresses stay
/// valid.
pub(crate) fn ports_file(folder: &Path) -> PathBuf {
    folder.join("ports")
}

/// The addresses in that file; empty before the first start.
pub fn ports_before(folder: &Path) -> Vec<Multiaddr> {
    let kept = std::fs::read_to_string(ports_file(folder)).unwrap_or_default();
    kept.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The file with the address by which the peer joined last. A peer that is killed soon after remembers no other.
pub(crate) fn contact_file(folder: &Path) -> PathBuf {
    folder.join("contact")
}

/// The folder of the second stage.
pub fn next_folder(folder: &Path) -> PathBuf {
    folder.join("next")
}

/// The folder of the present stage.
pub fn present_folder(folder: &Path) -> PathBuf {
    let next = next_folder(folder);
    if manifest_file(&next).exists() { next } else { folder.to_owned() }
}

/// Prepares the second stage with the same identity and ports.
pub fn take_along(folder: &Path) -> std::io::Result<PathBuf> {
    let next = next_folder(folder);
    std::fs::create_dir_all(&next)?;
    for file in [key_file, ports_file] {
        let unfinished = file(&next).with_extension("taken");
        match std::fs::copy(file(folder), &unfinished) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            copied => {
                copied?;
                std::fs::rename(&unfinished, file(&next))?;
            }
        }
    }
    // Access data there may be newer.
    for file in [invitation_file, guests_file] {
        if file(folder).exists() && !file(&next).exists() {
            let unfinished = file(&next).with_extension("taken");
            std::fs::copy(file(folder), &unfinished)?;
            std::fs::rename(&unfinished, file(&next))?;
        }
    }
    Ok(next)
}

/// Leaves a second stage that other peers have not followed. Its folder is renamed and loses its manifest.
pub fn abandon(folder: &Path) -> std::io::Result<()> {
    let (next, aside) = (next_folder(folder), folder.join("next.left"));
    match std::fs::remove_file(manifest_file(&next)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if aside.exists() {
        std::fs::remove_dir_all(&aside)?;
    }
    std::fs::rename(next, aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_takes_its_key_and_its_ports_along() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(key_file(folder.path()), b"key").unwrap();
        assert_eq!(present_folder(folder.path()), folder.path());
        let next = take_along(folder.path()).unwrap();
        assert_eq!(std::fs::read(key_file(&next)).unwrap(), b"key");
        assert!(!ports_file(&next).exists(), "there were none");
        std::fs::write(manifest_file(&next), b"{}").unwrap();
        assert_eq!(present_folder(folder.path()), next);
    }
}
