//! The driver: one task that turns what happens into events, gives them to the node, and has its actions carried out.
//!
//! It owns the node and nothing else that matters: tensors are the trainer's, sums the combiner's, sockets the
//! network's, files the store's. Each worker has at most one command of ours under way, so no queue between us can
//! fill up in both directions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::combiner::{Answer, Combiner, Work};
use super::manifest::Manifest;
use super::news::{News, Newsroom};
use super::trainer::{Task, Told, Trainer};
use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey};
use crate::network::{Identity, Multiaddr, NetworkEvent, NetworkEvents, NetworkHandle, RequestToken};
use crate::protocol::status::Status;
use crate::protocol::{Event, Message, Node, ReplyToken, Request, Response, SignedUpdate, wire};
use crate::store::{BlobStore, StoreHandle};

/// Commands from whoever started the peer.
pub(super) const COMMANDS: usize = 16;

/// How long a peer may be alone before it says so.
const ALONE: Duration = Duration::from_secs(20);

/// Most addresses remembered; beyond it, new peers are not.
const MAX_ADDRESS_BOOK: usize = 4_096;

/// Asked of a running peer.
#[derive(Debug)]
pub(super) enum Command {
    /// What are you doing?
    Status(oneshot::Sender<PeerStatus>),
    /// Leave in order.
    Stop(oneshot::Sender<()>),
}

/// A node's status and its machine's part.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PeerStatus {
    /// The run.
    pub run: String,
    /// The run's name.
    pub name: String,
    /// The protocol's part.
    #[serde(flatten)]
    pub node: Status,
    /// BLAKE3 of each module's parameters alone, by module.
    pub parameter_hashes: BTreeMap<String, String>,
    /// Where the peer can be joined.
    pub addresses: Vec<String>,
    /// Payload bytes sent and received.
    pub traffic: Traffic,
    /// Phases trained here.
    pub phases_trained: u64,
    /// Paths scored here.
    pub scored: Vec<u32>,
}

/// Payload bytes by kind; what transports add is not in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// Contributions, averages, states, text.
    pub blob_bytes_sent: u64,
    /// The same.
    pub blob_bytes_received: u64,
    /// Compressed outer gradients, fetched by owners.
    pub contribution_bytes_received: u64,
    /// Compressed averages, fetched by members.
    pub average_bytes_received: u64,
    /// Beats, offers, updates, and questions.
    pub message_bytes_sent: u64,
    /// The same.
    pub message_bytes_received: u64,
}

