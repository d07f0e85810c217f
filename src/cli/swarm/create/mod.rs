//! `pathswarm create`: creates a run, starts its first peer, and prints the command by which others join.

mod continues;
pub(super) mod corpus;
pub(super) mod earlier;
pub(super) mod init;
pub(super) mod progress;
pub(super) mod run_folder;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::Context;
use clap::Args;
use serde_json::json;

use crate::cli::process::{private_files, runtime};
use crate::cli::swarm::api::PeerApiFlags;
use crate::cli::swarm::create::continues::ContinueFlags;
use crate::cli::swarm::create::corpus::CorpusFlags;
use crate::cli::swarm::create::earlier::{Earlier, earlier_run, harsh_settings};
use crate::cli::swarm::create::run_folder::Wanted;
use crate::cli::swarm::explain::explain;
use crate::cli::swarm::interrupt::{Interrupt, Interrupted};
use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::running::{Display, Watch};
use crate::cli::swarm::stages::{RunSupervisor, line_of, stages_of};
use crate::cli::swarm::training_memory::tell_memory;
use crate::cli::swarm::web::{WebFlags, talk};
use crate::cli::swarm::{Globals, listen};
use crate::config::RunConfig;
use crate::network::Identity;
use crate::observe::{Progress, View, logging};
use crate::peer::DeviceScheduler;
use crate::peer::create;
use crate::peer::create::dense_trainer::Stopped;
use crate::peer::create::{Plan, StartFrom, TextFrom};
use crate::peer::folder::{key_file, present_folder, read_manifest};
use crate::peer::stages::elsewhere;
use crate::peer::start::{Launch, Launched, OwnText};
use crate::store::LockedStore;
use crate::text::CorpusSource;

/// Start a swarm, train in it, and print the command by which others join.
#[derive(Args)]
#[command(alias = "found")]
pub struct Found {
    /// The run's configuration, such as configs/demo.toml.
    file: PathBuf,
    #[command(flatten)]
    corpus: CorpusFlags,
    /// Send newcomers their training text. Without it, each newcomer needs a copy of the corpus.
    #[arg(long)]
    share_text: bool,
    /// Start every path from an earlier run or another model: a folder that `collect` or `import` made.
    #[arg(long, value_name = "FOLDER", conflicts_with = "tokenizer")]
    ancestor: Option<PathBuf>,
    #[command(flatten)]
    continues: ContinueFlags,
    /// The folder of this peer; by default one with the run's name among the machine's runs.
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

impl Found {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        private_files();
        let run = globals.run(&self.file)?.value;
        let machine = globals.machine()?.value;
        let log_filter = globals.log_filter()?;
        let folder = self.dir.clone().unwrap_or_else(|| machine.runs.join(&run.name));
        let addresses = listen::listen(&self.listen, &machine)?;
        let announce = listen::announce(&machine)?;
        let relays = listen::relays(&self.relay, &machine)?;
        let wanted = Wanted { text: &self.corpus.text, share_text: Some(self.share_text) };
        let (first, then) = stages_of(&run)?;
        run_folder::check(&folder, &first, &wanted)?;
        let too_old = run.is_too_new();
        if let Some(too_old) = too_old.filter(|too_old| too_old.from_phase == 0) {
            return Err(Mistake::new(too_old)
                .hint("correct requires.version, or create the run with that version")
                .into());
        }
        let source = self.corpus.text.source()?;
        // A run's second stage has its own folder.
        let (here, stage) = match (present_folder(&folder), &then) {
            (here, Some(then)) if here != folder => (here, then),
            _ => (folder.clone(), &first),
        };
        let api = self.api.bind(machine.first_device())?;
        let (progress, _screen) = Progress::start(View::choose(globals.output().is_json()));
        runtime::run(runtime::PEER_THREADS, async {
            let interrupt = Interrupt::listen()?;
            let display = Display::new(progress);
            let talk = talk(&display.telemetry, machine.first_device(), Some(folder.clone()));
            let _pages = self.web.open(&display, Some(talk))?;
            let progress = display.progress.clone();
            let line = Arc::new(Mutex::new(Some(line_of(&display, stage)?)));
            let watch = Watch::new(&folder, display.clone(), line);
            let launch = Launch {
                folder: here.clone(),
                machine: machine.clone(),
                listen: addresses,
                announce,
                relays,
                link: None,
                scheduler: Arc::new(DeviceScheduler::default()),
                event_sink: watch.event_sink.clone(),
                invitation: None,
            };
            let own_text = Some(OwnText {
                corpus: source.clone(),
                test_corpus: self.corpus.text.test_source(),
                chosen: !self.corpus.text.corpus.is_empty(),
            });
            let elsewhere = elsewhere(&folder).await?;
            let listening = launch.clone().listen().await.map_err(explain)?;
            let (shows, stopping) = (display.clone(), interrupt.clone());
            let supervisor =
                RunSupervisor { folder: folder.clone(), launch, own_text, display: shows, interrupt: stopping };
            let launched = match elsewhere {
                Some(address) => listening.join(&address, supervisor.own_text.clone(), &mut |_, _| {}).await,
                None => {
                    let creator = listening.creator();
                    listening
                        .start_created(self.prepare(&supervisor, stage, then.clone(), (source, creator)).await?)
                        .await
                }
            };
            let launched = launched.map_err(explain)?;
            let _log = logging::start(&folder, &log_filter).map_err(|error| explain(error.into()))?;
            display.record_in(&folder);
            tell_joining(&progress, &folder, &launched).await?;
            supervisor.go(launched, watch, api).await.map_err(explain)
        })
    }

