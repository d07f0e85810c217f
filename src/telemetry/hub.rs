//! The state that viewers share, and the frames by which they follow it.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::names::ModuleId;
use crate::peer::PeerStatus;
use crate::peer::driver::handle::PeerHandle;
use crate::telemetry::curves::outer_steps::OuterPoint;
use crate::telemetry::curves::series::{Point, Sample};
use crate::telemetry::now_ms;
use crate::telemetry::recorder::Recorder;
use crate::telemetry::run::{RunFacts, RunOutline};
use crate::telemetry::services::Fact;
use crate::telemetry::spans::Doing;
use crate::telemetry::state::{MOST_EVENTS, MOST_SERIES, News, State, Tone};
use crate::telemetry::tensorboard::{self, Writing};
use crate::telemetry::view::{Shown, line};

/// Frames that a viewer may be behind. After that it loses frames, and gets the whole state again.
const FRAMES: usize = 16;

/// Points that a viewer gets of all curves together when it begins: as many as 28 full ones have.
const MOST_WHOLE_POINTS: usize = 20_160;

/// The state and its viewers. Clones share them.
#[derive(Clone)]
pub struct Telemetry {
    state: Arc<Mutex<State>>,
    /// What viewers have been shown. Locked only by those who have locked the state.
    shown: Arc<Mutex<Shown>>,
    frames: broadcast::Sender<Arc<str>>,
}

/// The whole state as JSON, and the frames that follow it.
pub struct Subscription {
    pub whole: Arc<str>,
    pub frames: broadcast::Receiver<Arc<str>>,
}

impl Default for Telemetry {
    fn default() -> Self {
        let state = Arc::new(Mutex::new(State::new(now_ms())));
        Self { state, shown: Arc::default(), frames: broadcast::channel(FRAMES).0 }
    }
}

impl Telemetry {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run begins. Another one than before clears the curves.
    pub(super) fn begin(&self, run: &RunOutline) {
        let mut state = self.state();
        if state.run.as_ref().is_none_or(|before| before.name != run.name) {
            state.series.clear();
            state.outer_steps.clear();
            state.tokens.clear();
            state.held_out.clear();
            state.news.points.clear();
            state.news.restart = true;
            if state.run.is_some()
                && let Some(files) = &mut state.event_files
            {
                files.begin(&run.name);
            }
            state.run = Some(run.clone());
        }
    }

    /// The run has at least so many phases: it may have been amended.
    pub(super) fn amended(&self, phases: u64) {
        if let Some(run) = &mut self.state().run {
            run.phases = run.phases.max(phases);
        }
    }

    /// The peer runs, and can be asked.
    pub fn attach(&self, peer: &str, handle: PeerHandle) {
        let mut state = self.state();
        let seen = state.touch(peer);
        (seen.handle, seen.answered_ms) = (Some(handle), now_ms());
    }

    /// The peer has ended.
    pub fn detach(&self, peer: &str) {
        let mut state = self.state();
        state.record_last(peer, now_ms());
        state.peers.remove(peer);
        state.spans.end(peer, now_ms());
    }

    /// A stage of preparation, such as the tokenizer.
    pub fn stage(&self, name: &str, done: u64, total: u64) {
        self.state().stage = (done < total).then(|| (name.to_owned(), done, total));
    }

    /// The loss of the dense control.
    pub fn dense(&self, step: u64, loss: f64) {
        let at_ms = now_ms();
        self.point("dense", Point { at_ms, step, loss, ..Point::default() });
        self.state().record_dense(at_ms, step, loss);
    }

    /// The newest numbers of a service of this process, under its name for people.
    pub fn serves(&self, service: &'static str, facts: Vec<Fact>) {
        self.state().services.insert(service, facts);
    }

