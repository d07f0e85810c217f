//! The driver: one task that owns the protocol's node. Everything that happens becomes an event, the node handles the
//! event, and the driver carries out the actions that the node returns.
//!
//! - *Events in.* [`handle`]: commands of this process, and of others through the [`control_socket`]; `inbound`:
//!   messages, requests and results of the network; `tasks`: reports of the trainers; the answers of the aggregator; the
//!   node's own deadlines.
//! - *The node.* Only `Driver::settle` calls it: an event when no action is left, then its actions, in order.
//! - *Actions out.* `actions`: one match over all of them; `tasks`: each trainer gets one task at a time; `blobs`:
//!   needed blobs are computed or fetched; [`events`]: reports to the program that started the peer.
//! - *Outside the node.* `access`: which peers are heard at all; `amending`: what the run's creator changes; `inference`: queries about text; `redial`: lost
//!   connections; `text_replication`: text that is stored for others; [`status`]; `disk_pressure`: while the disk
//!   rejects writes, the node gets no event.
//!
//! The trainers own tensors, the aggregator sums, the network sockets, the store files. Each worker has at most one
//! pending command, so no queue between it and the driver can fill up in both directions.

pub(super) mod access;
pub(super) mod actions;
pub(super) mod address_book;
pub(super) mod amending;
pub(super) mod blobs;
pub mod control_socket;
pub(super) mod disk_pressure;
pub mod events;
pub mod handle;
pub(super) mod inbound;
pub(super) mod inference;
pub(super) mod redial;
pub mod status;
pub(super) mod tasks;
pub(super) mod text_replication;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::clock::Millis;
use crate::config;
use crate::failpoints::failpoint;
use crate::names::{BlobHash, PathId};
use crate::network::{Identity, Multiaddr, NetworkEvents, NetworkHandle};
use crate::peer::access::claims::Claims;
use crate::peer::aggregator::{Aggregator, Answer, Work};
use crate::peer::boot_clock::BootClock;
use crate::peer::driver::access::AccessState;
use crate::peer::driver::address_book::AddressBook;
use crate::peer::driver::blobs::Fetches;
use crate::peer::driver::disk_pressure::PendingWrites;
use crate::peer::driver::events::EventSink;
use crate::peer::driver::handle::Command;
use crate::peer::driver::inbound::Requests;
use crate::peer::driver::redial::Redial;
use crate::peer::driver::status::Observed;
use crate::peer::driver::tasks::TrainerTasks;
use crate::peer::driver::text_replication::TextReplication;
use crate::peer::inference::server::InferenceServer;
use crate::peer::manifest::Manifest;
use crate::peer::trainer::devices::Devices;
use crate::protocol::{Action, Event, Node};
use crate::store::{BlobStore, StoreHandle};