/// Why a peer had to stop.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Its store failed.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// Its disk failed.
    #[error(transparent)]
    Disk(#[from] crate::store::DiskError),
    /// The outer arithmetic failed.
    #[error(transparent)]
    Combine(#[from] super::combiner::CombineError),
    /// Training failed.
    #[error("{0:#}")]
    Training(anyhow::Error),
    /// A worker is gone without a word.
    #[error("the {0} has stopped unexpectedly; the log says more")]
    Worker(&'static str),
}

/// A blob on its way.
struct Fetch {
    blob: BlobRef,
    /// For the node; otherwise for a shard that a path needs.
    for_node: bool,
}

pub(super) struct Driver {
    pub(super) node: Node,
    pub(super) manifest: Arc<Manifest>,
    pub(super) manifest_bytes: Arc<Vec<u8>>,
    pub(super) run: String,
    pub(super) identity: Identity,
    pub(super) store: StoreHandle,
    pub(super) blobs: BlobStore,
    pub(super) network: NetworkHandle,
    pub(super) trainer: Trainer,
    pub(super) combiner: Combiner,
    pub(super) newsroom: Newsroom,
    pub(super) pinned: BTreeSet<BlobHash>,
    pub(super) contacts: Vec<String>,
    pub(super) began: Instant,
    pub(super) events: VecDeque<Event>,
    pub(super) addresses: BTreeMap<PeerKey, Vec<Multiaddr>>,
    pub(super) listening: Vec<Multiaddr>,
    pub(super) compacted_bytes: u64,
    state: Working,
}

/// What is under way.
#[derive(Default)]
struct Working {
    tokens: BTreeMap<ReplyToken, RequestToken>,
    next_token: u64,
    fetches: BTreeMap<u64, Fetch>,
    next_fetch: u64,
    work: VecDeque<Work>,
    combining: bool,
    task: Option<Task>,
    training: bool,
    scored: BTreeSet<PathId>,
    phases_trained: u64,
    contribution_bytes: u64,
    average_bytes: u64,
    waiting: Option<String>,
    heard_anybody: bool,
    said_alone: bool,
    shard_holder: usize,
    hashes: BTreeMap<BlobHash, String>,
}

/// Everything that the driver listens to.
pub(super) struct Inputs {
    pub(super) network: NetworkEvents,
    pub(super) trainer: mpsc::Receiver<Told>,
    pub(super) combiner: mpsc::Receiver<Answer>,
    pub(super) commands: mpsc::Receiver<Command>,
}

impl Driver {
    #[expect(clippy::too_many_arguments, reason = "called once, by the assembly of a peer, which names each")]
    pub(super) fn new(
        node: Node,
        manifest: Arc<Manifest>,
        manifest_bytes: Arc<Vec<u8>>,
        run: String,
        identity: Identity,
        store: StoreHandle,
        blobs: BlobStore,
        network: NetworkHandle,
        trainer: Trainer,
        combiner: Combiner,
        newsroom: Newsroom,
        contacts: Vec<String>,
    ) -> Self {
        let mut pinned: BTreeSet<BlobHash> = manifest.for_everybody().iter().map(|blob| blob.hash).collect();
        for shard in &manifest.shards {
            pinned.extend([shard.train.hash, shard.held_out.hash, shard.test.hash]);
        }
        pinned.insert(manifest.test_routes.hash);
        pinned.extend(manifest.genesis.iter().map(|(_, state)| state.hash));
        Self {
            node,
            manifest,
            manifest_bytes,
            run,
            identity,
            store,
            blobs,
            network,
            trainer,
            combiner,
            newsroom,
            pinned,
            contacts,
            began: Instant::now(),
            events: VecDeque::new(),
            addresses: BTreeMap::new(),
            listening: Vec::new(),
            compacted_bytes: 0,
            state: Working::default(),
        }
    }

    /// What a crash or an earlier version left behind.
    pub(super) fn remove_unreferenced_blobs(&self) -> Result<(), PeerError> {
        let mut kept = self.node.referenced_blobs();
        kept.extend(&self.pinned);
        let removed = self.blobs.remove_all_but(&kept)?;
        if removed > 0 {
            tracing::info!(removed, "removed blobs that nothing refers to");
        }
        Ok(())
    }

    fn now(&self) -> Millis {
        Millis(self.began.elapsed().as_millis() as u64)
    }

    /// Runs until it is told to stop, or cannot go on.
    pub(super) async fn run(mut self, mut inputs: Inputs) -> Result<(), PeerError> {
        loop {
            self.settle().await?;
            let deadline = self.node.next_deadline().map(|deadline| deadline.since(self.now()));
            let tick = tokio::time::sleep(Duration::from_millis(deadline.unwrap_or(1_000)));
            tokio::select! {
                biased;
                command = inputs.commands.recv() => match command {
                    Some(Command::Status(reply)) => {
                        let status = self.status();
                        // Whoever asked may be gone.
                        drop(reply.send(status));
                    }
                    Some(Command::Stop(reply)) => {
                        self.events.push_back(Event::Leave);
                        self.settle().await?;
                        drop(reply.send(()));
                        return Ok(());
                    }
                    None => return Ok(()),
                },
                told = inputs.trainer.recv() => self.trainer_told(told.ok_or(PeerError::Worker("trainer"))?)?,
                answer = inputs.combiner.recv() => {
                    self.state.combining = false;
                    self.events.extend(answer.ok_or(PeerError::Worker("combiner"))??);
                }
                event = inputs.network.next() => {
                    self.network_said(event.ok_or(PeerError::Worker("network"))?);
                }
                () = tick => self.events.push_back(Event::Tick),
            }
        }
    }

    /// Lets the node handle everything that has happened, and the workers begin what they can.
    async fn settle(&mut self) -> Result<(), PeerError> {
        while let Some(event) = self.events.pop_front() {
            let actions = self.node.handle(self.now(), event);
            for action in actions {
                self.carry_out(action).await?;
            }
        }
        self.feed_combiner();
        self.feed_trainer()?;
        self.tell_waiting();
        Ok(())
    }

    fn feed_combiner(&mut self) {
        if !self.state.combining
            && let Some(work) = self.state.work.pop_front()
        {
            self.state.combining = self.combiner.begin(work);
        }
    }

    pub(super) fn queue_work(&mut self, work: Work) {
        self.state.work.push_back(work);
    }

    pub(super) fn queue_task(&mut self, task: Task) {
        self.state.task = Some(task);
    }

    /// Begins a task once the text it needs is here.
    fn feed_trainer(&mut self) -> Result<(), PeerError> {
        if self.state.training {
            return Ok(());
        }
        if self.state.task.is_none() {
            self.state.task = self.next_evaluation();
        }
        let path = match &self.state.task {
            Some(Task::Train { path, .. } | Task::Evaluate { path, .. }) => *path,
            None => return Ok(()),
        };
        if !self.has_shard(path)? {
            return Ok(());
        }
        if let Some(task) = self.state.task.take() {
            self.state.training = self.trainer.begin(task);
        }
        Ok(())
    }

    /// A path whose phases are all done is scored once.
    fn next_evaluation(&mut self) -> Option<Task> {
        if !self.node.is_done() {
            return None;
        }
        let path = self.node.paths().into_iter().find(|path| !self.state.scored.contains(path))?;
        let states: BTreeMap<ModuleId, BlobRef> =
            self.node.states().into_iter().map(|(module, _, state)| (module, state)).collect();
        let modules = self.node.modules_of(path);
        let states = modules.into_iter().map(|module| Some((module, *states.get(&module)?))).collect::<Option<_>>()?;
        Some(Task::Evaluate { path, states })
    }

    /// Whether a path's text is here; if not, it is being fetched.
    fn has_shard(&mut self, path: PathId) -> Result<bool, PeerError> {
        let shard = self.manifest.shard(path).clone();
        let mut all = true;
        for blob in [shard.train, shard.held_out, shard.test] {
            if self.blobs.has(blob.hash)? {
                continue;
            }
            all = false;
            let under_way = self.state.fetches.values().any(|fetch| fetch.blob == blob);
            let holders: Vec<PeerKey> = self.addresses.keys().copied().collect();
            if !under_way && !holders.is_empty() {
                let holder = holders[self.state.shard_holder % holders.len()];
                self.begin_fetch(blob, holder, false);
            }
        }
        Ok(all)
    }

    pub(super) fn begin_fetch(&mut self, blob: BlobRef, from: PeerKey, for_node: bool) {
        let id = self.state.next_fetch;
        self.state.next_fetch += 1;
        let addresses = self.addresses.get(&from).cloned().unwrap_or_default();
        if self.network.fetch(id, blob, from, addresses).is_ok() {
            self.state.fetches.insert(id, Fetch { blob, for_node });
        } else if for_node {
            self.events.push_back(Event::Fetched { blob: blob.hash, found: false });
        }
    }

    fn trainer_told(&mut self, told: Told) -> Result<(), PeerError> {
        match told {
            Told::Step(stepped) => {
                self.state.waiting = None;
                (self.newsroom)(News::Stepped {
                    path: stepped.path,
                    phase: stepped.phase,
                    step: stepped.step,
                    loss: stepped.loss,
                    tokens: stepped.tokens,
                    seconds: stepped.seconds,
                });
            }
            Told::Trained(finished) => {
                self.state.training = false;
                self.state.phases_trained += 1;
                self.events.push_back(Event::Trained(finished));
            }
            Told::Evaluated { path, held_out, test } => {
                self.state.training = false;
                self.state.scored.insert(path);
                (self.newsroom)(News::Scored { path, held_out, test });
            }
            Told::Failed(error) => return Err(PeerError::Training(error)),
        }
        Ok(())
    }

    fn network_said(&mut self, event: NetworkEvent) {
        match event {
            NetworkEvent::Gossip { module, author, bytes } => self.gossip(module, author, &bytes),
            NetworkEvent::Request { from, token, bytes } => self.requested(from, token, &bytes),
            NetworkEvent::Response { id, from, result } => {
                let response = result
                    .inspect_err(|error| tracing::debug!(peer = %from.short(), %error, "a request failed"))
                    .ok()
                    .and_then(|bytes| wire::decode::<Response>(&bytes).ok())
                    .filter(signatures_hold);
                let id = crate::protocol::RequestId(id);
                self.events.push_back(Event::Answered { id, response });
            }
            NetworkEvent::Fetched { id, blob, from, result } => {
                let Some(fetch) = self.state.fetches.remove(&id) else { return };
                if let Err(error) = &result {
                    tracing::debug!(peer = %from.short(), blob = %blob.hash.short(), %error, "a blob was not fetched");
                    self.state.shard_holder += usize::from(!fetch.for_node);
                }
                if fetch.for_node {
                    self.events.push_back(Event::Fetched { blob: blob.hash, found: result.is_ok() });
                }
            }
            NetworkEvent::Listening(address) => {
                self.listening.push(address);
                let addresses = self.listening.iter().map(ToString::to_string).collect();
                self.events.push_back(Event::Listening(addresses));
            }
            NetworkEvent::Providers { providers, .. } => {
                for provider in providers {
                    self.learn(provider.peer, provider.addresses);
                }
            }
            NetworkEvent::Connected(peer) => {
                self.state.heard_anybody = true;
                tracing::debug!(peer = %peer.short(), "connected");
            }
            NetworkEvent::Disconnected(peer) => tracing::debug!(peer = %peer.short(), "disconnected"),
        }
    }

    pub(super) fn learn(&mut self, peer: PeerKey, addresses: Vec<Multiaddr>) {
        let room = self.addresses.len() < MAX_ADDRESS_BOOK || self.addresses.contains_key(&peer);
        if peer == self.node.me() || addresses.is_empty() || !room {
            return;
        }
        if self.network.dial_peer(peer, addresses.clone()).is_err() {
            tracing::warn!(peer = %peer.short(), "too much under way to connect to a peer");
        }
        self.addresses.insert(peer, addresses);
    }

    fn gossip(&mut self, module: ModuleId, author: PeerKey, bytes: &[u8]) {
        match wire::decode::<Message>(bytes) {
            Ok(Message::Update(signed)) if !signature_holds(&signed) => {
                tracing::warn!(%module, author = %author.short(), "an update without its owner's signature");
            }
            Ok(message) => self.events.push_back(Event::Heard { module, author, message }),
            Err(error) => tracing::warn!(%module, author = %author.short(), %error, "not a message"),
        }
    }

    fn requested(&mut self, from: PeerKey, token: RequestToken, bytes: &[u8]) {
        match wire::decode::<Request>(bytes) {
            Ok(Request::Manifest) => self.respond(token, &Response::Manifest(self.manifest_bytes.to_vec())),
            Ok(request) => {
                let ours = ReplyToken(self.state.next_token);
                self.state.next_token += 1;
                self.state.tokens.insert(ours, token);
                self.events.push_back(Event::Asked { from, token: ours, request });
            }
            Err(error) => self.respond(token, &Response::Refused(error.to_string())),
        }
    }

    pub(super) fn reply(&mut self, token: ReplyToken, response: &Response) {
        if let Some(token) = self.state.tokens.remove(&token) {
            self.respond(token, response);
        }
    }

    fn respond(&self, token: RequestToken, response: &Response) {
        let bytes = wire::encode(response).or_else(|error| wire::encode(&Response::Refused(error.to_string())));
        let sent = bytes.map(|bytes| self.network.respond(token, bytes));
        if !matches!(sent, Ok(Ok(()))) {
            tracing::warn!("a request could not be answered");
        }
    }

    /// Counts what an outer step cost, by kind: blobs that other peers sent.
    pub(super) fn count_received(&mut self, bytes: u64, contribution: bool) {
        if contribution {
            self.state.contribution_bytes += bytes;
        } else {
            self.state.average_bytes += bytes;
        }
    }

    fn tell_waiting(&mut self) {
        if !self.state.heard_anybody && !self.state.said_alone && self.began.elapsed() >= ALONE {
            self.state.said_alone = true;
            (self.newsroom)(News::Alone { seconds: ALONE.as_secs(), tried: self.contacts.clone() });
        }
        if self.state.training {
            return;
        }
        let waiting = match &self.state.task {
            Some(Task::Train { path, .. } | Task::Evaluate { path, .. }) => Some(format!("fetching the text of path {path}")),
            None => self.node.paths().into_iter().find_map(|path| self.node.waits_for(path)),
        };
        if let Some(reason) = waiting
            && self.state.waiting.as_ref() != Some(&reason)
        {
            (self.newsroom)(News::Waiting(reason.clone()));
            self.state.waiting = Some(reason);
        }
    }

    fn status(&mut self) -> PeerStatus {
        let traffic = self.network.traffic();
        let addresses = self.listening.iter().map(ToString::to_string).collect();
        PeerStatus {
            run: self.run.clone(),
            name: self.manifest.config.name.clone(),
            node: self.node.status(),
            parameter_hashes: self.parameter_hashes(),
            addresses,
            traffic: Traffic {
                blob_bytes_sent: traffic.blobs_sent,
                blob_bytes_received: traffic.blobs_received,
                contribution_bytes_received: self.state.contribution_bytes,
                average_bytes_received: self.state.average_bytes,
                message_bytes_sent: traffic.gossip_sent + traffic.control_sent,
                message_bytes_received: traffic.gossip_received + traffic.control_received,
            },
            phases_trained: self.state.phases_trained,
            scored: self.state.scored.iter().map(|path| path.0).collect(),
        }
    }

    fn parameter_hashes(&mut self) -> BTreeMap<String, String> {
        let counts = self.manifest.level_counts();
        let mut hashes = BTreeMap::new();
        let states = self.node.states();
        let current: BTreeSet<BlobHash> = states.iter().map(|(_, _, state)| state.hash).collect();
        self.state.hashes.retain(|state, _| current.contains(state));
        for (module, _, state) in states {
            let count = counts[usize::from(module.level)];
            let known = self.state.hashes.get(&state.hash).cloned();
            let hash = known.or_else(|| parameter_hash(&self.blobs, module, state, count));
            if let Some(hash) = hash {
                self.state.hashes.insert(state.hash, hash.clone());
                hashes.insert(module.to_string(), hash);
            }
        }
        hashes
    }

    pub(super) fn forget_path(&mut self, path: PathId) {
        self.state.scored.remove(&path);
    }
}

fn parameter_hash(blobs: &BlobStore, module: ModuleId, state: BlobRef, count: usize) -> Option<String> {
    let bytes = blobs.get(state.hash, state.bytes).ok()??;
    let state = crate::outer::ModuleState::decode(&bytes, module, count).ok()?;
    let mut hasher = blake3::Hasher::new();
    for value in &state.parameters {
        hasher.update(&value.to_le_bytes());
    }
    Some(hasher.finalize().to_string())
}

fn signature_holds(signed: &SignedUpdate) -> bool {
    wire::encode(&signed.update)
        .is_ok_and(|bytes| crate::network::verify(signed.update.owner, &bytes, &signed.signature))
}

fn signatures_hold(response: &Response) -> bool {
    match response {
        Response::Replay(updates) | Response::Snapshot(updates) => updates.iter().all(signature_holds),
        Response::Manifest(_) | Response::Directory(_) | Response::Refused(_) => true,
    }
}
