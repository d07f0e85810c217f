//! What the thread does: it begins what waits, and steps what has begun, round by round.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use crate::names::PathId;
use crate::peer::inference::client::AskError;
use crate::query::QueriedModel;
use crate::seed::Seed;
use crate::serve::engine::Report;
use crate::serve::engine::backend::{Backend, Text};
use crate::serve::engine::counts::Counts;
use crate::serve::engine::job::{Ending, Event, Happening, Job, Work};
use crate::serve::engine::prefixes::Prefixes;
use crate::serve::engine::stream::{Rerouting, Stream};
use crate::serve::limits::ServeLimits;
use crate::serve::request::ApiError;
use crate::serve::served_run::{NamedModel, ServedRun};
use crate::training::Sampler;

/// Time between two looks at clients that read slowly.
const SLOW: Duration = Duration::from_millis(10);

#[expect(clippy::disallowed_methods, reason = "an edge: how long a choice may take")]
fn now() -> Instant {
    Instant::now()
}

/// What is generated, and what waits.
pub(super) struct Rounds {
    run: Arc<ServedRun>,
    limits: ServeLimits,
    waiting: VecDeque<Work>,
    streams: Vec<Stream>,
    prefixes: Prefixes,
    report: Report,
    counts: Arc<Counts>,
}

impl Rounds {
    pub fn new(run: Arc<ServedRun>, limits: ServeLimits, report: Report, counts: Arc<Counts>) -> Self {
        let prefixes = Prefixes::new(limits.prefix_bytes);
        Self { run, limits, waiting: VecDeque::new(), streams: Vec::new(), prefixes, report, counts }
    }

