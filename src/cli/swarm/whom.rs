//! Whom `status` and `watch` look at: the peers below a folder of this machine, or those of a swarm at an address.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::explain::explain;
use super::mistake::Mistake;
use super::{Globals, access, listen};
use crate::peer::client::Entrance;
use crate::peer::client::observer::Observer;
use crate::peer::driver::control_socket;
use crate::peer::folder::store_folder;
use crate::peer::status::PeerStatus;

/// A live peer answers between two pieces of work.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A run's folder holds its peers' folders, which hold their sockets.
const DEPTH: usize = 4;

/// How addresses of peers begin; anything else is a folder.
const ADDRESSES: [&str; 3] = ["/ip4/", "/ip6/", "/dns"];

#[derive(Args)]
pub struct Whom {
    /// A peer's folder, or one with several in it, or the address of a running peer of a swarm; by default the folder of
    /// this machine's runs.
    #[arg(value_name = "DIR | ADDRESS")]
    whom: Option<PathBuf>,
    /// The sponsor in a run by invitation: the folder of a peer of this machine that takes part.
    #[arg(long = "as", value_name = "DIR")]
    sponsor: Option<PathBuf>,
}

/// Where to look.
pub enum Place {
    /// A folder with running peers somewhere below.
    Folder(PathBuf),
    /// A swarm that has been entered as a visitor.
    Address(Box<Observer>),
}

impl Whom {
    /// The folder of a peer that vouches for this visitor.
    pub fn sponsor(&self) -> Option<PathBuf> {
        self.sponsor.clone()
    }

    /// Enters the swarm if an address was given. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If nobody answers at the address.
    pub async fn place(&self, globals: &Globals) -> anyhow::Result<Place> {
        let Some(whom) = &self.whom else { return Ok(Place::Folder(globals.machine()?.value.runs)) };
        let written = whom.to_string_lossy();
        if whom.exists() || !ADDRESSES.iter().any(|start| written.starts_with(start)) {
            return Ok(Place::Folder(whom.clone()));
        }
        let hint = "give a folder that exists, or the address of a running peer (/ip4/…/p2p/…)";
        let address = listen::parse(&written).map_err(|error| Mistake::new(error).hint(hint))?;
        let sponsor = self.sponsor.as_deref().map(access::sponsor).transpose()?;
        let entrance = Entrance { addresses: &[address], sponsor: sponsor.as_deref() };
        let observer = Observer::enter(entrance).await.map_err(|error| explain(error.into()))?;
        Ok(Place::Address(Box::new(observer)))
    }
}

/// Peers' folders below a folder, in order of name.
pub struct LocalPeers {
    /// Those with a control socket.
    pub running: Vec<PathBuf>,
    /// Those with only a store.
    pub stopped: Vec<PathBuf>,
}

/// Searches peers' folders.
pub fn local_peers(folder: &Path) -> LocalPeers {
    let mut peers = LocalPeers { running: Vec::new(), stopped: Vec::new() };
    find_peers(folder, DEPTH, &mut peers);
    peers
}

/// Stores and collected runs are not searched, since they may be large.
fn find_peers(folder: &Path, depth: usize, found: &mut LocalPeers) {
    if fs::symlink_metadata(control_socket::path(folder)).is_ok() {
        found.running.push(folder.to_owned());
    } else if store_folder(folder).join("run").is_file() {
        found.stopped.push(folder.to_owned());
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            entry.file_type().ok()?.is_dir().then(|| entry.path())
        })
        .collect();
    folders.sort();
    for inner in folders {
        let passed_over = ["store", "modules", "shards"].iter().any(|name| inner.ends_with(name));
        if depth > 0 && !passed_over {
            find_peers(&inner, depth - 1, found);
        }
    }
}

/// The status of a running peer, for people and for programs.
///
/// # Errors
/// Why there is none.
pub async fn ask(folder: &Path) -> Result<(PeerStatus, Value), String> {
    let line = tokio::time::timeout(TIMEOUT, control_socket::status(folder))
        .await
        .map_err(|_| format!("no answer within {} s", TIMEOUT.as_secs()))?
        .map_err(|error| error.to_string())?;
    read(&line).map_err(|error| format!("its response cannot be decoded: {error}"))
}

/// Reads a status.
pub fn read(line: &str) -> serde_json::Result<(PeerStatus, Value)> {
    Ok((serde_json::from_str(line)?, serde_json::from_str(line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_in_a_runs_folder_but_not_in_stores() {
        let home = tempfile::tempdir().unwrap();
        for peer in ["demo/a", "demo/b", "demo/b/store/odd"] {
            let folder = home.path().join(peer);
            fs::create_dir_all(&folder).unwrap();
            fs::write(control_socket::path(&folder), "").unwrap();
        }
        fs::create_dir_all(home.path().join("demo/c/store")).unwrap();
        fs::write(home.path().join("demo/c/store/run"), "").unwrap();
        let LocalPeers { running: found, stopped } = local_peers(home.path());
        assert_eq!(found, [home.path().join("demo/a"), home.path().join("demo/b")]);
        assert_eq!(stopped, [home.path().join("demo/c")]);
        let nowhere = local_peers(&home.path().join("nowhere"));
        assert!(nowhere.running.is_empty() && nowhere.stopped.is_empty());
    }
}
