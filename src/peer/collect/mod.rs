//! Collecting a run: the newest reachable version of every module, in one folder.
//!
//! [`collect_from_swarm`] asks peers over the network, [`collect_from_stores`] reads the folders of stopped peers. Both
//! write a [`collected`](crate::peer::collected) folder atomically. [`Checkpoint`] is a single path.

mod checkpoint;
mod stores;
mod swarm;
#[cfg(test)]
mod swarm_tests;

use std::path::PathBuf;

use crate::grid::Grid;
use crate::model::exchange::ExchangeError;
use crate::names::{ModuleId, PathId, RunId};
use crate::network::Stopped;
use crate::outer::StateError;
use crate::peer::client::VisitError;
pub use crate::peer::collect::checkpoint::Checkpoint;
pub use crate::peer::collect::stores::{collect_from_stores, manifest_of, peers_below};
pub use crate::peer::collect::swarm::{Told, collect_from_swarm};
use crate::peer::collected::CollectedError;
use crate::peer::collected::writing::WriteError;
use crate::peer::manifest::ManifestError;
use crate::protocol::wire::encoding::WireError;
use crate::store::{BlobError, DiskError, OpenError};
use crate::text::TokenizerError;

/// Why a run could not be collected. No partial result remains.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Visit(#[from] VisitError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error(
        "no reachable peer holds {}; asked {asked} peers: wait until one takes a path through it, or collect from the \
         folders of peers that hold it",
        list(modules)
    )]
    NoHolder { modules: Vec<ModuleId>, asked: usize },
    #[error("module {module} could not be fetched: {reason}")]
    NotFetched { module: ModuleId, reason: String },
    #[error("none of the {folders} folders holds {}; add the folder of a peer that holds it", list(modules))]
    InNoFolder { modules: Vec<ModuleId>, folders: usize },
    #[error("none of the folders holds {0}; add the folder of another peer of the run")]
    PartInNoFolder(&'static str),
    #[error("{} holds run {found}, not run {expected}; name only folders of one run", folder.display())]
    OtherRun { folder: PathBuf, found: RunId, expected: RunId },
    #[error("{}: {reason}", folder.display())]
    NoManifest { folder: PathBuf, reason: String },
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("{}: a record of the journal cannot be decoded: {source}", folder.display())]
    Record { folder: PathBuf, source: WireError },
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("there is no path {path}; this run has paths 0 to {last}")]
    NoPath { path: PathId, last: u32 },
    #[error(transparent)]
    Collected(#[from] CollectedError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Parameters(#[from] ExchangeError),
}

fn no_path(path: PathId, grid: &Grid) -> Result<(), CollectError> {
    let last = grid.path_count() - 1;
    if path.0 > last { Err(CollectError::NoPath { path, last }) } else { Ok(()) }
}

fn list(modules: &[ModuleId]) -> String {
    let names: Vec<String> = modules.iter().map(ToString::to_string).collect();
    let noun = if modules.len() == 1 { "module" } else { "modules" };
    format!("{noun} {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let module = |name: &str| name.parse().unwrap();
        let error = CollectError::NoHolder { modules: vec![module("0.1"), module("1.0")], asked: 3 };
        assert!(error.to_string().contains("holds modules 0.1, 1.0; asked 3 peers"), "{error}");
    }
}
