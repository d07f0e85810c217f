//! The aggregator: outer steps on its own thread. It adds contributions, computes averages, and applies averages to
//! states. [`router`] does the same for the router of a run that reshards.
//!
//! It reads states and frames from the store and writes results there. It only holds open sums, so its loss loses no
//! data.

pub(super) mod router;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::compress::frame;
use crate::config::OuterConfig;
use crate::failpoints::failpoint;
use crate::names::{BlobHash, BlobRef, ModuleId, Version};
pub use crate::outer::GradientNorms;
use crate::outer::recount::{NotSo, Onto, Part, check_average, measured, recount, recount_measured};
use crate::outer::{ModuleState, OpenSum, Share, step};
use crate::peer::aggregator::router::RouterRounds;
use crate::peer::manifest::Manifest;
use crate::peer::manifest::genesis;
use crate::protocol::reputation::norm_cap::capped_weight;
use crate::protocol::wire::contribution_list::{list_bytes, read_list};
use crate::protocol::wire::contributions::Contributions;
use crate::protocol::wire::message::Counted;
use crate::protocol::{Event, Outer, Portion};
use crate::store::{BlobError, BlobStore};

/// Commands that may wait. The driver sends the next one when the last is answered, so one is enough.
const MAILBOX: usize = 1;

/// Why the aggregator had to stop: this peer's disk or memory, never another peer's bytes.
#[derive(Debug, thiserror::Error)]
pub enum AggregateError {
    #[error(transparent)]
    Store(#[from] BlobError),
    #[error("module {module}: the state {state} is not in the store")]
    StateGone { module: ModuleId, state: BlobHash },
    #[error("module {module} version {target}: the sum does not hold the expected contributions")]
    Sum { module: ModuleId, target: Version },
    #[error("module {module}: {source}")]
    Encode { module: ModuleId, source: crate::compress::EncodeError },
    #[error("module {module}, the router: {reason}")]
    Router { module: ModuleId, reason: String },
    /// The state does not decode, or the own average cannot be applied.
    #[error("module {module}: {source}")]
    Apply { module: ModuleId, source: step::ApplyError },
}

/// Commands.
#[derive(Debug)]
pub enum Work {
    /// A command of the node.
    Outer(Outer),
    /// Compute the first state of a module.
    Genesis {
        module: ModuleId,
        /// The expected state.
        state: BlobRef,
    },
}

/// An average was computed here, as the owner of a module. The update can still be another owner's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OuterStep {
    pub module: ModuleId,
    /// The version that the update makes.
    pub version: Version,
    /// The outer gradients in it.
    pub norms: GradientNorms,
}

/// The answer to a command.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    /// For the node, if it needs one.
    pub event: Option<Event>,
    /// For people, if an average was computed.
    pub outer_step: Option<OuterStep>,
}

pub type Answer = Result<Answered, AggregateError>;

/// What the node is told.
type Told = Result<Option<Event>, AggregateError>;

/// The handle of the aggregator. The thread ends when it is dropped.
#[derive(Debug)]
pub struct Aggregator {
    work: mpsc::Sender<Work>,
}

fn parts(contributions: &[Counted]) -> Vec<Part> {
    contributions.iter().map(|it| Part { blob: it.blob, weight: it.weight, norm: it.norm }).collect()
}

struct Worker {
    manifest: Arc<Manifest>,
    blobs: BlobStore,
    answers: mpsc::Sender<Answer>,
    /// For each level.
    outer: Vec<OuterConfig>,
    counts: Vec<usize>,
    /// Open sums, each for a version.
    sums: BTreeMap<ModuleId, (Version, OpenSum)>,
    /// In a run that reshards.
    router: Option<RouterRounds>,
    /// The average that was just computed.
    outer_step: Option<OuterStep>,
}

impl Aggregator {
    /// Starts the thread. The receiver gives one answer for each command, in order.
    pub fn start(blobs: BlobStore, manifest: &Arc<Manifest>) -> std::io::Result<(Self, mpsc::Receiver<Answer>)> {
        let (work, mut mailbox) = mpsc::channel(MAILBOX);
        let (answers, receiver) = mpsc::channel(MAILBOX);
        let router = RouterRounds::new(manifest.clone(), blobs.clone());
        let counts = manifest.level_counts();
        let outer = (0..counts.len()).map(|level| manifest.config.outer_of(level)).collect();
        let mut worker = Worker {
            manifest: manifest.clone(),
            blobs,
            answers,
            outer,
            counts,
            sums: BTreeMap::new(),
            router,
            outer_step: None,
        };
        let span = tracing::Span::current();
        std::thread::Builder::new().name("combiner".to_owned()).spawn(move || {
            let _peer = span.enter();
            while let Some(work) = mailbox.blocking_recv() {
                failpoint("combiner");
                let told = match work {
                    Work::Outer(work) => worker.carry_out(work),
                    Work::Genesis { module, state } => worker.begin_module(module, state),
                };
                let outer_step = worker.outer_step.take();
                let answer = told.map(|event| Answered { event, outer_step });
                if worker.answers.blocking_send(answer).is_err() {
                    break;
                }
            }
        })?;
        Ok((Self { work }, receiver))
    }

