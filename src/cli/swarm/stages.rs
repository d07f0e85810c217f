//! A peer in the foreground through the stages of its run: when the first is done, it goes on to the next one.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;

use super::explain::explain;
use super::interrupt::{Interrupt, Interrupted};
use super::peer_progress::PeerLine;
use super::running::{Display, THIS_PEER, Watch, leave, scored};
use crate::cli::swarm::api::PeerApi;
use crate::cli::swarm::create::earlier::{Earlier, earlier_run};
use crate::cli::swarm::create::progress;
use crate::config::RunConfig;
use crate::names::RunId;
use crate::network::Multiaddr;
use crate::peer::client::{Entrance, VisitError};
use crate::peer::create;
use crate::peer::create::dense_trainer::Stopped;
use crate::peer::create::{Plan, StartFrom, TextFrom};
use crate::peer::folder::read_manifest;
use crate::peer::folder::{abandon, next_folder, present_folder, take_along};
use crate::peer::join::JoinError;
use crate::peer::stages::{StageDiscovery, gather, is_first, remember_others};
use crate::peer::start::{Launch, Launched, NeedsText, OwnText};
use crate::peer::{CollectError, Manifest, collect_from_swarm};
use crate::store::LockedStore;

/// Interval at which a finished peer looks for the next stage.
const LOOK: Duration = Duration::from_secs(1);

/// A peer that still trains looks once in this many intervals.
const LOOKS_OF_ONE_THAT_TRAINS: u64 = 15;

/// Intervals before another attempt to prepare the next stage.
const LOOKS_AFTER_A_REFUSAL: u64 = 10;

/// Attempts to join the next stage.
const TRIES: usize = 20;

/// How a peer enters the next stage.
enum Way {
    /// By following a peer that is in it.
    Follow(Multiaddr),
    /// As its creator.
    Lead(LockedStore),
}

/// The peer of one command.
pub struct RunSupervisor {
    /// The peer's first folder, with everything for people.
    pub folder: PathBuf,
    /// How it was launched, and will be again.
    pub launch: Launch,
    /// This machine's copy of the text, if any.
    pub own_text: Option<OwnText>,
    pub display: Display,
    pub interrupt: Interrupt,
}

/// The progress line of a stage.
///
/// # Errors
/// If the run's grid cannot be.
pub fn line_of(display: &Display, run: &RunConfig) -> anyhow::Result<PeerLine> {
    Ok(PeerLine::new(display.progress.clone(), &display.telemetry, THIS_PEER.to_owned(), run)?)
}

impl RunSupervisor {
    /// Runs the peer through all stages, until it is interrupted or fails. The last stage is that of the run's paths,
    /// which are what `api` serves.
    pub async fn go(self, launched: Launched, watch: Watch, api: Option<PeerApi>) -> anyhow::Result<()> {
        let (_, manifest, run) = read_manifest(&present_folder(&self.folder))?.context("the peer has no manifest")?;
        let too_old = manifest.then.as_deref().unwrap_or(&manifest.config).is_too_new();
        if let Some(too_old) = &too_old {
            self.display.progress.note(format!("{too_old}; this peer stops there"));
        }
        let (launched, watch) = match manifest.then.clone() {
            Some(then) => self.next(launched, &manifest, run, *then).await?,
            None => (launched, watch),
        };
        let _api = match api {
            Some(api) => {
                let addresses = launched.network.join_addresses().await?;
                Some(api.begin(addresses, launched.access_control.clone(), self.display.clone())?)
            }
            None => None,
        };
        watch.stay(launched, &self.interrupt).await
    }

    /// Waits until the present stage is done and another peer has begun the next one, and joins it.
    async fn next(
        &self,
        launched: Launched,
        manifest: &Manifest,
        run: RunId,
        then: RunConfig,
    ) -> anyhow::Result<(Launched, Watch)> {
        let socket = self.display.open(&self.folder, THIS_PEER, launched.peer.handle());
        let way = self.seek(&launched, (manifest, run), &then).await;
        drop(socket);
        match way {
            Ok(Way::Follow(address)) => self.follow(launched, &address).await,
            Ok(Way::Lead(store)) => self.lead(launched, store).await,
            Err(error) => {
                // Hands everything over to other peers, however it ends.
                leave(launched.peer, &self.display.progress).await?;
                Err(error)
            }
        }
    }

