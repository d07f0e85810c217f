//! Opens one path, from a collected run or from stopped peers.

use std::path::Path;

use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::model::collected_run;
use crate::names::PathId;
use crate::peer::collect::{Checkpoint, peers_below};
use crate::peer::{CollectError, Collected};
use crate::store::OpenError;

/// The path in a collected run's folder, a peer's, or one with peers' folders; the ancestor if no path is named.
pub(in crate::cli::swarm) fn open(run: &Path, path: Option<PathId>) -> anyhow::Result<Checkpoint> {
    match &peers_below(run)[..] {
        [] => of_collected(&collected_run::open(run)?, path),
        peers => Checkpoint::in_stores(peers, path).map_err(explain),
    }
}

pub(in crate::cli::swarm) fn of_collected(collected: &Collected, path: Option<PathId>) -> anyhow::Result<Checkpoint> {
    Checkpoint::of_collected(collected, path).map_err(explain)
}

fn explain(error: CollectError) -> anyhow::Error {
    let hint = match error {
        CollectError::Collected(damaged) => return collected_run::explain(damaged.into()),
        CollectError::NoPath { .. } => "name one of them: --path NUMBER",
        CollectError::Store(OpenError::InUse { .. }) => "stop the peer, or collect the run and name that folder",
        CollectError::InNoFolder { .. } | CollectError::PartInNoFolder(_) => {
            "name a path that a peer in this folder holds (--path NUMBER), or a collected run"
        }
        CollectError::Store(_) | CollectError::OtherRun { .. } | CollectError::NoManifest { .. } => {
            "name a collected run, a peer's folder, or one that holds the folders of one run's peers"
        }
        _ => return error.into(),
    };
    Mistake::new(error).hint(hint).into()
}
