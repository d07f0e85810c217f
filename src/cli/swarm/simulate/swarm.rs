//! The peers of one machine: the first creates the run, the others join it by its address, and all train until every
//! path is finished and scored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::super::interrupt::Interrupt;
use super::super::peer_progress::PeerLine;
use super::super::running::Display;
use crate::access::invitation::{InvitationToken, MEMBER, NO_EXPIRY_S};
use crate::config::{Link, MachineConfig};
use crate::names::{PathId, Phase};
use crate::peer::folder::{identity_of, lock_store, read_manifest};
use crate::peer::join::parts;
use crate::peer::start::{Launch, Launched};
use crate::peer::status::Synced;
use crate::peer::trainer::task::Stepped;
use crate::peer::{DeviceScheduler, Manifest, PeerEvent, PeerStatus};
use crate::training::Score;

/// Interval of checking the peers.
const LOOK: Duration = Duration::from_millis(200);

/// Where a peer was silent for long, as on a machine that is overloaded, two owners may have ended a module; their chains merge
/// within this.
const MERGES: Duration = Duration::from_secs(60);

/// A swarm to train.
pub struct Swarm {
    /// The run's folder.
    pub folder: PathBuf,
    /// The run, created in the first peer's folder.
    pub manifest: Arc<Manifest>,
    pub machine: MachineConfig,
    pub peers: usize,
    /// The emulated link of each peer.
    pub link: Option<Link>,
    pub scheduler: Arc<DeviceScheduler>,
    pub display: Display,
}

/// The result.
#[derive(Clone, Debug)]
pub struct SwarmResult {
    /// All test text, each document on its path.
    pub test: Score,
    /// By path of the grid, in a run that samples those of the last phase: the scores on its held-out slice and on its
    /// test text.
    pub paths: BTreeMap<PathId, (Score, Score)>,
    /// Tokens trained on in this call.
    pub tokens: u64,
    /// Seconds from the first inner step to the last path done, in this call.
    pub train_s: f64,
    /// Seconds that inner steps took to compute, in this call.
    pub computing_s: f64,
    /// The share of their time that paths trained in the second half of the phases, from 0 to 1, when all peers have
    /// joined. `None` if that half was not trained in this call.
    pub trained_share: Option<f64>,
    /// Bytes of outer steps, over all peers.
    pub synced: Synced,
    /// Heartbeats, offers, updates and requests sent, over all peers.
    pub message_bytes: u64,
    /// Whether all members of each module have the same parameters.
    pub module_hashes_agree: bool,
    /// The peers' folders.
    pub folders: Vec<PathBuf>,
}

/// The sums of the peers' events.
#[derive(Debug, Default)]
struct Tally {
    scores: BTreeMap<PathId, (Score, Score)>,
    scored: BTreeSet<PathId>,
    tokens: u64,
    computing_s: f64,
    first_step: Option<Instant>,
    last_step: Option<Instant>,
    /// From here on, the time of each path is measured.
    from: Phase,
    paths: BTreeMap<PathId, Span>,
}

/// The time of a path.
#[derive(Debug)]
struct Span {
    since: Instant,
    until: Instant,
    computing_s: f64,
}

impl Tally {
    fn hear(&mut self, news: &PeerEvent, now: Instant) {
        match news {
            PeerEvent::Stepped(Stepped { path, phase, tokens, seconds, .. }) => {
                // The first report comes after its steps.
                let since = now - Duration::from_secs_f64(*seconds);
                self.first_step.get_or_insert(since);
                if *phase >= self.from {
                    let span = self.paths.entry(*path).or_insert(Span { since, until: now, computing_s: 0.0 });
                    (span.until, span.computing_s) = (now, span.computing_s + seconds);
                }
                self.last_step = Some(now);
                self.tokens += tokens;
                self.computing_s += seconds;
            }
            PeerEvent::Scored { path, drawn, held_out, test } => {
                self.scored.insert(*path);
                self.scores.insert(*drawn, (*held_out, *test));
            }
            PeerEvent::Waiting(_)
            | PeerEvent::ShortOfMemory(_)
            | PeerEvent::OuterStep(_)
            | PeerEvent::Fetched { .. }
            | PeerEvent::Reported(_)
            | PeerEvent::Alone { .. }
            | PeerEvent::WrongBytes { .. }
            | PeerEvent::ShortOfDisk(_)
            | PeerEvent::DiskTakes
            | PeerEvent::NotInvited(_) => {}
        }
    }