    /// Looks for a peer in the next stage, or prepares it if that is this peer's duty.
    async fn seek(
        &self,
        launched: &Launched,
        (manifest, run): (&Manifest, RunId),
        then: &RunConfig,
    ) -> anyhow::Result<Way> {
        let mut discovery = StageDiscovery::start(launched.access_control.clone()).await?;
        let (mut told, mut refusal, mut looks, mut again_at) = (false, String::new(), 0, 0);
        loop {
            self.unless_interrupted(tokio::time::sleep(LOOK)).await?;
            looks += 1;
            anyhow::ensure!(!launched.peer.has_stopped(), "the peer stopped before the end of its run");
            let handle = launched.peer.handle();
            let status = handle.status().await;
            let done = status.as_ref().and_then(scored).is_some();
            // A lagging peer looks as well, now and then, since the others may have gone on without it.
            if !done && looks % LOOKS_OF_ONE_THAT_TRAINS > 0 {
                continue;
            }
            if done && !told {
                self.display.progress.note("the stage of shared levels is done; the stage of paths is next");
                told = true;
            }
            let others = handle.contacts().await.unwrap_or_default();
            if let Some((address, _)) = self.unless_interrupted(discovery.successor(&others, (manifest, run))).await? {
                return Ok(Way::Follow(address));
            }
            if looks < again_at || !status.is_some_and(|status| is_first(&status)) {
                continue;
            }
            if refusal.is_empty() {
                self.display.progress.note("this peer prepares the paths; if it leaves, another peer does");
            }
            let own = launched.network.join_addresses().await?;
            let peers: Vec<Multiaddr> = own.into_iter().chain(others.clone()).collect();
            let entrance = Entrance { addresses: &peers, sponsor: launched.access_control.as_deref() };
            match self.found(entrance, &others, (manifest, run), then.clone()).await {
                Err(error) if !error.is::<Interrupted>() => {
                    // Another peer would do no better.
                    let reason = format!("{error:#}");
                    if refusal != reason {
                        self.display.progress.note(format!("the paths cannot be prepared yet: {reason}"));
                        refusal = reason;
                    }
                    again_at = looks + LOOKS_AFTER_A_REFUSAL;
                }
                created => {
                    let store = created?;
                    // Another peer may have been faster.
                    let Some((address, _)) =
                        self.unless_interrupted(discovery.successor(&others, (manifest, run))).await?
                    else {
                        return Ok(Way::Lead(store));
                    };
                    drop(store);
                    abandon(&self.folder)?;
                    return Ok(Way::Follow(address));
                }
            }
        }
    }

    /// # Errors
    /// If the user asks to stop first.
    pub(super) async fn unless_interrupted<T>(&self, work: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::select! {
            done = work => Ok(done),
            () = self.interrupt.wait() => Err(Interrupted.into()),
        }
    }

