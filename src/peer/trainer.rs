//! The trainer: the one thread of a peer that touches tensors.
//!
//! A phase of a path: states from the store, H inner steps in turns with the machine's other trainers, the outer
//! gradient of each module against the replicated copy it started from, compressed with what was left from last time,
//! and all of it back to the store before anybody is told.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::manifest::Manifest;
use super::path_state::PathState;
use super::turns::Turns;
use crate::compress::compress_with_feedback;
use crate::config::MachineConfig;
use crate::model::open_device;
use crate::names::{BlobRef, ModuleId, PathId, Phase};
use crate::outer::ModuleState;
use crate::protocol::record::{Finished, StartedFrom};
use crate::seed::Seed;
use crate::store::{BlobError, BlobStore};
use crate::text::{TokenSet, Tokenizer};
use crate::training::{BatchOrder, InnerTrainer, Score, evaluate, outer_gradient};

use super::turns::TURN_MS;

/// Commands and reports that may wait: the driver has one command under way, and takes reports as they come.
const MAILBOX: usize = 1;

/// Steps between two reports of progress, at the most this often.
const REPORT: Duration = Duration::from_millis(250);

/// What the trainer is asked to do.
#[derive(Debug)]
pub enum Task {
    /// A phase of a path.
    Train {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
        /// Each module and its state, bottom first.
        start: Vec<(StartedFrom, BlobRef)>,
        /// The path's trainer after its last phase here.
        trainer: Option<BlobRef>,
    },
    /// The score of a path's checkpoint on its held-out text.
    Score {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
        /// Each module's state, bottom first.
        states: Vec<(ModuleId, BlobRef)>,
    },
    /// The score of a path on its held-out and its test text.
    Evaluate {
        /// The path.
        path: PathId,
        /// Each module's state, bottom first.
        states: Vec<(ModuleId, BlobRef)>,
    },
}

/// What the trainer has to say.
#[derive(Debug)]
pub enum Told {
    /// Steps were made.
    Step(Stepped),
    /// A phase is done.
    Trained(Finished),
    /// A checkpoint has its score, or could not be scored.
    Scored {
        /// The path.
        path: PathId,
        /// The phase.
        phase: Phase,
        /// On the shard's held-out slice.
        held_out: Option<Score>,
    },
    /// A path has its scores.
    Evaluated {
        /// The path.
        path: PathId,
        /// On the shard's held-out slice.
        held_out: Score,
        /// On the test text routed to it.
        test: Score,
    },
    /// A task failed; the peer cannot go on.
    Failed(anyhow::Error),
}

/// Where a phase stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepped {
    /// The path.
    pub path: PathId,
    /// The phase.
    pub phase: Phase,
    /// Inner steps made in it.
    pub step: u64,
    /// Mean loss of the last step, in nats a token.
    pub loss: f64,
    /// Tokens trained on since the last report.
    pub tokens: u64,
    /// Time spent computing them, turns of others not counted.
    pub seconds: f64,
}

/// Tells the trainer what to do. The thread ends, after the inner step in hand, when the handle is dropped.
#[derive(Debug)]
pub struct Trainer {
    tasks: mpsc::Sender<Task>,
}

impl Trainer {
    /// Starts the thread, which must have ended before the process does: libtorch would be torn down under an inner step.
    /// Its reports must be taken.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        manifest: Arc<Manifest>,
        machine: MachineConfig,
        blobs: BlobStore,
        turns: Arc<Turns>,
    ) -> std::io::Result<(Self, JoinHandle<()>, mpsc::Receiver<Told>)> {
        let (tasks, mut mailbox) = mpsc::channel(MAILBOX);
        let (told, reports) = mpsc::channel(MAILBOX);
        let span = tracing::Span::current();
        let thread = std::thread::Builder::new().name("trainer".to_owned()).spawn(move || {
            let _peer = span.enter();
            let mut worker = match Worker::new(manifest, &machine, blobs, turns, told.clone()) {
                Ok(worker) => worker,
                Err(error) => {
                    // The driver is gone if nobody takes it.
                    drop(told.blocking_send(Told::Failed(error)));
                    return;
                }
            };
            while let Some(task) = mailbox.blocking_recv() {
                let outcome = worker.carry_out(task).unwrap_or_else(|error| Some(Told::Failed(error)));
                let Some(outcome) = outcome else { return };
                if told.blocking_send(outcome).is_err() {
                    return;
                }
            }
        })?;
        Ok((Self { tasks }, thread, reports))
    }

    /// Hands over a task. To be called when the one before is answered; then there is room.
    pub fn begin(&self, task: Task) -> bool {
        self.tasks.try_send(task).is_ok()
    }
}

struct Worker {
    manifest: Arc<Manifest>,
    blobs: BlobStore,
    turns: Arc<Turns>,
    told: mpsc::Sender<Told>,
    inner: InnerTrainer,
    counts: Vec<usize>,
    /// The shard in hand: paths that take turns reload theirs, which is cheap against a phase.
    shard: Option<(PathId, TokenSet)>,
    token_bytes: Vec<u32>,
}

