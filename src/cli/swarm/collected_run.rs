//! Opening a collected run, for the commands that use one.

use std::path::Path;

use super::mistake::{Mistake, OrMistake};
use crate::names::PathId;
use crate::peer::{Collected, CollectedError};

const HINT: &str = "collect the run again: pathswarm collect DIR --from ADDRESS";

/// # Errors
/// What is missing from the folder, or wrong with it.
pub(super) fn open(folder: &Path) -> Result<Collected, Mistake> {
    Collected::open(folder).or_mistake(HINT)
}

/// An error on the way, told as the user's to mend if the folder is at fault.
pub(super) fn explain(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<CollectedError>() {
        Ok(damaged) => Mistake::new(damaged).hint(HINT).into(),
        Err(other) => other,
    }
}

/// The parameters of a path, level by level, or of the ancestor.
///
/// # Errors
/// If there is no such path, or a file of the folder is broken.
pub(super) fn levels_of(collected: &Collected, path: Option<PathId>) -> anyhow::Result<Vec<Vec<f32>>> {
    let paths = collected.grid().path_count();
    match path {
        None => Ok(collected.ancestor().to_vec()),
        Some(path) if path.0 < paths => collected.levels_of(path).map_err(|error| explain(error.into())),
        Some(path) => {
            let hint = format!("this run has paths 0 to {}", paths - 1);
            Err(Mistake::new(format!("there is no path {path}")).hint(hint).into())
        }
    }
}