    fn trained_share(&self) -> Option<f64> {
        let spent_s: f64 = self.paths.values().map(|span| (span.until - span.since).as_secs_f64()).sum();
        let computing_s: f64 = self.paths.values().map(|span| span.computing_s).sum();
        (spent_s > 0.0).then(|| computing_s / spent_s)
    }
}

impl Swarm {
    /// Trains. `None` if the user asked to stop.
    pub async fn train(&self, interrupt: &Interrupt) -> anyhow::Result<Option<SwarmResult>> {
        let mut peers = Vec::with_capacity(self.peers);
        let mut outcome = self.train_together(&mut peers, interrupt).await;
        // In any case, no thread stays inside a step. All peers leave at once: a single one would wait for others to
        // take over its paths.
        for stopped in futures::future::join_all(peers.into_iter().map(|launched| launched.peer.stop())).await {
            if let Err(error) = stopped {
                outcome = outcome.and(Err(error.into()));
            }
        }
        outcome
    }

    async fn train_together(
        &self,
        peers: &mut Vec<Launched>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<SwarmResult>> {
        let from = Phase(self.manifest.config.training.phases / 2);
        let tally = Arc::new(Mutex::new(Tally { from, ..Tally::default() }));
        let slots = self.manifest.config.slots()?;
        self.hand_out()?;
        let mut sockets = Vec::with_capacity(self.peers);
        for index in 0..self.peers {
            let launched = self.launch(index, peers.first(), &tally).await;
            let launched = launched.with_context(|| format!("peer {index}"))?;
            sockets.push(self.display.open(&self.folder_of(index), &name_of(index), launched.peer.handle()));
            peers.push(launched);
        }
        let mut differ_since = None;
        loop {
            tokio::select! {
                () = interrupt.wait() => return Ok(None),
                () = tokio::time::sleep(LOOK) => {}
            }
            if let Some(stopped) = peers.iter().position(|launched: &Launched| launched.peer.has_stopped()) {
                let launched = peers.swap_remove(stopped);
                launched.peer.finished().await.with_context(|| format!("peer {stopped}"))?;
                anyhow::bail!("peer {stopped} stopped unexpectedly");
            }
            let scored: BTreeSet<PathId> = lock(&tally).scored.iter().map(|slot| slots.first_trainer(*slot)).collect();
            if scored.len() == slots.paths_at_a_time() as usize
                && let Some(statuses) = self.all_final(peers).await
                && (agree(&statuses) || clock() - *differ_since.get_or_insert_with(clock) > MERGES)
            {
                return Ok(Some(self.result(&lock(&tally), &statuses)));
            }
        }
    }

    /// Copies the blobs that every peer stores, which need not pass an emulated link.
    fn hand_out(&self) -> anyhow::Result<()> {
        let creator = lock_store(&self.folder_of(0))?.blobs;
        for folder in (1..self.peers).map(|index| self.folder_of(index)) {
            if read_manifest(&folder)?.is_some() {
                continue;
            }
            let own = lock_store(&folder)?.blobs;
            for (blob, what) in parts(&self.manifest) {
                let bytes = creator.get(blob.hash, blob.bytes)?;
                own.put(&bytes.with_context(|| format!("{what} is not in {}", self.folder_of(0).display()))?)?;
            }
        }
        Ok(())
    }

    async fn launch(
        &self,
        index: usize,
        creator: Option<&Launched>,
        tally: &Arc<Mutex<Tally>>,
    ) -> anyhow::Result<Launched> {
        let line = PeerLine::new(
            self.display.progress.clone(),
            &self.display.telemetry,
            name_of(index),
            &self.manifest.config,
        )?;
        let tally = tally.clone();
        let invitation = match creator.and_then(|creator| creator.access_control.as_ref()) {
            Some(access_control) => {
                let to = identity_of(&self.folder_of(index))?.key();
                let (run, grant) = access_control.invite(to, MEMBER, NO_EXPIRY_S)?;
                Some(InvitationToken { run, addresses: Vec::new(), grant })
            }
            None => None,
        };
        let launch = Launch {
            invitation,
            folder: self.folder_of(index),
            machine: self.machine.clone(),
            listen: vec![self.place().parse().context("a loopback address")?],
            announce: Vec::new(),
            relays: Vec::new(),
            link: self.link,
            scheduler: self.scheduler.clone(),
            event_sink: Arc::new(move |news| {
                lock(&tally).hear(&news, clock());
                line.hear(&news);
            }),
        };
        let listening = launch.listen().await?;
        let Some(creator) = creator else { return listening.start_created(None).await };
        let addresses = creator.network.join_addresses().await?;
        let address = addresses.first().context("the creator has no address to listen on")?;
        listening.join(address, None, &mut |_, _| {}).await
    }

    /// The listening address: an emulated link supports only TCP.
    fn place(&self) -> &'static str {
        match self.link {
            Some(_) => "/ip4/127.0.0.1/tcp/0",
            None => "/ip4/127.0.0.1/udp/0/quic-v1",
        }
    }

