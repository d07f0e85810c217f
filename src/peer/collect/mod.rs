//! Bringing a whole run together: the newest version of every module that can be reached, in one folder.
//!
//! [`collect_from_swarm`] asks peers over the network, [`collect_from_stores`] reads the folders of peers that have
//! stopped. Both write a [`collected`](crate::peer::collected) folder, whole or not at all. [`Checkpoint`] is one path alone.

mod checkpoint;
mod stores;
mod swarm;
#[cfg(test)]
mod swarm_tests;

use std::path::PathBuf;

use crate::grid::Grid;
use crate::model::exchange::ExchangeError;
use crate::names::{ModuleId, PathId, RunId};
use crate::network::{StartError, Stopped};
use crate::outer::StateError;
use crate::peer::access::access_control::AccessError;
use crate::peer::client::VisitError;
pub use crate::peer::collect::checkpoint::Checkpoint;
pub use crate::peer::collect::stores::{collect_from_stores, manifest_of, peers_below};
pub use crate::peer::collect::swarm::{Told, collect_from_swarm};
use crate::peer::collected::CollectedError;
use crate::peer::collected::writing::WriteError;
use crate::peer::join::JoinError;
use crate::peer::manifest::ManifestError;
use crate::protocol::wire::encoding::WireError;
use crate::store::{BlobError, DiskError, OpenError};
use crate::text::TokenizerError;

/// Why a run could not be collected. Nothing is left half written.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The folder to write.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Nobody at the address, or not one of us.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// In the name of a peer that has no right to.
    #[error(transparent)]
    Door(#[from] AccessError),
    /// The network did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The network went away.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// No peer that can be reached has these.
    #[error(
        "no reachable peer holds {}; asked {asked} peers: wait until one takes a path through it, or collect from the \
         folders of peers that hold it",
        list(modules)
    )]
    NoHolder {
        /// Which modules.
        modules: Vec<ModuleId>,
        /// How many peers were asked.
        asked: usize,
    },
    /// Its holders could not deliver it.
    #[error("module {module} could not be fetched: {reason}")]
    NotFetched {
        /// Which module.
        module: ModuleId,
        /// What went wrong last.
        reason: String,
    },
    /// No folder has these.
    #[error("none of the {folders} folders holds {}; add the folder of a peer that holds it", list(modules))]
    InNoFolder {
        /// Which modules.
        modules: Vec<ModuleId>,
        /// How many were read.
        folders: usize,
    },
    /// No folder has a part of the run.
    #[error("none of the folders holds {0}; add the folder of another peer of the run")]
    PartInNoFolder(&'static str),
    /// A folder of another run.
    #[error("{} holds run {found}, not run {expected}; name only folders of one run", folder.display())]
    OtherRun {
        /// The folder.
        folder: PathBuf,
        /// Its run.
        found: RunId,
        /// The run that is collected.
        expected: RunId,
    },
    /// A folder without a manifest that is its run's.
    #[error("{}: {reason}", folder.display())]
    NoManifest {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A peer's store that cannot be read.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// A journal of another program.
    #[error("{}: a record of the journal cannot be decoded: {source}", folder.display())]
    Record {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: WireError,
    },
    /// A blob on the disk.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A state that is attested and yet no state.
    #[error(transparent)]
    State(#[from] StateError),
    /// A manifest that is not this program's.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Not a path of the run.
    #[error("there is no path {path}; this run has paths 0 to {last}")]
    NoPath {
        /// Which was named.
        path: PathId,
        /// The last one.
        last: u32,
    },
    /// A collected folder.
    #[error(transparent)]
    Collected(#[from] CollectedError),
    /// A tokenizer that is not this program's.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Parameters that are not the model's.
    #[error(transparent)]
    Parameters(#[from] ExchangeError),
}

impl From<VisitError> for CollectError {
    fn from(error: VisitError) -> Self {
        match error {
            VisitError::NoAddress => Self::NoHolder { modules: Vec::new(), asked: 0 },
            VisitError::Join(error) => error.into(),
            VisitError::Door(error) => error.into(),
            VisitError::Start(error) => error.into(),
            VisitError::Stopped(error) => error.into(),
        }
    }
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