impl Worker {
    fn new(
        manifest: Arc<Manifest>,
        machine: &MachineConfig,
        blobs: BlobStore,
        turns: Arc<Turns>,
        told: mpsc::Sender<Told>,
    ) -> anyhow::Result<Self> {
        let device = open_device(machine.device)?;
        let inner = InnerTrainer::new(&manifest.config, machine, device)?;
        let counts = manifest.level_counts();
        Ok(Self { manifest, blobs, turns, told, inner, counts, shard: None, token_bytes: Vec::new() })
    }

    /// Nothing if nobody listens any more.
    fn carry_out(&mut self, task: Task) -> anyhow::Result<Option<Told>> {
        match task {
            Task::Train { path, phase, start, trainer } => self.train(path, phase, &start, trainer),
            Task::Score { path, phase, states } => {
                let held_out = self.score(path, &states);
                let held_out = held_out.inspect_err(|error| tracing::warn!(%path, %phase, %error, "not scored")).ok();
                Ok(Some(Told::Scored { path, phase, held_out }))
            }
            Task::Evaluate { path, states } => self.evaluate(path, &states).map(Some),
        }
    }

    fn read(&self, blob: BlobRef, what: &str) -> anyhow::Result<Vec<u8>> {
        let bytes = self.blobs.get(blob.hash, blob.bytes)?;
        bytes.ok_or_else(|| anyhow::anyhow!("{what} ({}) is not in the store", blob.hash))
    }

    fn tokens(&self, blob: BlobRef, what: &str) -> anyhow::Result<TokenSet> {
        let model = &self.manifest.config.model;
        Ok(TokenSet::decode(&self.read(blob, what)?, model.vocabulary, model.context + 1)?)
    }

    fn load(&mut self, states: &[(ModuleId, BlobRef)]) -> anyhow::Result<Vec<Vec<f32>>> {
        let mut levels = Vec::with_capacity(states.len());
        for (module, state) in states {
            let bytes = self.read(*state, &format!("the state of module {module}"))?;
            let count = self.counts[usize::from(module.level)];
            levels.push(ModuleState::decode(&bytes, *module, count)?.parameters);
        }
        let slices: Vec<&[f32]> = levels.iter().map(Vec::as_slice).collect();
        self.inner.load(&slices)?;
        Ok(levels)
    }

    fn train(
        &mut self,
        path: PathId,
        phase: Phase,
        start: &[(StartedFrom, BlobRef)],
        trainer: Option<BlobRef>,
    ) -> anyhow::Result<Option<Told>> {
        let span = tracing::info_span!("phase", %path, %phase);
        let _entered = span.enter();
        if self.shard.as_ref().is_none_or(|(held, _)| *held != path) {
            self.shard = Some((path, self.tokens(self.manifest.shard(path).train, "the shard")?));
        }
        let training = &self.manifest.config.training;
        let kept = trainer.map(|blob| self.blobs.get(blob.hash, blob.bytes));
        let mut state = match kept {
            Some(Ok(Some(bytes))) => PathState::decode(&bytes, &self.counts)?,
            None | Some(Ok(None) | Err(BlobError::Rotten { .. })) => {
                if trainer.is_some() {
                    tracing::error!(%path, "the trainer's state is gone from the disk: AdamW begins anew");
                }
                let taken = phase.0 * training.inner_steps * training.batch_sequences as u64;
                PathState::fresh(&self.counts, taken)
            }
            Some(Err(error)) => return Err(error.into()),
        };
        let states: Vec<_> = start.iter().map(|(from, state)| (from.module, *state)).collect();
        let before = self.load(&states)?;
        self.inner.restore(&state.inner)?;
        if !self.inner_steps(path, phase)? {
            return Ok(None);
        }
        let after = self.inner.levels()?;
        let mut offers = Vec::with_capacity(start.len());
        for (level, (from, _)) in start.iter().enumerate() {
            offers.push((*from, self.compress(&before[level], &after[level], &mut state.residuals[level])?));
        }
        state.inner = self.inner.state()?;
        let trainer = self.blobs.put(&state.encode())?;
        Ok(Some(Told::Trained(Finished { path, phase, offers, trainer })))
    }

    /// Whether the phase was finished; not if nobody listens any more.
    #[expect(clippy::disallowed_methods, reason = "an edge: how long inner steps took")]
    fn inner_steps(&mut self, path: PathId, phase: Phase) -> anyhow::Result<bool> {
        let Some((_, shard)) = &self.shard else { return Ok(false) };
        let training = &self.manifest.config.training;
        let seed = Seed::root(self.manifest.config.seed).child("batches").number(u64::from(path.0));
        let order = BatchOrder { seed, sequences: shard.len() };
        let first = training.ancestor_steps + phase.0 * training.inner_steps;
        let mut reported = Instant::now();
        let (mut step, mut tokens, mut seconds) = (0, 0, 0.0);
        while step < training.inner_steps {
            let turn = self.turns.take();
            let began = Instant::now();
            let mut loss = 0.0;
            let mut stepped_at = began;
            while step < training.inner_steps && began.elapsed() < Duration::from_millis(TURN_MS) {
                if self.told.is_closed() {
                    return Ok(false);
                }
                let report = self.inner.step(shard, &order, first + step)?;
                step += 1;
                (loss, tokens) = (report.loss, tokens + report.tokens);
                seconds += stepped_at.elapsed().as_secs_f64();
                stepped_at = Instant::now();
                if reported.elapsed() >= REPORT {
                    let stepped = Stepped { path, phase, step, loss, tokens, seconds };
                    // A report that finds the driver busy is added to the next one.
                    if self.told.try_send(Told::Step(stepped)).is_ok() {
                        (tokens, seconds) = (0, 0.0);
                    }
                    reported = Instant::now();
                }
            }
            drop(turn);
            if step == training.inner_steps {
                let stepped = Stepped { path, phase, step, loss, tokens, seconds };
                return Ok(self.told.blocking_send(Told::Step(stepped)).is_ok());
            }
        }
        Ok(true)
    }