    fn folder_of(&self, index: usize) -> PathBuf {
        self.folder.join(format!("peer-{index}"))
    }

    /// Every peer's status, once all modules have had all updates at all peers.
    async fn all_final(&self, peers: &[Launched]) -> Option<Vec<PeerStatus>> {
        let phases = self.manifest.config.training.phases;
        let ended = |phase: Option<u64>| phase.is_some_and(|phase| phase >= phases);
        let mut statuses = Vec::with_capacity(peers.len());
        for launched in peers {
            let status = launched.peer.handle().status().await?;
            if !status.node.modules.iter().all(|module| ended(module.phase)) {
                return None;
            }
            statuses.push(launched.peer.handle().status_with_hashes().await?);
        }
        Some(statuses)
    }

    fn result(&self, tally: &Tally, statuses: &[PeerStatus]) -> SwarmResult {
        let mut synced = Synced::default();
        for status in statuses {
            synced.contribution_bytes += status.synced.contribution_bytes;
            synced.contribution_parameters += status.synced.contribution_parameters;
            synced.average_bytes += status.synced.average_bytes;
            synced.average_parameters += status.synced.average_parameters;
        }
        let train_s = match (tally.first_step, tally.last_step) {
            (Some(first), Some(last)) => (last - first).as_secs_f64(),
            _ => 0.0,
        };
        SwarmResult {
            test: tally.scores.values().map(|(_, test)| *test).sum(),
            paths: tally.scores.clone(),
            tokens: tally.tokens,
            train_s,
            computing_s: tally.computing_s,
            trained_share: tally.trained_share(),
            synced,
            message_bytes: statuses.iter().map(|status| status.traffic.message_bytes_sent).sum(),
            module_hashes_agree: agree(statuses),
            folders: (0..self.peers).map(|index| self.folder_of(index)).collect(),
        }
    }
}

/// Whether each module has one hash.
fn agree(statuses: &[PeerStatus]) -> bool {
    let mut hashes: BTreeMap<&str, &str> = BTreeMap::new();
    let all = statuses.iter().flat_map(|status| &status.parameter_hashes);
    let mut count = 0;
    let agree = all.into_iter().all(|(module, hash)| {
        count += 1;
        *hashes.entry(module).or_insert(hash) == hash
    });
    agree && count > 0
}

#[expect(clippy::disallowed_methods, reason = "an edge: how long the peers trained")]
fn clock() -> Instant {
    Instant::now()
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    // Sums are consistent even if a thread panicked.
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A peer's name for people.
fn name_of(index: usize) -> String {
    format!("peer {index}")
}

/// The folder of a run, for people.
pub fn shown(folder: &Path) -> String {
    folder.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trained_share_is_that_of_the_time_from_the_first_report_of_the_second_half_to_the_last() {
        let mut tally = Tally { from: Phase(4), ..Tally::default() };
        assert_eq!(tally.trained_share(), None);
        let start = clock() + Duration::from_secs(100);
        let mut step = |path: u32, phase: u64, at_s: u64, seconds: f64| {
            let news = PeerEvent::Stepped(Stepped {
                path: PathId(path),
                phase: Phase(phase),
                step: 1,
                loss: 1.0,
                gradient_norm: 1.0,
                learning_rate: 1e-3,
                tokens: 10,
                seconds,
            });
            tally.hear(&news, start + Duration::from_secs(at_s));
        };
        // The first half does not count, however long it waited.
        step(0, 3, 0, 1.0);
        step(1, 3, 50, 1.0);
        // Ten seconds with eight of training, and ten with four.
        step(0, 4, 62, 2.0);
        step(0, 4, 65, 3.0);
        step(0, 5, 70, 3.0);
        step(1, 4, 72, 2.0);
        step(1, 7, 80, 2.0);
        assert_eq!(tally.trained_share(), Some(12.0 / 20.0));
        assert_eq!((tally.tokens, tally.computing_s), (70, 14.0));
    }
}
