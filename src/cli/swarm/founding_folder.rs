//! Whether a run may be founded in a folder, or goes on there.

use std::path::Path;

use super::join::explain;
use super::mistake::Mistake;
use crate::config::RunConfig;
use crate::peer::launch::{read_manifest, run_of_store};

/// A founder's folder of another run is not written to.
///
/// # Errors
/// If the folder holds another run, or one of another configuration, or a peer that runs.
pub fn check(folder: &Path, run: &RunConfig) -> anyhow::Result<()> {
    let refused = |what: &str| {
        let message = format!("{} holds {what}", folder.display());
        Err(Mistake::new(message).hint("choose another folder with --dir, or remove that one").into())
    };
    match read_manifest(folder).map_err(explain)? {
        Some((_, manifest, _)) if manifest.config != *run => refused("a run of another configuration"),
        manifest => match run_of_store(folder).map_err(|error| explain(error.into()))? {
            Some(_) if manifest.is_none() => refused("the store of a run whose manifest is gone"),
            _ => Ok(()),
        },
    }
}
