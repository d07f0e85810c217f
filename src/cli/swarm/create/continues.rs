//! `create --from`: the earlier run from whose modules a new one begins.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use crate::cli::swarm::access;
use crate::cli::swarm::mistake::OrMistake;
use crate::cli::swarm::model::{collect, collected_run};
use crate::config::RunConfig;
use crate::network::Multiaddr;
use crate::peer::client::Entrance;
use crate::peer::create::continuation::{Continuation, NextRouter, Routing};
use crate::peer::{Collected, collect_from_swarm};

/// Flags for going on from an earlier run.
#[derive(Args)]
pub(super) struct ContinueFlags {
    /// Go on from the modules of another run: a folder that `collect` made, or the address of a running peer. A level may
    /// have a multiple of its experts, which begin as copies.
    #[arg(long, value_name = "FOLDER|ADDRESS", conflicts_with_all = ["tokenizer", "ancestor"])]
    pub(super) from: Option<PathBuf>,
    /// With --from: fit the router on the new text, instead of keeping the earlier run's.
    #[arg(long, requires = "from")]
    refit_router: bool,
    /// With --from ADDRESS, of a run by invitation: the folder of a peer of this machine that takes part.
    #[arg(long = "as", value_name = "DIR", requires = "from")]
    sponsor: Option<PathBuf>,
}

/// The folder of a new run in which the earlier one is collected.
fn collected_in(folder: &Path) -> PathBuf {
    folder.join("earlier")
}

/// The earlier run is no longer needed.
pub(super) fn forget(folder: &Path) {
    let earlier = collected_in(folder);
    match std::fs::remove_dir_all(&earlier) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!("{} is no longer needed, but cannot be removed: {error}", earlier.display());
        }
        _ => {}
    }
}

impl ContinueFlags {
    /// The folder of the earlier run, which is collected first if it is running.
    ///
    /// # Errors
    /// If it is neither a folder nor an address, or the swarm cannot be collected.
    pub(super) async fn folder(&self, from: &Path, into: &Path) -> anyhow::Result<PathBuf> {
        if from.exists() {
            return Ok(from.to_owned());
        }
        let written = from.to_string_lossy();
        let address: Multiaddr = written
            .parse()
            .ok()
            .with_context(|| format!("--from {written}: neither a folder nor an address"))
            .or_mistake(
                "name a folder that `pathswarm collect` has written, or copy the whole address that a peer printed",
            )?;
        let sponsor = self.sponsor.as_deref().map(access::sponsor).transpose()?;
        let entrance = Entrance { addresses: &[address], sponsor: sponsor.as_deref() };
        let folder = collected_in(into);
        collect_from_swarm(entrance, &folder, &mut |_| {}).await.map_err(collect::explain)?;
        Ok(folder)
    }

    /// How the run goes on from that folder, its tokenizer, and what is told of it.
    ///
    /// # Errors
    /// If the folder is not a collected run, or the run does not come of it.
    pub(super) fn continuation(
        &self,
        folder: &Path,
        run: &RunConfig,
    ) -> anyhow::Result<(Continuation, Vec<u8>, String)> {
        let collected = collected_run::open(folder)?;
        let tokenizer = collected.tokenizer.json().to_vec();
        let routing = if self.refit_router { Routing::Refit } else { Routing::Keep };
        let continuation = Continuation::new(collected, run, routing)
            .map_err(|error| format!("{}: {error}", folder.display()))
            .or_mistake("change the configuration, or start from the earlier run's ancestor with --ancestor")?;
        let words = words(&continuation);
        Ok((continuation, tokenizer, words))
    }
}

/// What is told.
fn words(continuation: &Continuation) -> String {
    let Collected { manifest, modules, run, .. } = continuation.collected();
    let updates = modules.values().map(|module| module.version.0).max().unwrap_or_default();
    let router = match continuation.router() {
        NextRouter::Same(_) => "its router stays".to_owned(),
        NextRouter::Divided(router, paths) => {
            format!("the documents of its {} paths are divided among {}", router.paths(), paths.len())
        }
        NextRouter::Fitted => "its router is fitted anew".to_owned(),
    };
    let (name, run) = (&manifest.config.name, run.short());
    format!("goes on from run {name} ({run}), whose modules have up to {updates} updates; {router}")
}
