//! `pathswarm collect`: all modules of a run in one folder.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::cli::process::runtime;
use crate::cli::swarm::interrupt::{Interrupt, Interrupted};
use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::output::Output;
use crate::cli::swarm::{Globals, access};
use crate::network::Multiaddr;
use crate::peer::client::{Entrance, VisitError};
use crate::peer::collect::{Told, manifest_of, peers_below};
use crate::peer::collected::writing::Summary;
use crate::peer::join::JoinError;
use crate::peer::{CollectError, collect_from_stores, collect_from_swarm};
use crate::store::OpenError;

/// `pathswarm collect`
#[derive(Args)]
pub struct Collect {
    /// The folder to write: a new one, an empty one, or an earlier collection of the same run.
    folder: PathBuf,
    /// Addresses of running peers (`/ip4/…/p2p/…`), or folders of stopped ones on this disk.
    #[arg(long, num_args = 1.., required = true, value_name = "ADDRESS|FOLDER")]
    from: Vec<PathBuf>,
    /// The sponsor in a run by invitation: the folder of a peer of this machine that takes part.
    #[arg(long = "as", value_name = "DIR")]
    sponsor: Option<PathBuf>,
}

enum Source {
    Swarm(Vec<Multiaddr>),
    Folders(Vec<PathBuf>),
}

impl Collect {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let output = globals.output();
        let collected = match source(&self.from)? {
            Source::Folders(folders) => from_folders(&folders, &self.folder),
            Source::Swarm(addresses) => {
                let sponsor = self.sponsor.as_deref().map(access::sponsor).transpose()?;
                from_swarm(Entrance { addresses: &addresses, sponsor: sponsor.as_deref() }, &self.folder, output)?
            }
        };
        let summary = collected.map_err(explain)?;
        print(output, &summary)
    }
}

fn source(from: &[PathBuf]) -> Result<Source, Mistake> {
    let (folders, rest): (Vec<&PathBuf>, Vec<&PathBuf>) = from.iter().partition(|name| name.exists());
    let read = |name: &&PathBuf| {
        name.to_string_lossy().parse().map_err(|_| {
            Mistake::new(format!("--from {}: neither an address nor a folder", name.display()))
                .hint("copy the whole address that a peer printed (/ip4/…/p2p/…), or name a peer's folder")
        })
    };
    let addresses: Vec<Multiaddr> = rest.iter().map(read).collect::<Result<_, _>>()?;
    match (folders.is_empty(), addresses.is_empty()) {
        (true, _) => Ok(Source::Swarm(addresses)),
        (false, true) => Ok(Source::Folders(folders.into_iter().cloned().collect())),
        (false, false) => Err(Mistake::new("--from: addresses and folders cannot be mixed")
            .hint("name either addresses of running peers, or folders of stopped ones")),
    }
}

fn from_folders(named: &[PathBuf], target: &Path) -> Result<Summary, CollectError> {
    let mut folders = Vec::new();
    for folder in named {
        let peers = peers_below(folder);
        // If it is not a peer's folder, opening it reports that.
        folders.extend(if peers.is_empty() { vec![folder.clone()] } else { peers });
    }
    let mut first_error = None;
    for folder in &folders {
        match manifest_of(folder) {
            Ok(manifest) => return collect_from_stores(&manifest, &folders, target),
            Err(error) => drop(first_error.get_or_insert(error)),
        }
    }
    Err(first_error.unwrap_or(CollectError::PartInNoFolder("the manifest")))
}

/// The outer error is not the collection's: no runtime, or the user's Ctrl-C.
fn from_swarm(entrance: Entrance<'_>, target: &Path, output: Output) -> anyhow::Result<Result<Summary, CollectError>> {
    let mut modules = 0;
    let mut told = |told: Told| {
        let line = match told {
            Told::Run { name, modules: all } => {
                modules = all;
                format!("run {name}: fetching {all} modules")
            }
            Told::Module { module, version, from, done } => {
                format!("module {module} at version {version} from …{} ({done} of {modules})", from.short())
            }
        };
        // The reader may be gone.
        let _ = if output.is_json() { Ok(()) } else { output.complain(&line) };
    };
    runtime::run(runtime::NETWORK_THREADS, async {
        let interrupt = Interrupt::listen()?;
        tokio::select! {
            summary = collect_from_swarm(entrance, target, &mut told) => Ok(summary),
            () = interrupt.wait() => Err(Interrupted.into()),
        }
    })
}

pub(in crate::cli::swarm) fn explain(error: CollectError) -> anyhow::Error {
    let hint = match &error {
        CollectError::Write(_) | CollectError::Disk(_) => "name a new folder, on a disk with enough free space",
        CollectError::Visit(VisitError::Join(JoinError::NotInvited { .. })) => access::VISIT,
        CollectError::Visit(VisitError::Join(_)) => "check that the peer is running, and copy its whole address again",
        CollectError::NoHolder { .. } | CollectError::NotFetched { .. } => {
            "try again later, or collect from folders: pathswarm collect DIR --from FOLDER…"
        }
        CollectError::Store(OpenError::InUse { .. }) => {
            "stop the peer, or collect from its address: pathswarm collect DIR --from ADDRESS"
        }
        CollectError::Store(_) | CollectError::InNoFolder { .. } | CollectError::PartInNoFolder(_) => {
            "name the folders of all peers of the run on this disk"
        }
        CollectError::OtherRun { .. } | CollectError::NoManifest { .. } => "name the folders of one run's peers",
        _ => return error.into(),
    };
    Mistake::new(error).hint(hint).into()
}

fn print(output: Output, summary: &Summary) -> anyhow::Result<()> {
    let Summary { folder, run, name, phases, modules, paths_without_text, paths_behind, best_before } = summary;
    let (lowest, highest) = summary.versions();
    let versions = if lowest == highest { format!("version {lowest}") } else { format!("versions {lowest}-{highest}") };
    output.text(&format!("run {name} ({}): {} modules at {versions}", run.short(), modules.len()))?;
    let phase = summary.phase();
    if phase < *phases {
        output.text(&format!("the run is at phase {phase} of {phases}; collect again later for the rest"))?;
    }
    let (with_unsent, early): (Vec<_>, Vec<_>) = best_before.iter().partition(|(_, phase)| *phase >= phases);
    if !with_unsent.is_empty() {
        let paths: Vec<&str> = with_unsent.iter().map(|(path, _)| path.as_str()).collect();
        output.text(&format!("paths stored with the values that they have not sent: {}", paths.join(", ")))?;
    }
    if !early.is_empty() {
        let paths: Vec<String> = early.iter().map(|(path, phase)| format!("{path} before {phase}")).collect();
        output.text(&format!("paths stored as of an earlier phase, where they were best: {}", paths.join(", ")))?;
    }
    if !paths_behind.is_empty() {
        let paths: Vec<String> = paths_behind.iter().map(ToString::to_string).collect();
        output.text(&format!(
            "paths stored without the values that they have not sent, and therefore worse: {}; collect again once they \
             are scored",
            paths.join(", ")
        ))?;
    }
    if !paths_without_text.is_empty() {
        let paths: Vec<String> = paths_without_text.iter().map(ToString::to_string).collect();
        output.text(&format!("no peer had the test text of path {}", paths.join(", ")))?;
    }
    output.text(&format!("in {}; try: pathswarm evaluate --local {}", folder.display(), folder.display()))?;
    let mut value = serde_json::to_value(summary)?;
    value["event"] = json!("result");
    output.json(&value)?;
    Ok(())
}
