//! The thread that generates, for all clients by turns.
//!
//! [`Engine`] is its handle: it admits requests up to a bound, and the thread's queue has room for what is admitted. The
//! thread steps all texts in generation, some tokens of each in a round, so that a long one does not hold up a short one.
//! A text whose client is gone ends at once; one whose client reads slowly waits without holding up others. A [`Backend`]
//! runs the models: [`local`] those of a collected run or a single one, [`swarm`] asks peers.

pub mod assembler;
pub mod backend;
pub mod counts;
pub mod job;
pub mod local;
mod prefixes;
mod rounds;
mod stream;
pub mod swarm;

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::serve::engine::backend::Backend;
use crate::serve::engine::counts::Counts;
use crate::serve::engine::job::{Job, Work};
use crate::serve::engine::rounds::Rounds;
use crate::serve::limits::{CHOICES, ServeLimits};
use crate::serve::request::ApiError;
use crate::serve::served_run::ServedRun;

/// Seconds after which a client should come back.
const RETRY_AFTER_S: u64 = 2;

/// The handle of the thread. Dropping the last one ends it.
pub struct Engine {
    work: Option<SyncSender<Work>>,
    places: Arc<Semaphore>,
    limits: ServeLimits,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

/// Tells the owner of the server what went wrong.
pub type Report = Box<dyn Fn(&str) + Send>;

/// A request's place among those that are answered or wait.
pub type Place = Arc<OwnedSemaphorePermit>;

impl Engine {
    /// Starts the thread, with a backend that is made there.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(
        run: Arc<ServedRun>,
        limits: ServeLimits,
        mut backend: Box<dyn Backend>,
        report: Report,
    ) -> std::io::Result<Self> {
        // Each request has at most so many jobs.
        let (work, queue) = mpsc::sync_channel(limits.requests * CHOICES);
        let places = Arc::new(Semaphore::new(limits.requests));
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        let thread = std::thread::Builder::new().name("generating".to_owned()).spawn(move || {
            Rounds::new(run, limits, report, counted).run(&mut *backend, &queue);
        })?;
        Ok(Self { work: Some(work), places, limits, counts, thread: Some(thread) })
    }

    /// A place for a request, which it holds until its last job has ended.
    ///
    /// # Errors
    /// If all are taken.
    pub fn admit(&self) -> Result<Place, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let counter = if place.is_ok() { &self.counts.admitted } else { &self.counts.refused };
        Counts::add(counter, 1);
        place.map(Arc::new).map_err(|_| ApiError::busy(self.limits.requests, RETRY_AFTER_S))
    }

    /// What was done since the start.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Requests that are answered or wait.
    pub fn requests(&self) -> usize {
        self.limits.requests - self.places.available_permits()
    }

    /// Generates for a request that is admitted.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn generate(&self, job: Job) -> Result<(), ApiError> {
        self.send(Work::Generate(Box::new(job)))
    }

    /// The features of texts, one row each.
    ///
    /// # Errors
    /// If the thread has ended, or the ancestor fails.
    pub async fn features(&self, place: Place, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.send(Work::Features { texts, reply, _place: place })?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    fn send(&self, work: Work) -> Result<(), ApiError> {
        let sent = self.work.as_ref().map(|queue| queue.try_send(work));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(ended()) }
    }
}

fn ended() -> ApiError {
    ApiError::plain(503, "unavailable", "this server is stopping; ask again when it runs")
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.work.take());
        // A panic has been logged.
        drop(self.thread.take().map(JoinHandle::join));
    }
}