    /// Creates the next stage from the trained modules.
    async fn found(
        &self,
        entrance: Entrance<'_>,
        others: &[Multiaddr],
        (manifest, run): (&Manifest, RunId),
        then: RunConfig,
    ) -> anyhow::Result<LockedStore> {
        // Before there is a manifest, so that a restart finds the identity and the addresses of others.
        let (folder, shared) = (take_along(&self.folder)?, self.folder.join("shared"));
        remember_others(&folder, others)?;
        let summary = self.unless_interrupted(collect_from_swarm(entrance, &shared, &mut |_| {})).await??;
        anyhow::ensure!(summary.run == run, "the peers are already in another run");
        let Earlier { tokenizer, levels, frozen, pretrained } = earlier_run(&shared, &then)?;
        let gathered = folder.join("gathered");
        let text = match (&self.own_text, manifest.share_text) {
            (_, true) => TextFrom::Tokens(Box::new(self.unless_interrupted(gather(entrance, run, &gathered)).await??)),
            (Some(own), false) => TextFrom::Corpus {
                corpus: own.corpus.clone(),
                test: own.test_corpus.clone(),
                tokenizer: Some(tokenizer),
            },
            (None, false) => return Err(explain(NeedsText { corpus: manifest.corpus }.into())),
        };
        let (machine, scheduler, share_text) =
            (self.launch.machine.clone(), self.launch.scheduler.clone(), manifest.share_text);
        let (progress, interrupt, corpus) = (self.display.progress.clone(), self.interrupt.clone(), manifest.corpus);
        let creator = manifest.creator;
        let work = tokio::task::spawn_blocking(move || -> anyhow::Result<LockedStore> {
            let (run_of, machine, into) = (&then, &machine, folder.as_path());
            let (after, creator) = (Some(run), creator);
            let plan = Plan {
                run: run_of,
                then: None,
                after,
                creator,
                machine,
                folder: into,
                text,
                share_text,
                start: StartFrom::Ancestor { levels, frozen, pretrained },
            };
            let mut told = |stage| progress::show(&progress, stage);
            let created = create::create_run(plan, &scheduler, interrupt.flag(), &mut told)?;
            anyhow::ensure!(
                created.manifest.corpus == corpus,
                "this machine's copy of the text has changed since the run was created; restore it, or another peer has to \
                 prepare the paths"
            );
            drop((created.train, created.test));
            create::settle(into, &created.bytes)?;
            // Its blobs are in the shards now.
            let _ = std::fs::remove_dir_all(&gathered);
            Ok(created.store)
        });
        let created = self.interrupt.unless_left(work).await?;
        created.map_err(|error| if error.is::<Stopped>() { Interrupted.into() } else { explain(error) })
    }

    /// Begins the next stage as its creator.
    async fn lead(&self, launched: Launched, store: LockedStore) -> anyhow::Result<(Launched, Watch)> {
        let (launch, watch) = self.leave(launched).await?;
        let launched =
            launch.listen_again().await.map_err(explain)?.start_created(Some(store)).await.map_err(explain)?;
        self.tell_stage()?;
        Ok((launched, watch))
    }

    /// Follows another peer that has begun it.
    async fn follow(&self, launched: Launched, address: &Multiaddr) -> anyhow::Result<(Launched, Watch)> {
        let (launch, watch) = self.leave(launched).await?;
        let mut tries = 0;
        let launched = loop {
            tries += 1;
            let joining = async {
                launch.clone().listen_again().await?.join(address, self.own_text.clone(), &mut |_, _| {}).await
            };
            match self.unless_interrupted(joining).await? {
                // All peers join at once.
                Err(error) if tries < TRIES && may_pass(&error) => {
                    tracing::warn!(error = %format!("{error:#}"), "joining the next stage failed; retrying");
                    self.unless_interrupted(tokio::time::sleep(LOOK)).await?;
                }
                joined => break joined.map_err(explain)?,
            }
        };
        self.tell_stage()?;
        Ok((launched, watch))
    }

    /// Stops the peer of the finished stage. Its folder stays.
    async fn leave(&self, launched: Launched) -> anyhow::Result<(Launch, Watch)> {
        let Launched { peer, network, .. } = launched;
        peer.stop().await?;
        drop(network);
        let line = Arc::new(Mutex::new(None));
        let watch = Watch::new(&self.folder, self.display.clone(), line.clone());
        let manifest = read_manifest(&self.folder)?.context("the peer has no manifest")?.1;
        if let Some(then) = &manifest.then {
            *line.lock().unwrap_or_else(PoisonError::into_inner) = Some(line_of(&self.display, then)?);
        }
        let folder = take_along(&self.folder)?;
        Ok((Launch { folder, event_sink: watch.event_sink.clone(), ..self.launch.clone() }, watch))
    }

    fn tell_stage(&self) -> anyhow::Result<()> {
        let (_, _, run) = read_manifest(&next_folder(&self.folder))?.context("the next stage has no manifest")?;
        self.display.progress.note(format!("the stage of the paths begins: run {}", run.short()));
        Ok(())
    }
}

/// Whether the missing part may come with a peer that is not here now.
fn may_pass(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<JoinError>() || cause.is::<CollectError>() || cause.is::<VisitError>())
}

/// The run to create in a folder, and the stage that follows.
pub fn stages_of(run: &RunConfig) -> anyhow::Result<(RunConfig, Option<RunConfig>)> {
    Ok(match run.shared_stage()? {
        Some(shared) => (shared, Some(run.path_stage())),
        None => (run.clone(), None),
    })
}