    /// Sends a command. To be called when the one before is answered, so that there is space.
    pub fn begin(&self, work: Work) -> bool {
        self.work.try_send(work).is_ok()
    }
}

impl Worker {
    fn carry_out(&mut self, work: Outer) -> Told {
        let span = tracing::info_span!("module", module = %work.module());
        let _entered = span.enter();
        if let Some(mut router) = self.router.take_if(|router| router.module() == work.module()) {
            let answer = self.of_router(&mut router, work);
            self.router = Some(router);
            return answer;
        }
        match work {
            Outer::OpenSum { module, target, running } => {
                let sum = OpenSum::new(self.count(module), running);
                self.sums.insert(module, (target, sum));
                Ok(None)
            }
            Outer::Accumulate { module, target, blob, weight } => {
                let norm = self.accumulate(module, target, blob, weight)?;
                Ok(Some(Event::Accumulated { module, target, blob, norm }))
            }
            Outer::Combine { module, target, from, contributions, portion } => {
                self.put_list(&contributions)?;
                self.combine(module, target, from, &contributions, portion).map(Some)
            }
            Outer::Audit { module, id, contributions, average, portion, from } => {
                let so = self.audit((module, from), &contributions, average, portion)?;
                Ok(Some(Event::Audited { id, so }))
            }
            Outer::Inspect { module, id, blob } => {
                let bytes = self.bytes(blob)?;
                let so = bytes.map(|bytes| measured(&bytes, self.count(module), self.outer(module)).is_ok());
                Ok(Some(Event::Audited { id, so }))
            }
            Outer::Decode { module, state } => {
                let count = self.count(module);
                let so = self.bytes(state)?.is_some_and(|bytes| ModuleState::decode(&bytes, module, count).is_ok());
                Ok(Some(Event::Decoded { module, state: state.hash, so }))
            }
            Outer::ReadList { list, .. } => self.read_list(list),
            Outer::Apply { module, version, from, average, portion } => {
                let state = self.apply(module, from, average, portion)?;
                Ok(Some(Event::Applied { module, version, state }))
            }
        }
    }