    /// The held-out loss of an arm of an experiment, after so many steps and tokens of all its paths.
    pub fn arm(&self, arm: &str, step: u64, tokens: u64, loss: f64) {
        let added = tokens.saturating_sub(self.state().tokens.get(&format!("arm/{arm}")).copied().unwrap_or(0));
        self.point(&format!("arm/{arm}"), Point { at_ms: now_ms(), step, tokens: added, loss, ..Point::default() });
    }

    /// Begins `metrics.jsonl` in a folder.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn record_in(&self, folder: &Path) -> std::io::Result<()> {
        let recorder = Recorder::open(folder)?;
        self.state().recorder = Some(recorder);
        Ok(())
    }

    /// Begins event files for TensorBoard in a folder. They are written until what is returned is dropped.
    ///
    /// # Errors
    /// If the folder cannot be made or takes no files.
    pub fn event_files_in(&self, folder: &Path) -> std::io::Result<Writing> {
        let (files, writing) = tensorboard::open(folder)?;
        self.state().event_files = Some(files);
        Ok(writing)
    }

    /// A line for the log of events.
    pub fn note(&self, line: &str) {
        self.log(None, Tone::Plain, line.to_owned());
    }

    pub(super) fn log(&self, peer: Option<&str>, tone: Tone, line: String) {
        let mut state = self.state();
        let event = json!({ "id": state.next_event, "at": now_ms(), "peer": peer, "tone": tone.name(), "line": line });
        state.next_event += 1;
        state.events.push_back(event.clone());
        state.news.events.push(event);
        if state.events.len() > MOST_EVENTS {
            state.events.pop_front();
        }
        if state.news.events.len() > MOST_EVENTS {
            state.news.events.remove(0);
        }
    }

    pub(super) fn does(&self, peer: &str, from_ms: u64, doing: Doing, words: String) {
        let mut state = self.state();
        let ended = state.spans.set((peer, from_ms), doing, words);
        state.count(peer, ended);
    }

    /// The peer has nothing more to do.
    pub(super) fn idles(&self, peer: &str) {
        let mut state = self.state();
        let ended = state.spans.end(peer, now_ms());
        state.count(peer, ended);
    }

    pub(super) fn fetched(&self, peer: &str, bytes: u64, seconds: f64) {
        let mut state = self.state();
        state.latencies.fetched(seconds);
        let (blobs, all_bytes, all_s) = &mut state.touch(peer).fetched;
        (*blobs, *all_bytes, *all_s) = (*blobs + 1, *all_bytes + bytes, *all_s + seconds);
    }

    /// A peer has applied updates of a module.
    pub(super) fn updated(&self, peer: &str, module: ModuleId, updates: u64) {
        let mut state = self.state();
        let now = now_ms();
        let seen = state.touch(peer);
        seen.rounds += updates;
        let before = seen.updated_ms.insert(module, now);
        if let Some(before) = before {
            state.latencies.round(now.saturating_sub(before) as f64 / 1e3 / updates.max(1) as f64);
        }
    }

    pub(super) fn advanced(&self, peer: &str, module: ModuleId, version: u64, contributions: usize) {
        self.updated(peer, module, 1);
        let noun = if contributions == 1 { "contribution" } else { "contributions" };
        let line = format!("module {module} is at version {version}, with {contributions} {noun}");
        self.log(Some(peer), Tone::Plain, line);
    }

    pub(super) fn point(&self, name: &str, mut point: Point) {
        let mut state = self.state();
        if state.series.len() >= MOST_SERIES && !state.series.contains_key(name) {
            return;
        }
        let tokens = state.tokens.entry(name.to_owned()).or_default();
        *tokens += point.tokens;
        point.tokens = *tokens;
        if let Some(files) = &mut state.event_files {
            files.point(name, &point);
        }
        let added = state.series.entry(name.to_owned()).or_default().push(point);
        if let Some(point) = added {
            state.news.points.entry(name.to_owned()).or_default().push(point.to_json());
        }
    }

    /// A peer has computed an average as the owner of a module.
    pub(super) fn outer_step(&self, module: ModuleId, point: OuterPoint) {
        let mut state = self.state();
        if state.outer_steps.len() >= MOST_SERIES && !state.outer_steps.contains_key(&module) {
            return;
        }
        if let Some(files) = &mut state.event_files {
            files.outer_step(module, &point);
        }
        if let Some(point) = state.outer_steps.entry(module).or_default().push(point) {
            state.news.points.entry(format!("outer/{module}")).or_default().push(point.to_json());
        }
    }

    /// The newest status of a peer.
    pub(super) fn answered(&self, peer: &str, status: PeerStatus) {
        let (mut state, now) = (self.state(), now_ms());
        let state = &mut *state;
        for score in &status.node.scores {
            let of_path = state.held_out.entry(score.path).or_default();
            if of_path.last().is_none_or(|(phase, ..)| *phase < score.phase) {
                of_path.push((score.phase, now, score.millibits_per_byte));
                let point = json!([score.phase, now, score.millibits_per_byte]);
                state.news.points.entry(format!("held-out/{}", score.path)).or_default().push(point);
                if let (Some(files), Some(run)) = (&mut state.event_files, &state.run) {
                    let step = run.steps(crate::names::Phase(score.phase), 0);
                    files.held_out(score.path, (now, step), score.millibits_per_byte);
                }
            }
        }
        if let Some(seen) = state.peers.get_mut(peer) {
            seen.answer(status, now);
            state.answered = true;
        }
    }

    /// The status of a peer that is not asked here.
    pub fn show(&self, peer: &str, status: PeerStatus) {
        self.state().touch(peer);
        self.answered(peer, status);
    }

    /// A report of a peer's trainer, for `metrics.jsonl`. `step` counts since the run's first phase.
    pub(super) fn trained(&self, peer: &str, path: u32, (phase, step): (u64, u64), loss: f64) {
        if let Some(seen) = self.state().peers.get_mut(peer) {
            seen.losses.add(path, phase, step, loss);
        }
    }

    /// Whether a peer that can be asked has not answered yet.
    pub(super) fn has_unanswered(&self) -> bool {
        self.state().peers.values().any(|seen| seen.handle.is_some() && seen.status.is_none())
    }

    /// What is known of the run, once it is.
    pub fn run_facts(&self) -> Option<RunFacts> {
        self.state().run.as_ref().map(RunOutline::facts)
    }

    /// Addresses of the peers that are shown, as they tell them.
    pub fn addresses(&self) -> Vec<String> {
        let state = self.state();
        let statuses = state.peers.values().filter_map(|seen| seen.status.as_ref());
        statuses.flat_map(|status| status.addresses.iter().cloned()).collect()
    }

    /// The newest statuses of peers of other processes.
    pub(super) fn told_statuses(&self) -> Vec<PeerStatus> {
        let state = self.state();
        state.peers.values().filter(|seen| seen.handle.is_none()).filter_map(|seen| seen.status.clone()).collect()
    }

    /// Peers that can be asked.
    pub(super) fn handles(&self) -> Vec<(String, PeerHandle)> {
        let state = self.state();
        state.peers.iter().filter_map(|(peer, seen)| Some((peer.clone(), seen.handle.clone()?))).collect()
    }

    /// Whether anybody looks.
    pub(super) fn is_watched(&self) -> bool {
        self.frames.receiver_count() > 0
    }

    /// Sends what has changed since the last frame, if anybody looks.
    pub fn send_frame(&self) {
        let mut state = self.state();
        match self.is_watched() {
            true => self.send(&mut state, &mut self.shown()),
            // Whoever comes gets the whole state.
            false => state.forget_news(),
        }
    }

    /// The whole state, and what follows.
    pub fn subscribe(&self) -> Subscription {
        let mut state = self.state();
        let mut shown = self.shown();
        // So that no frame repeats what is in the whole state.
        self.send(&mut state, &mut shown);
        Subscription { whole: state.whole(&shown), frames: self.frames.subscribe() }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, state: &mut State, shown: &mut Shown) {
        let patch = shown.update(state);
        state.is_shown();
        let News { events, points, restart } = std::mem::take(&mut state.news);
        let spans = state.spans.take_changed();
        let is_empty = patch.is_none() && events.is_empty() && points.is_empty() && spans.is_empty();
        if !self.is_watched() || is_empty && !restart {
            return;
        }
        let frame = match restart {
            true => state.whole(shown),
            false => text(&Frame { at: now_ms(), patch, events, points, spans }),
        };
        // Nobody may be there to hear it.
        let _ = self.frames.send(frame);
    }
}