/// Why a peer had to stop.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    #[error(transparent)]
    Disk(#[from] crate::store::DiskError),
    #[error(transparent)]
    Combine(#[from] crate::peer::aggregator::AggregateError),
    #[error("a record cannot be encoded for the journal: {0}")]
    Record(#[from] crate::protocol::wire::encoding::WireError),
    /// A blob of another peer could not be stored, and never will be.
    #[error(transparent)]
    Fetched(std::io::Error),
    #[error(transparent)]
    Training(anyhow::Error),
    /// The text of a path is gone, and no other peer sends it.
    #[error("the text of path {0} is not in the store, and this run sends no text; join with --corpus and a new --dir")]
    TextGone(PathId),
    /// Another machine runs with a copy of this peer's key, and has started later.
    #[error("another machine runs with this peer's identity and has started later; this peer has stopped")]
    CopiedIdentity,
    #[error("the trainer was restarted {0} times without progress; pathswarm.log in the run's folder says why")]
    TrainerStuck(u32),
    #[error("the trainer cannot be restarted: {0}")]
    TrainerThread(std::io::Error),
    #[error("a defect: the {0} has stopped unexpectedly; please report it with pathswarm.log in the run's folder")]
    Worker(&'static str),
}

/// Time-out of the present inner step, and of the present answer, when the peer stops.
pub(super) const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// The node, and everything that carries out its actions.
pub(super) struct Driver {
    pub(super) node: Node,
    pub(super) manifest: Arc<Manifest>,
    /// Whom this machine tells the peer's status.
    pub(super) tell_status_to: config::Answer,
    pub(super) manifest_bytes: Arc<Vec<u8>>,
    /// The peer's folder.
    pub(super) folder: PathBuf,
    pub(super) run: String,
    pub(super) claims: Claims,
    pub(super) identity: Identity,
    pub(super) store: StoreHandle,
    pub(super) blobs: BlobStore,
    pub(super) network: NetworkHandle,
    pub(super) devices: Devices,
    pub(super) aggregator: Aggregator,
    pub(super) inference: InferenceServer,
    pub(super) event_sink: EventSink,
    /// Blobs of the run itself, which stay.
    pub(super) pinned: BTreeSet<BlobHash>,
    /// Addresses that were tried at the start.
    pub(super) contacts: Vec<String>,
    pub(super) began: BootClock,
    /// Events in order.
    pub(super) events: VecDeque<Event>,
    /// Actions of the node in order.
    pub(super) actions: VecDeque<Action>,
    pub(super) pending_writes: PendingWrites,
    pub(super) redial: Redial,
    pub(super) text_replication: TextReplication,
    /// Addresses of other peers.
    pub(super) addresses: AddressBook,
    /// Addresses of this peer.
    pub(super) listening: Vec<Multiaddr>,
    /// Size of the journal when it was last rewritten.
    pub(super) compacted_bytes: u64,
    /// Parameters in a module of each level.
    pub(super) level_counts: Vec<usize>,
    pub(super) requests: Requests,
    pub(super) fetches: Fetches,
    pub(super) tasks: TrainerTasks,
    pub(super) observed: Observed,
    pub(super) access: AccessState,
    pub(super) departure: Departure,
    /// Commands that the aggregator has not begun.
    pub(super) work: VecDeque<Work>,
    pub(super) aggregating: bool,
}

/// How the peer ends.
pub(super) struct Departure {
    /// Whether it has left the swarm.
    pub(super) gone: bool,
    /// When leaving has taken long enough.
    leaves_at: Option<Millis>,
    /// How long the compute threads may take to end.
    ends_within: Duration,
}

impl Default for Departure {
    fn default() -> Self {
        Self { gone: false, leaves_at: None, ends_within: ENDS_WITHIN }
    }
}

/// The inputs of the driver.
pub(super) struct Inputs {
    pub(super) network: NetworkEvents,
    pub(super) aggregator: mpsc::Receiver<Answer>,
    pub(super) commands: mpsc::Receiver<Command>,
}

impl Driver {
    /// Removes blobs that a crash or an earlier version left behind.
    pub(super) fn remove_unreferenced_blobs(&self) -> Result<(), PeerError> {
        let mut retained = self.node.referenced_blobs();
        retained.extend(&self.pinned);
        let removed = self.blobs.remove_all_but(&retained)?;
        if removed > 0 {
            tracing::info!(removed, "removed blobs that nothing refers to");
        }
        Ok(())
    }

    pub(super) fn now(&self) -> Millis {
        Millis(self.began.elapsed().as_millis() as u64)
    }

    /// A suspended node has no deadlines, but failed writes have.
    fn until_deadline_ms(&self) -> Option<u64> {
        let deadline = if self.is_suspended() { self.pending_writes.again_at() } else { self.node.next_deadline() };
        let deadline = self.departure.leaves_at.into_iter().chain(deadline).min();
        deadline.map(|deadline| deadline.since(self.now()))
    }

    /// Runs until it is told to stop or fails. The compute threads have then ended.
    pub(super) async fn run(mut self, inputs: Inputs) -> Result<(), PeerError> {
        self.tell_amendment();
        let outcome = self.event_loop(inputs).await;
        let (devices, inference, timeout) = (self.devices, self.inference, self.departure.ends_within);
        let end = move || {
            devices.end(timeout);
            inference.end(timeout);
        };
        // A panic of the thread has been reported.
        drop(tokio::task::spawn_blocking(end).await);
        outcome
    }

    async fn event_loop(&mut self, mut inputs: Inputs) -> Result<(), PeerError> {
        let mut disk_pressure = self.blobs.disk_pressure().watch();
        let mut asked_to_stop = None;
        loop {
            failpoint("driver");
            self.settle().await?;
            // Before all inputs: a flood of messages must not delay heartbeats.
            if self.until_deadline_ms() == Some(0) {
                self.tick().await?;
                self.settle().await?;
            }
            self.reconnect();
            self.maintain_access().await;
            self.remember_new_members().await;
            self.inference.watch();
            // To other peers, a suspended peer is gone already.
            if self.departure.gone || (asked_to_stop.is_some() && self.is_suspended()) {
                if let Some((reply, asked_at)) = asked_to_stop {
                    tracing::info!(took_ms = self.now().since(asked_at), "left the swarm");
                    // The requester may be gone.
                    let _ = oneshot::Sender::send(reply, ());
                }
                return Ok(());
            }
            let tick = tokio::time::sleep(Duration::from_millis(self.until_deadline_ms().unwrap_or(1_000)));
            tokio::select! {
                biased;
                command = inputs.commands.recv() => match command {
                    Some(Command::Status(reply)) => {
                        let status = self.status();
                        // The requester may be gone.
                        drop(reply.send(status));
                    }
                    Some(Command::StatusWithHashes(reply)) => self.reply_with_hashes(reply),
                    Some(Command::Config(reply)) => {
                        // The requester may be gone.
                        drop(reply.send(self.manifest.config.clone()));
                    }
                    Some(Command::Contacts(reply)) => {
                        // The requester may be gone.
                        drop(reply.send(self.addresses.addresses().cloned().collect()));
                    }
                    Some(Command::Order(order, reply)) => {
                        let done = self.carry_out_order(order);
                        // The requester may be gone.
                        drop(reply.send(done));
                    }
                    Some(Command::Stop(reply, timeout)) => {
                        self.events.push_back(Event::Leave);
                        self.departure.leaves_at = Some(self.now() + timeout.as_millis() as u64);
                        self.departure.ends_within = self.departure.ends_within.min(timeout);
                        asked_to_stop = Some((reply, self.now()));
                    }
                    None => return Ok(()),
                },
                (device, told) = self.devices.next_report() => match told {
                    Some(told) => self.handle_trainer_report(device, told)?,
                    None => self.trainer_is_dead(device)?,
                },
                answer = inputs.aggregator.recv() => {
                    self.aggregating = false;
                    let answer = answer.ok_or(PeerError::Worker("combiner"))??;
                    self.count_outer_step(answer.outer_step);
                    match answer.event {
                        Some(Event::Fetched { blob, found }) if self.fetch_in_place(blob, found) => {}
                        event => self.events.extend(event),
                    }
                }
                event = inputs.network.next() => {
                    self.handle_network_event(event.ok_or(PeerError::Worker("network"))?)?;
                }
                // It ends only with the store, which ends later.
                _ = disk_pressure.changed() => {}
                () = tick => {}
            }
        }
    }

    async fn tick(&mut self) -> Result<(), PeerError> {
        let now = self.now();
        if self.is_suspended() {
            return self.retry_writes().await;
        }
        if self.departure.leaves_at.take_if(|at| *at <= now).is_some() {
            tracing::warn!("the time to leave is over: other peers take over the rest when they notice");
            // The second time, it goes at once.
            self.events.push_back(Event::Leave);
        }
        self.replicate_text()?;
        self.events.push_back(Event::Tick);
        Ok(())
    }

    /// Lets the node handle all events, and the workers begin their work.
    async fn settle(&mut self) -> Result<(), PeerError> {
        while !self.is_suspended() {
            if let Some(action) = self.actions.pop_front() {
                self.carry_out(action).await?;
            } else if let Some(event) = self.events.pop_front() {
                let actions = self.node.handle(self.now(), event);
                self.actions.extend(actions);
            } else {
                self.feed_aggregator();
                self.feed_trainers()?;
                if self.events.is_empty() {
                    break;
                }
            }
        }
        self.report_disk_pressure();
        self.report_waiting();
        Ok(())
    }

    fn feed_aggregator(&mut self) {
        if !self.aggregating
            && let Some(work) = self.work.pop_front()
        {
            self.aggregating = self.aggregator.begin(work);
        }
    }

    pub(super) fn queue_work(&mut self, work: Work) {
        self.work.push_back(work);
    }
}