    /// Creates the run, unless this folder has it already.
    async fn prepare(
        &self,
        supervisor: &RunSupervisor,
        run: &RunConfig,
        then: Option<RunConfig>,
        (corpus, identity): (CorpusSource, Identity),
    ) -> anyhow::Result<Option<LockedStore>> {
        let RunSupervisor { launch, display, interrupt, .. } = supervisor;
        let progress = &display.progress;
        if read_manifest(&launch.folder)?.is_some() {
            return Ok(None);
        }
        tell_memory(progress, run, &launch.machine);
        if self.share_text {
            progress.note("newcomers receive this run's text (--share-text)");
        } else {
            progress.note(
                "this run does not send its text (--share-text is not set): every newcomer needs the same corpus (join \
                 --corpus), which is checked by its hash",
            );
        }
        let (tokenizer, start) = match (&self.ancestor, &self.continues.from) {
            (Some(folder), _) => {
                let Earlier { tokenizer, levels, frozen, pretrained } = earlier_run(folder, run)?;
                for warning in pretrained.iter().flat_map(|_| harsh_settings(run)) {
                    progress.note(warning);
                }
                (Some(tokenizer), StartFrom::Ancestor { levels, frozen, pretrained })
            }
            (None, Some(from)) => {
                let folder = supervisor.unless_interrupted(self.continues.folder(from, &launch.folder)).await??;
                let (continuation, tokenizer, words) = self.continues.continuation(&folder, run)?;
                progress.note(words);
                (Some(tokenizer), StartFrom::Continuation(Box::new(continuation)))
            }
            (None, None) => (self.corpus.tokenizer(run.model.reads_images())?, StartFrom::Nothing),
        };
        let text = TextFrom::Corpus { corpus, test: self.corpus.text.test_source(), tokenizer };
        let (run, launch, share_text) = (run.clone(), launch.clone(), self.share_text);
        let (progress, interrupt) = (progress.clone(), interrupt.clone());
        let work = tokio::task::spawn_blocking(move || -> anyhow::Result<Option<LockedStore>> {
            let (run, machine, folder) = (&run, &launch.machine, launch.folder.as_path());
            let (after, creator) = (None, Some(identity.key()));
            let plan = Plan { run, then, after, creator, machine, folder, text, share_text, start };
            let mut told = |stage| progress::show(&progress, stage);
            let created = create::create_run(plan, &launch.scheduler, interrupt.flag(), &mut told)?;
            identity.keep(&key_file(folder))?;
            create::settle(folder, &created.bytes)?;
            continues::forget(folder);
            Ok(Some(created.store))
        });
        let created = supervisor.interrupt.unless_left(work).await?;
        created.map_err(|error| if error.is::<Stopped>() { Interrupted.into() } else { explain(error) })
    }
}

/// Tells how others join, and where the run is kept.
async fn tell_joining(progress: &Progress, folder: &Path, launched: &Launched) -> anyhow::Result<()> {
    let joins = launched.network.join_addresses().await?;
    let addresses: Vec<String> = joins.iter().map(ToString::to_string).collect();
    let first = addresses.first().context("this peer has no address to listen on")?;
    let kept = folder.display().to_string();
    progress.note(format!("others join with:\n  pathswarm join {first}"));
    if addresses.len() > 1 {
        progress.note(format!("or, if that address cannot be reached:\n  {}", addresses[1..].join("\n  ")));
    }
    if launched.access_control.is_some() {
        progress.note(format!(
            "joining needs an invitation: pathswarm invite {kept} makes one, and join --invitation uses it"
        ));
    }
    progress.note(format!("this peer keeps the run in {kept}"));
    progress.result(json!({ "event": "join", "address": first, "addresses": addresses, "folder": kept }));
    Ok(())
}