/// What has changed.
#[derive(Serialize)]
struct Frame {
    at: u64,
    patch: Option<Value>,
    events: Vec<Value>,
    points: BTreeMap<String, Vec<Value>>,
    spans: Vec<Value>,
}

/// Everything.
#[derive(Serialize)]
struct Whole<'a> {
    at: u64,
    state: &'a Shown,
    events: &'a VecDeque<Value>,
    points: BTreeMap<String, Value>,
    spans: Vec<Value>,
}

/// JSON. What a frame consists of has text for keys, and cannot fail.
fn text(frame: &impl Serialize) -> Arc<str> {
    serde_json::to_string(frame).unwrap_or_default().into()
}

impl State {
    fn forget_news(&mut self) {
        self.news = News::default();
        self.spans.take_changed();
    }

    fn whole(&self, shown: &Shown) -> Arc<str> {
        let all: usize = self.series.values().map(|series| series.points().len()).sum();
        // Every so many points of each curve, and its last.
        let stride = all.div_ceil(MOST_WHOLE_POINTS).max(1);
        let curves = self.series.iter().map(|(name, series)| (name.clone(), series.to_json(stride)));
        let outer = self.outer_steps.iter().map(|(module, series)| (format!("outer/{module}"), series.to_json(stride)));
        let scores = self.held_out.iter().map(|(path, scores)| (format!("held-out/{path}"), json!(scores)));
        let points = curves.chain(outer).chain(scores).collect();
        text(&Whole { at: now_ms(), state: shown, events: &self.events, points, spans: self.spans.all() })
    }

