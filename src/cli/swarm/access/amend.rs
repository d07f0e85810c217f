//! `pathswarm amend`: gives a run that its creator has created more phases, or requires a newer program of it.

use std::path::PathBuf;

use clap::Args;
use semver::Version;
use serde_json::json;

use crate::cli::swarm::Globals;
use crate::cli::swarm::access::{identity_in, unreadable};
use crate::cli::swarm::mistake::Mistake;
use crate::config::MAX_PHASES;
use crate::config::admission::Requires;
use crate::peer::driver::control_socket;
use crate::peer::driver::handle::Order;
use crate::peer::folder::{lock_store, present_folder, read_manifest, write_amendment};
use crate::peer::manifest::amending::AmendError;

/// Give a run more phases while it runs, or require a newer program of it. Only its creator can.
#[derive(Args)]
pub struct Amend {
    /// The folder of the peer that has created the run, which may be running or not.
    folder: PathBuf,
    /// All phases of the run from now on, at least as many as it has.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=MAX_PHASES), required_unless_present = "requires_version")]
    phases: Option<u64>,
    /// The oldest version of pathswarm that may train the phases from `--from-phase` on.
    #[arg(long, value_name = "VERSION", requires = "from_phase")]
    requires_version: Option<Version>,
    /// The first phase, from 0, that needs the version.
    #[arg(long, value_name = "PHASE", requires = "requires_version")]
    from_phase: Option<u64>,
}

/// What to do about an error.
fn hint(error: &AmendError) -> &'static str {
    match error {
        AmendError::NotCreator(_) | AmendError::Amendment(_) => "name the folder in which the run was created",
        AmendError::NoCreator => "go on from its result in a new run: pathswarm create --from DIR",
        AmendError::FirstStage => "amend the second stage once it has begun",
        _ => "give more phases than the run has, or another version",
    }
}

impl Amend {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let folder = present_folder(&self.folder);
        let Some((_, mut manifest, run)) = read_manifest(&folder).map_err(unreadable)? else {
            let message = format!("{}: not the folder of a peer", folder.display());
            return Err(Mistake::new(message).hint("name the folder in which the run was created").into());
        };
        let requires =
            self.requires_version.zip(self.from_phase).map(|(version, from_phase)| Requires { version, from_phase });
        let identity = identity_in(&folder)?;
        let refused = |error: AmendError| {
            let hint = hint(&error);
            anyhow::Error::from(Mistake::new(error).hint(hint))
        };
        let bytes = manifest.next_amendment(run, (self.phases, requires.clone()), &identity).map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let order = Order::Amend { phases: self.phases, requires };
        let done = match runtime.block_on(control_socket::order(&self.folder, order))? {
            Some(Ok(done)) => done,
            Some(Err(reason)) => {
                return Err(Mistake::new(reason).hint("see pathswarm status for what is in force").into());
            }
            None => {
                // Keeps the peer from starting meanwhile.
                let _lock = lock_store(&folder)?;
                manifest.amend(run, &bytes).map_err(refused)?;
                write_amendment(&folder, &bytes)?;
                format!("{}; the other peers learn of it once this peer runs", manifest.in_force())
            }
        };
        globals.output().text(&done)?;
        let now = read_manifest(&folder)?.map(|(_, manifest, _)| manifest);
        globals.output().json(&json!({
            "event": "amended",
            "message": done,
            "run": run,
            "number": now.as_ref().and_then(|now| now.amendment).map(|amended| amended.number),
            "phases": now.as_ref().map(|now| now.config.training.phases),
            "requires": now.and_then(|now| now.config.requires),
        }))?;
        Ok(())
    }
}
