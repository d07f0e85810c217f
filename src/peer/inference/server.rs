//! The inference server: answers queries of other peers on a thread with its own network, which runs the ancestor or a
//! path whose modules are all here, in turn with the machine's trainers.
//!
//! The network is opened at the first query and freed after a while without queries. The driver looks up the present
//! states of a path and passes the query on; the thread answers by itself. If a state is replaced before it is read,
//! the requester is told to ask again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::config::DeviceChoice;
use crate::grid::Grid;
use crate::names::PeerKey;
use crate::network::{NetworkHandle, RequestToken};
use crate::peer::inference::engine::{Engine, PathParts, bounds};
use crate::peer::manifest::Manifest;
use crate::peer::respond::respond;
use crate::peer::trainer::device_scheduler::DeviceScheduler;
use crate::peer::trainer::thread::leave_behind;
use crate::protocol::Response;
use crate::query::{MAX_QUERIES, MAX_QUERIES_OF_ONE};
use crate::query::{Query, QueryLimits};
use crate::store::BlobStore;

/// Time without a query after which the network's memory is freed.
const IDLE: Duration = Duration::from_secs(120);

/// Time-out of the present query when the peer stops.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// A query, and its reply token.
pub(in crate::peer) struct Asked {
    pub from: PeerKey,
    pub token: RequestToken,
    pub question: Query,
    /// The states of the path, or of the router.
    pub parts: PathParts,
}

/// Pending queries of each peer.
type Waiting = Arc<Mutex<BTreeMap<PeerKey, usize>>>;

fn lock(waiting: &Waiting) -> MutexGuard<'_, BTreeMap<PeerKey, usize>> {
    // Counters are consistent even if a thread panicked.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of the thread.
pub(in crate::peer) struct InferenceServer {
    pub bounds: QueryLimits,
    pub grid: Grid,
    questions: SyncSender<Asked>,
    waiting: Waiting,
    stops: Arc<AtomicBool>,
    /// Disconnected when the thread ends.
    ended: Mutex<mpsc::Receiver<()>>,
    thread: JoinHandle<()>,
}

impl InferenceServer {
    /// Starts the thread, which needs little memory before the first query.
    pub fn start(
        manifest: Arc<Manifest>,
        device: DeviceChoice,
        blobs: BlobStore,
        scheduler: Arc<DeviceScheduler>,
        network: NetworkHandle,
    ) -> anyhow::Result<Self> {
        let (bounds, grid) = (bounds(&manifest)?, manifest.config.grid()?);
        let (questions, asked) = mpsc::sync_channel::<Asked>(MAX_QUERIES);
        let (alive, ended) = mpsc::sync_channel(0);
        let (waiting, stops) = (Waiting::default(), Arc::new(AtomicBool::new(false)));
        let mut engine = Engine::new(manifest, device, Box::new(blobs));
        let (done_with, stopping, span) = (waiting.clone(), stops.clone(), tracing::Span::current());
        let thread = std::thread::Builder::new().name("answering".to_owned()).spawn(move || {
            let _alive: SyncSender<()> = alive;
            let _peer = span.enter();
            loop {
                let Asked { from, token, question, parts } = match asked.recv_timeout(IDLE) {
                    Ok(asked) => asked,
                    Err(RecvTimeoutError::Timeout) => {
                        engine.rest();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let response = match stopping.load(Ordering::SeqCst) {
                    true => Response::Refused("this peer is leaving".to_owned()),
                    false => {
                        let _lease = scheduler.acquire();
                        engine.answer(&question, &parts)
                    }
                };
                respond(&network, token, &response);
                release(&done_with, from);
            }
        })?;
        Ok(Self { bounds, grid, questions, waiting, stops, ended: Mutex::new(ended), thread })
    }

    /// Queues a query, or returns why not.
    pub fn ask(&self, asked: Asked) -> Result<(), String> {
        let from = asked.from;
        {
            let mut waiting = lock(&self.waiting);
            let own = waiting.entry(from).or_default();
            if *own >= MAX_QUERIES_OF_ONE {
                return Err(format!("busy: {MAX_QUERIES_OF_ONE} queries of the asking peer are pending"));
            }
            *own += 1;
        }
        self.questions.try_send(asked).map_err(|error| {
            release(&self.waiting, from);
            match error {
                TrySendError::Full(_) => format!("busy: {MAX_QUERIES} queries are pending"),
                TrySendError::Disconnected(_) => "this peer answers no more queries".to_owned(),
            }
        })
    }

    /// Stops answering, and waits for the present query up to a time-out: libtorch must not be torn down during it.
    /// Blocks.
    pub fn end(self) {
        let Self { questions, stops, ended, thread, .. } = self;
        stops.store(true, Ordering::SeqCst);
        drop(questions);
        let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Nothing is ever sent.
        match ended.recv_timeout(END_TIMEOUT) {
            Err(RecvTimeoutError::Timeout) => leave_behind(),
            // A panic has been logged.
            _ => drop(thread.join()),
        }
    }
}

fn release(waiting: &Waiting, from: PeerKey) {
    let mut waiting = lock(waiting);
    if let Some(own) = waiting.get_mut(&from) {
        *own = own.saturating_sub(1);
    }
    waiting.retain(|_, own| *own > 0);
}
