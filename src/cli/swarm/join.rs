//! `pathswarm join`: joins a run with only an address.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use serde_json::json;

use super::explain::explain;
use super::interrupt::Interrupt;
use super::mistake::Mistake;
use super::running::{Display, Watch};
use super::stages::{RunSupervisor, line_of};
use crate::cli::process::{private_files, runtime};
use crate::cli::swarm::api::PeerApiFlags;
use crate::cli::swarm::create::corpus::TextFlags;
use crate::cli::swarm::training_memory::tell_memory;
use crate::cli::swarm::web::{WebFlags, talk};
use crate::cli::swarm::{Globals, access, listen};
use crate::config::MachineConfig;
use crate::names::RunId;
use crate::observe::{Progress, View, logging};
use crate::peer::folder::{present_folder, read_manifest};
use crate::peer::start::{Launch, OwnText};
use crate::peer::{DeviceScheduler, Manifest};
use crate::sizes::in_words;

/// Join a swarm by the address of any of its peers, and train in it.
#[derive(Args)]
pub struct Join {
    /// The address that `create` printed, such as /ip4/192.0.2.1/udp/4001/quic-v1/p2p/12D3Koo…. Without it, the run of the
    /// folder is resumed.
    address: Option<String>,
    /// An invitation, or the file with it, if the run is not open. It may have the address, too.
    #[arg(long, value_name = "TEXT|FILE")]
    invitation: Option<String>,
    #[command(flatten)]
    text: TextFlags,
    /// The folder of this peer; by default `joined` among the machine's runs.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Listening addresses, instead of those of the machine's profile.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// A relay for a machine that others cannot reach directly, besides those of its profile.
    #[arg(long, value_name = "ADDRESS")]
    relay: Vec<String>,
    #[command(flatten)]
    // Boxed: commands are variants of one enum.
    web: Box<WebFlags>,
    #[command(flatten)]
    api: PeerApiFlags,
}

impl Join {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        private_files();
        let machine = globals.machine_only()?;
        let log_filter = globals.log_filter()?;
        let folder = self.dir.clone().unwrap_or_else(|| machine.runs.join("joined"));
        let addresses = listen::listen(&self.listen, &machine)?;
        let announce = listen::announce(&machine)?;
        let relays = listen::relays(&self.relay, &machine)?;
        let invitation = self.invitation.as_deref().map(access::read).transpose()?;
        let address = match &self.address {
            Some(address) => Some(listen::parse(address)?),
            None if invitation.is_some() => Some(access::place(invitation.as_ref())?),
            None => resumable(&folder).map(|()| None)?,
        };
        let chosen = !self.text.corpus.is_empty();
        if !chosen && !self.text.test_corpus.is_empty() {
            let message = "--test-corpus was given without --corpus";
            return Err(Mistake::new(message).hint("give the creator's --corpus and --test-corpus, or neither").into());
        }
        let own_text =
            self.text.source().ok().map(|corpus| OwnText { corpus, test_corpus: self.text.test_source(), chosen });
        let api = self.api.bind(machine.first_device())?;
        let (progress, _screen) = Progress::start(View::choose(globals.output().is_json()));
        runtime::run(runtime::PEER_THREADS, async {
            let interrupt = Interrupt::listen()?;
            let display = Display::new(progress);
            let talk = talk(&display.telemetry, machine.first_device(), Some(folder.clone()));
            let _pages = self.web.open(&display, Some(talk))?;
            let progress = display.progress.clone();
            let line = Arc::new(Mutex::new(None));
            let watch = Watch::new(&folder, display.clone(), line.clone());
            let launch = Launch {
                folder: present_folder(&folder),
                machine,
                listen: addresses,
                announce,
                relays,
                link: None,
                scheduler: Arc::new(DeviceScheduler::default()),
                event_sink: watch.event_sink.clone(),
                invitation,
            };
            let own_machine = launch.machine.clone();
            let mut log = Ok(None);
            let mut told = |manifest: &Manifest, run: RunId| {
                log = std::fs::create_dir_all(&folder)
                    .map_err(anyhow::Error::from)
                    .and_then(|()| Ok(Some(logging::start(&folder, &log_filter)?)));
                display.record_in(&folder);
                tell_cost(&progress, (manifest, run), &folder, &own_machine);
                // The manifest was checked, so its grid can be.
                *line.lock().unwrap_or_else(PoisonError::into_inner) = line_of(&display, &manifest.config).ok();
            };
            let joining = async {
                let listening = launch.clone().listen().await?;
                match &address {
                    Some(address) => listening.join(address, own_text.clone(), &mut told).await,
                    None => listening.resume(&mut told).await,
                }
            };
            let launched = tokio::select! {
                launched = joining => launched.map_err(explain)?,
                () = interrupt.wait() => return Err(super::interrupt::Interrupted.into()),
            };
            // Kept until the end, so that all log lines are written.
            let _log = log.map_err(explain)?;
            let supervisor =
                RunSupervisor { folder: folder.clone(), launch, own_text, display: display.clone(), interrupt };
            supervisor.go(launched, watch, api).await.map_err(explain)
        })
    }
}

/// Whether a folder has a run to resume.
fn resumable(folder: &Path) -> anyhow::Result<()> {
    match read_manifest(&present_folder(folder)).map_err(explain)? {
        Some(_) => Ok(()),
        None => Err(Mistake::new(format!("{} holds no run to resume", folder.display()))
            .hint("give the address that `pathswarm create` printed, or the folder of the run with --dir")
            .into()),
    }
}

/// Prints the cost of joining, before anything is downloaded.
fn tell_cost(progress: &Progress, (manifest, run): (&Manifest, RunId), folder: &Path, machine: &MachineConfig) {
    let cost = manifest.cost_of_a_path();
    progress.note(format!("run {} ({})", manifest.config.name, run.short()));
    let others = match cost.others_text_bytes {
        0 => String::new(),
        bytes => format!(", and at most {} of the text of other paths, for others", in_words(bytes)),
    };
    progress.note(format!(
        "downloads about {}, and {} more where another peer has trained the path{others}; keeps about {} in {}{}; \
         holds about {} in memory besides training",
        in_words(cost.download_bytes),
        in_words(cost.hand_off_bytes),
        in_words(cost.disk_bytes),
        folder.display(),
        if others.is_empty() { "" } else { " besides that text" },
        in_words(cost.host_bytes)
    ));
    let memory = tell_memory(progress, &manifest.config, machine);
    progress.result(json!({
        "event": "joining", "run": run, "name": manifest.config.name, "cost": cost, "memory": memory,
    }));
}