    /// Writes a line for each peer into `metrics.jsonl`, if it is time.
    pub(super) fn record(&mut self, now_ms: u64) {
        let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.is_due(now_ms)) else { return };
        let lines = self.peers.iter_mut().filter_map(|(peer, seen)| line(peer, seen, now_ms));
        let written = recorder.write(now_ms, lines);
        self.go_on_recording(written);
    }

    /// Writes the last line of a peer that ends.
    fn record_last(&mut self, peer: &str, now_ms: u64) {
        let last = self.peers.get_mut(peer).and_then(|seen| line(peer, seen, now_ms));
        self.record_line(last);
    }

    /// Writes the mean loss of the dense control after as many steps as a phase has.
    fn record_dense(&mut self, now_ms: u64, step: u64, loss: f64) {
        let Some(run) = &self.run else { return };
        let phase = run.phase_of(step);
        let is_next = !self.dense_losses.is_empty() && !self.dense_losses.has(0, phase);
        let ended = if is_next { self.dense_losses.take() } else { Vec::new() };
        self.dense_losses.add(0, phase, step, loss);
        let whole = if run.ends_a_phase(step) { self.dense_losses.take() } else { Vec::new() };
        for mean in ended.into_iter().chain(whole) {
            self.record_line(Some(json!({ "at_ms": now_ms, "dense": [mean[1], mean[2]] })));
        }
    }

    fn record_line(&mut self, line: Option<Value>) {
        let Some((recorder, line)) = self.recorder.as_mut().zip(line) else { return };
        let written = recorder.append(&line);
        self.go_on_recording(written);
    }

    fn go_on_recording(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written {
            tracing::warn!(%error, "metrics.jsonl cannot be written; it ends here");
            self.recorder = None;
        }
    }
}
