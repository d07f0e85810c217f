//! The inference server: answers queries of other peers on a thread with its own network, which runs the ancestor or a
//! path whose modules are all here, in turn with the machine's trainers.
//!
//! The network is opened at the first query and freed after a while without queries. The driver looks up the present
//! states of a path and passes the query on; the thread answers by itself. If a state is replaced before it is read,
//! the requester is told to ask again.
//!
//! A machine says whose queries it answers, and which share of its device answers may take from its trainers. A query
//! whose requester has stopped waiting is dropped. An answer that hangs loses the device to the trainers, and no further
//! query is accepted until it has ended.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::config::{Answer, DeviceChoice, Share};
use crate::failpoints::failpoint;
use crate::grid::Grid;
use crate::names::PeerKey;
use crate::network::limits::CONTROL_TIMEOUT;
use crate::network::{NetworkHandle, RequestToken};
use crate::peer::inference::device_share::DeviceShare;
use crate::peer::inference::engine::{Engine, PathParts, bounds};
use crate::peer::manifest::Manifest;
use crate::peer::respond::respond;
use crate::peer::trainer::device_scheduler::DeviceScheduler;
use crate::protocol::Response;
use crate::query::{MAX_QUERIES, MAX_QUERIES_OF_ONE, MAX_QUERIES_OF_STRANGERS};
use crate::query::{Query, QueryLimits};
use crate::store::BlobStore;

/// Time without a query after which the network's memory is freed.
const IDLE: Duration = Duration::from_secs(120);

/// Time after which an answer hangs: three times what a requester waits.
const HANGS_AFTER: Duration = CONTROL_TIMEOUT.saturating_mul(3);

/// A query, and its reply token.
pub(in crate::peer) struct Asked {
    pub from: PeerKey,
    /// Whether it is a member's.
    pub of_member: bool,
    pub token: RequestToken,
    pub question: Query,
    /// The states of the path, or of the router.
    pub parts: PathParts,
}

/// The pending queries: those that wait, and the present one.
type Waiting = Arc<Mutex<Pending>>;

fn lock(waiting: &Waiting) -> MutexGuard<'_, Pending> {
    // Counters are consistent even if a thread panicked.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many queries of each peer, and of all that are no members, are pending.
#[derive(Default)]
struct Pending {
    of_peers: BTreeMap<PeerKey, usize>,
    of_strangers: usize,
}

impl Pending {
    /// Counts a query, or returns why it is one too many.
    fn begin(&mut self, from: PeerKey, of_member: bool) -> Result<(), String> {
        if self.of_peers.get(&from).is_some_and(|own| *own >= MAX_QUERIES_OF_ONE) {
            return Err(format!("busy: {MAX_QUERIES_OF_ONE} queries of the asking peer are pending"));
        }
        if !of_member && self.of_strangers >= MAX_QUERIES_OF_STRANGERS {
            return Err(format!("busy: {MAX_QUERIES_OF_STRANGERS} queries of peers that are no members are pending"));
        }
        *self.of_peers.entry(from).or_default() += 1;
        self.of_strangers += usize::from(!of_member);
        Ok(())
    }

    fn end(&mut self, from: PeerKey, of_member: bool) {
        if let Some(own) = self.of_peers.get_mut(&from) {
            *own = own.saturating_sub(1);
        }
        self.of_peers.retain(|_, own| *own > 0);
        self.of_strangers = self.of_strangers.saturating_sub(usize::from(!of_member));
    }
}

/// The answer that is being made, if any.
#[derive(Default)]
struct Present(Mutex<Option<Running>>);

struct Running {
    ticket: u64,
    since: Instant,
    /// Whether it was found to hang, and the device was taken from it.
    hangs: bool,
}

impl Present {
    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        // An answer is being made or not.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hangs(&self) -> bool {
        self.lock().as_ref().is_some_and(|running| running.hangs)
    }

    /// Looks for an answer that hangs, and gives its device to whoever waits for it.
    fn watch(&self, scheduler: &DeviceScheduler) {
        if let Some(running) = self.lock().as_mut()
            && !running.hangs
            && running.since.elapsed() >= HANGS_AFTER
        {
            tracing::error!(seconds = HANGS_AFTER.as_secs(), "an answer hangs: the trainers get the device");
            running.hangs = true;
            scheduler.end(running.ticket);
        }
    }
}

