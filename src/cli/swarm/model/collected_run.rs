//! Opens a collected run.

use std::path::Path;

use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::peer::{Collected, CollectedError};

const HINT: &str = "collect the run again: pathswarm collect DIR --from ADDRESS";

pub(in crate::cli::swarm) fn open(folder: &Path) -> Result<Collected, Mistake> {
    if !folder.exists() {
        let message = format!("{} does not exist", folder.display());
        return Err(Mistake::new(message).hint("name the folder that pathswarm collect has written"));
    }
    Collected::open(folder).or_mistake(HINT)
}

/// The user can correct errors of the folder.
pub(in crate::cli::swarm) fn explain(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<CollectedError>() {
        Ok(damaged) => Mistake::new(damaged).hint(HINT).into(),
        Err(other) => other,
    }
}