    fn compress(&self, before: &[f32], after: &[f32], residual: &mut Vec<f32>) -> anyhow::Result<BlobRef> {
        let outer = &self.manifest.config.outer;
        let carried = outer.error_feedback.then_some(residual.as_slice());
        let gradient = outer_gradient(before, after, carried)?;
        let (frame, left) = compress_with_feedback(outer.codec, &gradient)?;
        *residual = left;
        Ok(self.blobs.put(&frame)?)
    }

    fn read_token_bytes(&mut self) -> anyhow::Result<()> {
        if self.token_bytes.is_empty() {
            let tokenizer = Tokenizer::from_json(&self.read(self.manifest.tokenizer, "the tokenizer")?)?;
            self.token_bytes = tokenizer.token_bytes_for(self.manifest.config.model.vocabulary);
        }
        Ok(())
    }

    fn score(&mut self, path: PathId, states: &[(ModuleId, BlobRef)]) -> anyhow::Result<Score> {
        self.read_token_bytes()?;
        self.load(states)?;
        let held_out = self.tokens(self.manifest.shard(path).held_out, "the held-out slice")?;
        let turns = self.turns.clone();
        let _turn = turns.take();
        let prefix = self.manifest.config.routing.prefix_tokens;
        Ok(evaluate(self.inner.model(), &held_out, prefix, &self.token_bytes)?)
    }

    fn evaluate(&mut self, path: PathId, states: &[(ModuleId, BlobRef)]) -> anyhow::Result<Told> {
        let shard = self.manifest.shard(path).clone();
        self.read_token_bytes()?;
        self.load(states)?;
        let prefix = self.manifest.config.routing.prefix_tokens;
        let turns = self.turns.clone();
        let _turn = turns.take();
        let held_out = self.tokens(shard.held_out, "the held-out slice")?;
        let test = self.tokens(shard.test, "the test text")?;
        let held_out = evaluate(self.inner.model(), &held_out, prefix, &self.token_bytes)?;
        let test = evaluate(self.inner.model(), &test, prefix, &self.token_bytes)?;
        Ok(Told::Evaluated { path, held_out, test })
    }
}

#[cfg(test)]
mod tests {
    use super::super::dense::Dense;
    use super::super::dense_trainer::DenseTrainer;
    use super::super::tiny_run::{Tiny, machine};
    use super::*;
    use crate::model::exchange;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_tokenizer_of_little_text_scores_paths_and_dense_paths() {
        let tiny = Tiny::with_vocabulary(4_096, true);
        let manifest = Arc::new(tiny.decoded.clone());
        let blob = |blob: BlobRef| tiny.blobs.get(blob.hash, blob.bytes).unwrap().unwrap();
        let tokenizer = Tokenizer::from_json(&blob(manifest.tokenizer)).unwrap();
        assert!(tokenizer.vocabulary() < 4_096, "the text has words enough");

        let turns = Arc::new(Turns::default());
        let (trainer, _thread, mut told) =
            Trainer::start(manifest.clone(), machine(), tiny.blobs.clone(), turns.clone()).unwrap();
        let modules = manifest.config.grid().unwrap().modules_of(PathId(0));
        let states = manifest.genesis.iter().filter(|(module, _)| modules.contains(module)).copied().collect();
        assert!(trainer.begin(Task::Evaluate { path: PathId(0), states }));
        let Some(Told::Evaluated { test, .. }) = told.blocking_recv() else { panic!("not evaluated") };
        assert!(test.tokens > 0 && test.bits_per_byte() > 0.0, "{test:?}");

        // Before the first update every path is the ancestor.
        let config = &manifest.config;
        let file = blob(manifest.ancestor);
        let levels = config.levels.iter().map(|level| exchange::decode_level(&file, &config.model, level).unwrap());
        let dense = Dense { levels: levels.collect(), inner: Dense::initial(config).inner };
        let text = blob(manifest.shard(PathId(0)).test);
        let text = TokenSet::decode(&text, config.model.vocabulary, config.model.context + 1).unwrap();
        let stop = AtomicBool::new(false);
        let mut trainer = DenseTrainer::new(config, &machine(), &turns, &stop).unwrap();
        assert_eq!(trainer.score(&dense, &text, &tokenizer.token_bytes_for(4_096)).unwrap(), test);
    }
}