    fn of_router(&self, router: &mut RouterRounds, work: Outer) -> Told {
        match work {
            Outer::OpenSum { target, .. } => {
                router.open(target);
                Ok(None)
            }
            Outer::Accumulate { module, target, blob, .. } => {
                // Scores have no norm.
                let norm = router.accumulate(target, blob)?.then_some(0);
                Ok(Some(Event::Accumulated { module, target, blob, norm }))
            }
            Outer::Combine { module, target, from, contributions, .. } => {
                self.put_list(&contributions)?;
                let (average, made) = router.combine(target, from, &contributions)?;
                let (average, state) = (self.put(&average)?, self.put(&made)?);
                Ok(Some(Event::Combined { module, target, average, state }))
            }
            Outer::Audit { id, contributions, average, .. } => {
                let so = router.audit(&contributions, average)?;
                Ok(Some(Event::Audited { id, so }))
            }
            Outer::Inspect { id, blob, .. } => {
                let so = router.scores(blob)?.map(|scores| scores.is_some());
                Ok(Some(Event::Audited { id, so }))
            }
            Outer::Decode { module, state } => {
                let so = router.is_state(state)?;
                Ok(Some(Event::Decoded { module, state: state.hash, so }))
            }
            Outer::ReadList { list, .. } => self.read_list(list),
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

    fn outer(&self, module: ModuleId) -> &OuterConfig {
        &self.outer[usize::from(module.level)]
    }

    fn count(&self, module: ModuleId) -> usize {
        self.counts[usize::from(module.level)]
    }

    fn onto(&self, module: ModuleId, from: Option<BlobRef>, portion: Portion) -> Onto {
        Onto { module, count: self.count(module), from, paths: portion.paths }
    }

    /// Adds a contribution to the sum, and returns its norm; `None` if it is invalid. Without a running norm to cap or
    /// clip it, it is only measured.
    fn accumulate(
        &mut self,
        module: ModuleId,
        target: Version,
        blob: BlobHash,
        weight: u32,
    ) -> Result<Option<u16>, AggregateError> {
        let count = self.count(module);
        let outer = &self.outer[usize::from(module.level)];
        let most = frame::max_bytes(outer.codec, count);
        let Some((open, sum)) = self.sums.get_mut(&module) else { return Ok(None) };
        if *open != target {
            return Ok(None);
        }
        let bytes = match self.blobs.get(blob, most) {
            // The blob is here for another purpose, so the offer is false.
            Err(BlobError::TooLarge { .. }) => None,
            found => found?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        match measured(&bytes, count, outer) {
            Ok(gradient) if sum.running() == 0 || outer.centred_clipping => Ok(Some(gradient.norm())),
            Ok(gradient) => {
                let norm = gradient.norm();
                let weight = capped_weight(weight, norm, sum.running(), outer.cap());
                Ok(sum.add(blob, &gradient, weight).is_ok().then_some(norm))
            }
            Err(error) => {
                tracing::warn!(%module, %blob, %error, "a contribution is not valid");
                Ok(None)
            }
        }
    }

    fn begin_module(&self, module: ModuleId, state: BlobRef) -> Told {
        let made = genesis::make(&self.manifest, &self.blobs, module)?;
        let found = made.map(|made| self.put(&made)).transpose()?.is_some_and(|made| made == state);
        Ok(Some(Event::Fetched { blob: state.hash, found }))
    }

    /// Waits for the disk, unless the driver has gone.
    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        self.blobs.put_with_retry(bytes, || !self.answers.is_closed())
    }

    /// Stores the list of an update's contributions, if it is a blob.
    fn put_list(&self, contributions: &Contributions) -> Result<(), BlobError> {
        list_bytes(contributions).map_or(Ok(()), |list| self.put(&list).map(drop))
    }

    fn read_list(&self, list: BlobRef) -> Told {
        let contributions = self.bytes(list)?.and_then(|bytes| read_list(&bytes));
        Ok(Some(Event::ListRead { list: list.hash, contributions }))
    }

    /// `None` if it is absent, or here with another size for another purpose.
    fn bytes(&self, blob: BlobRef) -> Result<Option<Vec<u8>>, BlobError> {
        match self.blobs.get(blob.hash, blob.bytes) {
            Err(BlobError::TooLarge { .. }) => Ok(None),
            found => found,
        }
    }

    fn state(&self, module: ModuleId, state: BlobRef) -> Result<Vec<u8>, AggregateError> {
        let bytes = self.blobs.get(state.hash, state.bytes)?;
        bytes.ok_or(AggregateError::StateGone { module, state: state.hash })
    }

    fn combine(
        &mut self,
        module: ModuleId,
        target: Version,
        from: BlobRef,
        contributions: &[Counted],
        portion: Portion,
    ) -> Result<Event, AggregateError> {
        let lost = AggregateError::Sum { module, target };
        let Some((_, open)) = self.sums.remove(&module).filter(|(open, _)| *open == target) else {
            return Err(lost);
        };
        let (outer, parts) = (self.outer(module), parts(contributions));
        let (sum, lengths) = match open.of(&parts) {
            Some(summed) => summed,
            None => {
                let onto = self.onto(module, Some(from), portion);
                let summed = recount_measured(&parts, &onto, outer, |blob| self.bytes(blob))?;
                summed.map_err(|_| lost)?
            }
        };
        self.outer_step = Some(OuterStep { module, version: target, norms: lengths.of(&sum) });
        let sum = sum.capped_from(portion.uncapped);
        let frame = step::combine(&sum, portion.paths, self.outer(module))
            .map_err(|source| AggregateError::Encode { module, source })?;
        let state = self.state(module, from)?;
        let share = Share::new(portion.weight, portion.full_weight);
        let made = step::apply(&state, module, self.count(module), &frame, share, self.outer(module))
            .map_err(|source| AggregateError::Apply { module, source })?;
        let (average, state) = (self.put(&frame)?, self.put(&made)?);
        Ok(Event::Combined { module, target, average, state })
    }

    /// Whether contributions make this average; `None` if a blob is absent.
    fn audit(
        &self,
        (module, from): (ModuleId, Option<BlobRef>),
        contributions: &[Counted],
        average: BlobRef,
        portion: Portion,
    ) -> Result<Option<bool>, AggregateError> {
        let Some(average) = self.bytes(average)? else { return Ok(None) };
        let onto = self.onto(module, from, portion);
        let sum = recount(&parts(contributions), &onto, self.outer(module), |blob| self.bytes(blob))?;
        let sum = sum.map(|sum| sum.capped_from(portion.uncapped));
        match sum.and_then(|sum| check_average(&sum, &average, portion.paths, self.outer(module))) {
            Ok(()) => Ok(Some(true)),
            Err(NotSo::Gone(_) | NotSo::NoState) => Ok(None),
            Err(error) => {
                tracing::warn!(%module, %error, "an update does not match its contributions");
                Ok(Some(false))
            }
        }
    }

    /// The average of another owner may be invalid. Then there is no state, which is not our error.
    fn apply(
        &self,
        module: ModuleId,
        from: BlobRef,
        average: BlobRef,
        portion: Portion,
    ) -> Result<Option<BlobRef>, AggregateError> {
        let Some(frame) = self.blobs.get(average.hash, average.bytes)? else { return Ok(None) };
        let state = self.state(module, from)?;
        let share = Share::new(portion.weight, portion.full_weight);
        match step::apply(&state, module, self.count(module), &frame, share, self.outer(module)) {
            Ok(made) => Ok(Some(self.put(&made)?)),
            Err(error) => {
                tracing::warn!(%module, %error, "an average cannot be applied");
                Ok(None)
            }
        }
    }
}