/// Whose queries are answered, and which share of the device answers may take.
#[derive(Clone, Copy)]
pub(in crate::peer) struct Policy {
    pub answer: Answer,
    pub share: Share,
}

/// The handle of the thread.
pub(in crate::peer) struct InferenceServer {
    pub bounds: QueryLimits,
    pub grid: Grid,
    answer: Answer,
    began: Instant,
    share: Arc<Mutex<DeviceShare>>,
    present: Arc<Present>,
    scheduler: Arc<DeviceScheduler>,
    questions: SyncSender<(Asked, Instant)>,
    waiting: Waiting,
    stops: Arc<AtomicBool>,
    /// Disconnected when the thread ends.
    ended: Mutex<mpsc::Receiver<()>>,
    thread: JoinHandle<()>,
}

impl InferenceServer {
    /// Starts the thread, which needs little memory before the first query.
    #[expect(clippy::disallowed_methods, reason = "an edge: where the clock of the device's share begins")]
    pub fn start(
        manifest: Arc<Manifest>,
        (device, policy): (DeviceChoice, Policy),
        blobs: BlobStore,
        scheduler: Arc<DeviceScheduler>,
        network: NetworkHandle,
    ) -> anyhow::Result<Self> {
        let (bounds, grid) = (bounds(&manifest)?, manifest.config.grid()?);
        let (questions, asked) = mpsc::sync_channel::<(Asked, Instant)>(MAX_QUERIES);
        let (alive, ended) = mpsc::sync_channel(0);
        let (waiting, stops, present) =
            (Waiting::default(), Arc::new(AtomicBool::new(false)), Arc::<Present>::default());
        let share = Arc::new(Mutex::new(DeviceShare::new(policy.share.into())));
        let engine = Engine::new(manifest, device, Box::new(blobs));
        let mut answering = Answering {
            engine,
            network,
            scheduler: scheduler.clone(),
            share: share.clone(),
            present: present.clone(),
            stops: stops.clone(),
            waiting: waiting.clone(),
        };
        let span = tracing::Span::current();
        let thread = std::thread::Builder::new().name("answering".to_owned()).spawn(move || {
            let _alive: SyncSender<()> = alive;
            let _peer = span.enter();
            answering.run(&asked);
        })?;
        let (answer, began, ended) = (policy.answer, Instant::now(), Mutex::new(ended));
        Ok(Self { bounds, grid, answer, began, share, present, scheduler, questions, waiting, stops, ended, thread })
    }

    /// Queues a query, or returns why not.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long a query has waited")]
    pub fn ask(&self, asked: Asked) -> Result<(), String> {
        match self.answer {
            Answer::Off => return Err("this peer answers no queries".to_owned()),
            Answer::Members if !asked.of_member => return Err("this peer answers queries of members only".to_owned()),
            Answer::Members | Answer::All => {}
        }
        if self.present.hangs() {
            return Err("busy: an earlier query hangs on this peer".to_owned());
        }
        let (from, of_member) = (asked.from, asked.of_member);
        if let Some(wait) = share(&self.share).wait(of_member, self.began.elapsed()) {
            return Err(format!(
                "busy: answers have had their share of the device; ask again in {} s",
                wait.as_secs().saturating_add(1)
            ));
        }
        lock(&self.waiting).begin(from, of_member)?;
        share(&self.share).reserve(of_member);
        self.questions.try_send((asked, Instant::now())).map_err(|error| {
            share(&self.share).settle(of_member, Duration::ZERO);
            lock(&self.waiting).end(from, of_member);
            match error {
                TrySendError::Full(_) => format!("busy: {MAX_QUERIES} queries are pending"),
                TrySendError::Disconnected(_) => "this peer answers no more queries".to_owned(),
            }
        })
    }

    /// Looks for an answer that hangs, and gives the device back to the trainers. Called about once a second.
    pub fn watch(&self) {
        self.present.watch(&self.scheduler);
    }

