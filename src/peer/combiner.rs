//! The outer arithmetic, on a thread of its own: sums of contributions, averages, and the states they make.
//!
//! It works on blobs alone: states and frames come from the store and go back there, so that it keeps nothing but the
//! open sums, and nothing is lost with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::manifest::Manifest;
use super::router_rounds::RouterRounds;
use crate::compress::frame;
use crate::config::OuterConfig;
use crate::names::{BlobHash, BlobRef, ModuleId, Version};
use crate::outer::{ExactSum, Share, step};
use crate::protocol::message::Counted;
use crate::protocol::{Event, Outer, Portion};
use crate::store::{BlobError, BlobStore};

/// Commands that may wait. The driver sends the next one when the last is answered, so one is enough.
const MAILBOX: usize = 1;

/// Why the combiner had to give up: this peer's disk or memory, never another peer's bytes.
#[derive(Debug, thiserror::Error)]
pub enum CombineError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] BlobError),
    /// A state that should be here is not.
    #[error("module {module}: the state {state} is not in the store")]
    StateGone {
        /// The module.
        module: ModuleId,
        /// Its state's hash.
        state: BlobHash,
    },
    /// The sum does not hold what it should.
    #[error("module {module} version {target}: the sum does not hold the contributions it should")]
    Sum {
        /// The module.
        module: ModuleId,
        /// The version.
        target: Version,
    },
    /// The average cannot be compressed.
    #[error("module {module}: {source}")]
    Encode {
        /// The module.
        module: ModuleId,
        /// Why.
        source: crate::compress::EncodeError,
    },
    /// What the router is made of does not read.
    #[error("module {module}, the router: {reason}")]
    Router {
        /// The module.
        module: ModuleId,
        /// Why.
        reason: String,
    },
    /// The state does not decode, or the own average does not apply.
    #[error("module {module}: {source}")]
    Apply {
        /// The module.
        module: ModuleId,
        /// Why.
        source: step::ApplyError,
    },
}

/// What came of a command; nothing of one that needs no answer.
pub type Answer = Result<Option<Event>, CombineError>;

/// Tells the combiner what to do. The thread ends when the handle is dropped.
#[derive(Debug)]
pub struct Combiner {
    work: mpsc::Sender<Outer>,
}

struct Worker {
    blobs: BlobStore,
    answers: mpsc::Sender<Answer>,
    outer: OuterConfig,
    counts: Vec<usize>,
    sums: BTreeMap<ModuleId, (Version, ExactSum)>,
    /// Where the text is shared out anew.
    router: Option<RouterRounds>,
}

impl Combiner {
    /// Starts the thread. Answers come out of the receiver, one for each command, in order.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(blobs: BlobStore, manifest: &Arc<Manifest>) -> std::io::Result<(Self, mpsc::Receiver<Answer>)> {
        let (work, mut mailbox) = mpsc::channel(MAILBOX);
        let (answers, receiver) = mpsc::channel(MAILBOX);
        let router = RouterRounds::new(manifest.clone(), blobs.clone());
        let (outer, counts) = (manifest.config.outer.clone(), manifest.level_counts());
        let mut worker = Worker { blobs, answers, outer, counts, sums: BTreeMap::new(), router };
        let span = tracing::Span::current();
        std::thread::Builder::new().name("combiner".to_owned()).spawn(move || {
            let _peer = span.enter();
            while let Some(work) = mailbox.blocking_recv() {
                let answer = worker.carry_out(work);
                if worker.answers.blocking_send(answer).is_err() {
                    break;
                }
            }
        })?;
        Ok((Self { work }, receiver))
    }

    /// Hands over a command. To be called when the one before is answered; then there is room.
    pub fn begin(&self, work: Outer) -> bool {
        self.work.try_send(work).is_ok()
    }
}

impl Worker {
    fn carry_out(&mut self, work: Outer) -> Answer {
        let span = tracing::info_span!("module", module = %work.module());
        let _entered = span.enter();
        if let Some(mut router) = self.router.take_if(|router| router.module() == work.module()) {
            let answer = self.of_router(&mut router, work);
            self.router = Some(router);
            return answer;
        }
        match work {
            Outer::OpenSum { module, target } => {
                let sum = ExactSum::of_run(self.count(module), &self.outer);
                self.sums.insert(module, (target, sum));
                Ok(None)
            }
            Outer::Accumulate { module, target, blob, weight } => {
                let valid = self.accumulate(module, target, blob, weight)?;
                Ok(Some(Event::Accumulated { module, target, blob, valid }))
            }
            Outer::Combine { module, target, from, contributions, portion } => {
                self.combine(module, target, from, &contributions, portion).map(Some)
            }
            Outer::Apply { module, version, from, average, portion } => {
                let state = self.apply(module, from, average, portion)?;
                Ok(Some(Event::Applied { module, version, state }))
            }
        }
    }