    /// Until no handle is left.
    pub fn run(&mut self, backend: &mut dyn Backend, queue: &Receiver<Work>) {
        loop {
            if self.waiting.is_empty() && self.streams.is_empty() {
                match queue.recv() {
                    Ok(work) => self.waiting.push_back(work),
                    Err(_) => return,
                }
            }
            loop {
                match queue.try_recv() {
                    Ok(work) => self.waiting.push_back(work),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            // One in a round, so that those that have begun go on.
            if self.streams.len() < self.limits.at_once
                && let Some(work) = self.waiting.pop_front()
            {
                self.begin(backend, work);
            }
            let stepped = self.round(backend);
            if !stepped && !self.streams.is_empty() {
                match queue.recv_timeout(SLOW) {
                    Ok(work) => self.waiting.push_back(work),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        }
    }

    /// One step of each text that can go on. Returns whether there was one.
    fn round(&mut self, backend: &mut dyn Backend) -> bool {
        let begun = now();
        self.streams.iter_mut().for_each(|stream| stream.flush(begun));
        for over in self.streams.extract_if(.., |stream| stream.is_over(begun)) {
            self.prefixes.keep(over.model, over.text.decoding);
        }
        let mut models: Vec<QueriedModel> =
            self.streams.iter().filter(|stream| stream.is_ready()).map(|stream| stream.model).collect();
        models.sort_unstable();
        models.dedup();
        let quantum = if models.len() > 1 { backend.quantum() } else { 1 };
        for model in &models {
            for _ in 0..quantum {
                if !self.step(backend, *model) {
                    break;
                }
            }
        }
        self.reroute(backend);
        !models.is_empty()
    }

    /// One step of the texts on a model.
    fn step(&mut self, backend: &mut dyn Backend, model: QueriedModel) -> bool {
        let is_due = |stream: &&mut Stream| stream.is_ready() && stream.model == model && stream.text.left > 0;
        let mut due: Vec<&mut Stream> = self.streams.iter_mut().filter(is_due).collect();
        if due.is_empty() {
            return false;
        }
        let results = {
            let mut texts: Vec<&mut Text> = due.iter_mut().map(|stream| &mut stream.text).collect();
            backend.step(model, &mut texts)
        };
        let at = now();
        for (stream, result) in due.into_iter().zip(results) {
            match result {
                Ok(next) => {
                    Counts::add(&self.counts.tokens, next.tokens.len());
                    stream.take(next, &self.run.tokenizer, at);
                }
                Err(error) => {
                    Counts::add(&self.counts.failed, 1);
                    stream.fail(explain(&error, &self.report));
                }
            }
            stream.flush(at);
        }
        true
    }

    /// Chooses the path again for texts that are due.
    fn reroute(&mut self, backend: &mut dyn Backend) {
        let reach = self.run.config.routing.prefix_tokens;
        for stream in &mut self.streams {
            let (Some(every), QueriedModel::Path(before)) = (stream.rerouting.every, stream.model) else { continue };
            if !stream.is_ready() || stream.text.left > 0 {
                continue;
            }
            let tokens = stream.text.decoding.tokens();
            match backend.ranking(&tokens[tokens.len().saturating_sub(reach)..], Some(before)) {
                Ok(ranking) => {
                    let path =
                        ranking.into_iter().find(|path| !stream.rerouting.without.contains(path)).unwrap_or(before);
                    if path != before {
                        backend.moves(before, path, &mut stream.text.decoding);
                    }
                    stream.model = QueriedModel::Path(path);
                    stream.text.left = every.min(stream.rerouting.later);
                    stream.rerouting.later -= stream.text.left;
                }
                Err(error) => stream.fail(explain(&error, &self.report)),
            }
        }
    }

    fn begin(&mut self, backend: &mut dyn Backend, work: Work) {
        match work {
            Work::Features { texts, reply, .. } => {
                if !reply.is_closed() {
                    let rows = backend.features(&texts).map_err(|error| explain(&error, &self.report));
                    // Its client may be gone.
                    drop(reply.send(rows));
                }
            }
            Work::Generate(job) if job.events.is_closed() => {}
            Work::Generate(job) => {
                let job = self.fitting(*job);
                let choices = job.first_choice..job.first_choice + job.numbers.len();
                let events = job.events.clone();
                if let Err(error) = self.begin_job(backend, job) {
                    let what = Happening::Fails(explain(&error, &self.report));
                    // A client with a full queue sees the end of it.
                    choices.for_each(|choice| drop(events.try_send(Event { choice, what: what.clone() })));
                }
            }
        }
    }

    /// As many choices of a job as may be generated now; the others wait.
    fn fitting(&mut self, job: Job) -> Job {
        let room = self.limits.at_once.saturating_sub(self.streams.len()).max(1);
        if job.numbers.len() <= room {
            return job;
        }
        let (first, at) = (job.first_choice, job.numbers.start + room);
        let later = Job { first_choice: first + room, numbers: at..job.numbers.end, ..job.clone() };
        self.waiting.push_front(Work::Generate(Box::new(later)));
        Job { numbers: job.numbers.start..at, ..job }
    }

    fn begin_job(&mut self, backend: &mut dyn Backend, job: Job) -> anyhow::Result<()> {
        let (model, ranking) = self.model_of(backend, &job)?;
        let scores = match job.score_prompt {
            None => None,
            Some(top) => {
                let mut scores = vec![None];
                if job.prompt.len() > 1 {
                    scores.extend(backend.scores(model, &job.prompt, top)?.into_iter().map(Some));
                }
                Some(Arc::from(scores))
            }
        };
        let (mut text, reused) = self.prefixes.begin(model, job.prompt)?;
        Counts::add(&self.counts.reused, reused);
        if job.numbers.len() > 1 && job.tokens > 0 {
            backend.read_ahead(model, &mut text)?;
        }
        let left = job.target.every.map_or(job.tokens, |every| every.min(job.tokens));
        let at = now();
        for (index, number) in job.numbers.enumerate() {
            let seed = seed_of(job.seed, number);
            let sampler = Sampler { seed: Seed::root(seed).child("continuation"), ..job.sampler.clone() };
            let text = Text {
                decoding: text.fork(),
                sampler,
                seed,
                counts: BTreeMap::new(),
                logprobs: job.logprobs,
                ends: job.ends.clone(),
                left,
            };
            let client = (job.events.clone(), job.deadline, Arc::clone(&job.place));
            let without = job.target.without.clone();
            let rerouting = Rerouting { every: job.target.every, later: job.tokens - left, without };
            let choice = job.first_choice + index;
            let mut stream = Stream::new(choice, model, text, rerouting, job.stop.clone(), client, at);
            stream.say(Happening::Begins { ranking: ranking.clone() });
            if let Some(scores) = &scores {
                stream.say(Happening::Prompt(Arc::clone(scores)));
            }
            if job.tokens == 0 {
                stream.end(Ending::Tokens, None);
            }
            stream.flush(at);
            self.streams.push(stream);
        }
        Ok(())
    }

    /// The model of a prompt, and the router's ranking if it was asked.
    fn model_of(&self, backend: &mut dyn Backend, job: &Job) -> anyhow::Result<(QueriedModel, Vec<PathId>)> {
        match job.target.model {
            NamedModel::Ancestor => Ok((QueriedModel::Ancestor, Vec::new())),
            NamedModel::Path(path) => Ok((QueriedModel::Path(path), Vec::new())),
            NamedModel::Routed => {
                let first = &job.prompt[..job.prompt.len().min(self.run.config.routing.prefix_tokens)];
                let ranking = backend.ranking(first, None)?;
                let path = ranking.iter().find(|path| !job.target.without.contains(path));
                let path = path.copied().ok_or_else(|| anyhow::anyhow!("the router names no path that is left"))?;
                Ok((QueriedModel::Path(path), ranking))
            }
        }
    }
}

/// The seed of a choice: the first has that of `pathswarm generate`.
fn seed_of(seed: u64, number: usize) -> u64 {
    if number == 0 { seed } else { Seed::root(seed).child("choice").number(number as u64).to_u64() }
}

/// What a client is told of an error of the engine. Its details are for the owner of the server.
fn explain(error: &anyhow::Error, report: &Report) -> ApiError {
    report(&format!("a text was not generated: {error:#}"));
    match error.chain().find_map(|cause| cause.downcast_ref::<AskError>()) {
        Some(unanswered) => ApiError::plain(503, "unavailable", format!("{unanswered}; ask again later")),
        None => ApiError::internal("the model failed; the owner of this server has been told why"),
    }
}
