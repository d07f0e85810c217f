//! Answers others' questions about text: a thread with a network of its own, which plays the ancestor or a path whose
//! modules are all here, in turn with the machine's trainers.
//!
//! The network is opened at the first question and given back when nobody has asked for a while. The driver looks up which
//! states a path has now, hands the question over and forgets it; the thread answers by itself. A state that is replaced
//! before it is read is gone: the asker is told so, and asks again.

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

/// Without a question for so long, the network's memory is given back.
const IDLE: Duration = Duration::from_secs(120);

/// How long the question in hand may take when the peer stops.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// A question, and where the answer goes.
pub(in crate::peer) struct Asked {
    /// Who asks.
    pub from: PeerKey,
    /// Where the answer goes.
    pub token: RequestToken,
    /// What is asked.
    pub question: Query,
    /// Of the path that is to play, or the router.
    pub parts: PathParts,
}

/// How many questions of each peer are here.
type Waiting = Arc<Mutex<BTreeMap<PeerKey, usize>>>;

fn lock(waiting: &Waiting) -> MutexGuard<'_, BTreeMap<PeerKey, usize>> {
    // Counters are whole whatever happened to a thread that held them.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread, to whoever hands over questions.
pub(in crate::peer) struct InferenceServer {
    pub bounds: QueryLimits,
    pub grid: Grid,
    questions: SyncSender<Asked>,
    waiting: Waiting,
    stops: Arc<AtomicBool>,
    /// Hangs up when the thread ends.
    ended: Mutex<mpsc::Receiver<()>>,
    thread: JoinHandle<()>,
}

impl InferenceServer {
    /// Starts the thread. It takes no memory to speak of before the first question.
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

    /// Hands a question over, or says why not.
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

    /// Answers no further question, and waits for the one in hand, but not for ever: libtorch must not be torn down under
    /// it. Blocks.
    pub fn end(self) {
        let Self { questions, stops, ended, thread, .. } = self;
        stops.store(true, Ordering::SeqCst);
        drop(questions);
        let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Nothing is ever sent.
        match ended.recv_timeout(END_TIMEOUT) {
            Err(RecvTimeoutError::Timeout) => leave_behind(),
            // If it panicked, it has said so.
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