    fn of_router(&self, router: &mut RouterRounds, work: Outer) -> Answer {
        match work {
            Outer::OpenSum { target, .. } => {
                router.open(target);
                Ok(None)
            }
            Outer::Accumulate { module, target, blob, .. } => {
                let valid = router.accumulate(target, blob)?;
                Ok(Some(Event::Accumulated { module, target, blob, valid }))
            }
            Outer::Combine { module, target, from, contributions, .. } => {
                let (average, made) = router.combine(target, from, &contributions)?;
                let (average, state) = (self.put(&average)?, self.put(&made)?);
                Ok(Some(Event::Combined { module, target, average, state }))
            }
            Outer::Apply { module, version, from, average, .. } => {
                let made = match self.blobs.get(average.hash, average.bytes)? {
                    Some(average) => router.apply(from, &average)?,
                    None => None,
                };
                let state = made.map(|made| self.put(&made)).transpose()?;
                Ok(Some(Event::Applied { module, version, state }))
            }
        }
    }

    fn count(&self, module: ModuleId) -> usize {
        self.counts[usize::from(module.level)]
    }

    /// Whether the contribution is valid and now in the sum.
    fn accumulate(
        &mut self,
        module: ModuleId,
        target: Version,
        blob: BlobHash,
        weight: u32,
    ) -> Result<bool, CombineError> {
        let count = self.count(module);
        let most = frame::max_bytes(self.outer.codec, count);
        let Some((open, sum)) = self.sums.get_mut(&module) else { return Ok(false) };
        if *open != target {
            return Ok(false);
        }
        let bytes = match self.blobs.get(blob, most) {
            // Here for another purpose: whoever offers it lies.
            Err(BlobError::TooLarge { .. }) => None,
            found => found?,
        };
        let Some(bytes) = bytes else { return Ok(false) };
        match frame::decode_as(self.outer.codec, &bytes, count) {
            Ok(values) => Ok(sum.add(&values, weight).is_ok()),
            Err(error) => {
                tracing::warn!(%module, %blob, %error, "a contribution is not valid");
                Ok(false)
            }
        }
    }

    /// Waits for the disk, unless nobody listens any more.
    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        self.blobs.put_patiently(bytes, || !self.answers.is_closed())
    }

    fn state(&self, module: ModuleId, state: BlobRef) -> Result<Vec<u8>, CombineError> {
        let bytes = self.blobs.get(state.hash, state.bytes)?;
        bytes.ok_or(CombineError::StateGone { module, state: state.hash })
    }

    fn combine(
        &mut self,
        module: ModuleId,
        target: Version,
        from: BlobRef,
        contributions: &[Counted],
        portion: Portion,
    ) -> Result<Event, CombineError> {
        let weight: u64 = contributions.iter().map(|counted| u64::from(counted.weight)).sum();
        let sum = self.sums.remove(&module).filter(|(open, sum)| *open == target && sum.weight() == weight);
        let Some((_, sum)) = sum else { return Err(CombineError::Sum { module, target }) };
        let frame = step::combine(&sum, portion.paths, &self.outer)
            .map_err(|source| CombineError::Encode { module, source })?;
        let state = self.state(module, from)?;
        let share = Share::new(portion.weight, portion.full_weight);
        let made = step::apply(&state, module, self.count(module), &frame, share, &self.outer)
            .map_err(|source| CombineError::Apply { module, source })?;
        let (average, state) = (self.put(&frame)?, self.put(&made)?);
        Ok(Event::Combined { module, target, average, state })
    }

    /// Another's average may be broken: then there is no state, and no error of ours.
    fn apply(
        &self,
        module: ModuleId,
        from: BlobRef,
        average: BlobRef,
        portion: Portion,
    ) -> Result<Option<BlobRef>, CombineError> {
        let Some(frame) = self.blobs.get(average.hash, average.bytes)? else { return Ok(None) };
        let state = self.state(module, from)?;
        let share = Share::new(portion.weight, portion.full_weight);
        match step::apply(&state, module, self.count(module), &frame, share, &self.outer) {
            Ok(made) => Ok(Some(self.put(&made)?)),
            Err(error) => {
                tracing::warn!(%module, %error, "an average cannot be applied");
                Ok(None)
            }
        }
    }
}