    /// Stops answering, and waits so long for the present query. Blocks.
    pub fn end(self, timeout: Duration) {
        let Self { questions, stops, ended, thread, .. } = self;
        stops.store(true, Ordering::SeqCst);
        drop(questions);
        let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Nothing is ever sent. A thread that hangs is left behind, and a panic has been logged.
        if ended.recv_timeout(timeout) != Err(RecvTimeoutError::Timeout) {
            drop(thread.join());
        }
    }
}

/// The thread's part.
struct Answering {
    engine: Engine,
    network: NetworkHandle,
    scheduler: Arc<DeviceScheduler>,
    share: Arc<Mutex<DeviceShare>>,
    present: Arc<Present>,
    stops: Arc<AtomicBool>,
    waiting: Waiting,
}

impl Answering {
    fn run(&mut self, asked: &mpsc::Receiver<(Asked, Instant)>) {
        loop {
            let (Asked { from, of_member, token, question, parts }, since) = match asked.recv_timeout(IDLE) {
                Ok(asked) => asked,
                Err(RecvTimeoutError::Timeout) => {
                    self.engine.rest();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut took = Duration::ZERO;
            // Later, its requester has stopped waiting.
            if since.elapsed() < CONTROL_TIMEOUT {
                let response = match self.stops.load(Ordering::SeqCst) {
                    true => Response::Refused("this peer is leaving".to_owned()),
                    false => self.answer(&question, &parts, &mut took),
                };
                respond(&self.network, token, &response);
            }
            share(&self.share).settle(of_member, took);
            lock(&self.waiting).end(from, of_member);
        }
    }

    /// Answers in turn with the trainers. Sets how long they have waited for it, which counts against the share of answers.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long an answer takes")]
    fn answer(&mut self, question: &Query, parts: &PathParts, took: &mut Duration) -> Response {
        let lease = self.scheduler.acquire();
        let since = Instant::now();
        *self.present.lock() = Some(Running { ticket: lease.ticket(), since, hangs: false });
        // The hook has reported a panic. The network is opened anew for the next query.
        let answered = catch_unwind(AssertUnwindSafe(|| {
            failpoint("answering");
            self.engine.answer(question, parts)
        }));
        let response = answered.unwrap_or_else(|_| {
            self.engine.rest();
            Response::Refused("this peer could not answer, because of a defect that its log describes".to_owned())
        });
        if lease.is_wanted() {
            *took = since.elapsed();
        }
        *self.present.lock() = None;
        response
    }
}

fn share(share: &Mutex<DeviceShare>) -> MutexGuard<'_, DeviceShare> {
    // Two numbers are consistent even if a thread panicked.
    share.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_leave_half_of_the_places_to_members() {
        let (mut pending, keys) = (Pending::default(), [1, 2, 3].map(|number| PeerKey([number; 32])));
        assert!(pending.begin(keys[0], false).is_ok() && pending.begin(keys[1], false).is_ok());
        assert!(pending.begin(keys[2], false).unwrap_err().contains("busy"));
        assert!(pending.begin(keys[2], true).is_ok() && pending.begin(keys[2], true).is_ok());
        pending.end(keys[0], false);
        assert!(pending.begin(keys[0], false).is_ok());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an answer that began long ago")]
    fn an_answer_that_hangs_loses_the_device_to_the_trainers_once() {
        let (scheduler, present) = (DeviceScheduler::default(), Present::default());
        let hanging = scheduler.acquire();
        let begins = |since| *present.lock() = Some(Running { ticket: hanging.ticket(), since, hangs: false });
        begins(Instant::now());
        present.watch(&scheduler);
        assert!(!present.hangs(), "it has just begun");
        begins(Instant::now().checked_sub(HANGS_AFTER).unwrap());
        present.watch(&scheduler);
        present.watch(&scheduler);
        assert!(present.hangs());
        // Both would wait for ever.
        drop(scheduler.acquire());
        let trainer = scheduler.acquire();
        assert!(!trainer.is_wanted());
        // When it ends after all, nobody else loses the device.
        drop(hanging);
        *present.lock() = None;
        std::thread::scope(|scope| {
            let next = scope.spawn(|| drop(scheduler.acquire()));
            while !trainer.is_wanted() {
                std::thread::yield_now();
            }
            assert!(!next.is_finished());
            drop(trainer);
        });
    }
}
