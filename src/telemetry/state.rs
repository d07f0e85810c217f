//! What is known, and how it is counted.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use crate::names::ModuleId;
use crate::peer::PeerStatus;
use crate::peer::driver::handle::PeerHandle;
use crate::protocol::status::waiting::Waiting;
use crate::telemetry::curves::losses::Losses;
use crate::telemetry::curves::outer_steps::OuterPoint;
use crate::telemetry::curves::series::Series;
use crate::telemetry::latencies::Latencies;
use crate::telemetry::recorder::Recorder;
use crate::telemetry::run::RunOutline;
use crate::telemetry::sampler::ASKED_PER_TICK;
use crate::telemetry::services::Fact;
use crate::telemetry::spans::{Doing, Spans};
use crate::telemetry::tensorboard::EventFiles;

/// A peer that has been asked in vain for longer is late.
const LATE_MS: u64 = 5_000;

/// Events kept.
pub(super) const MOST_EVENTS: usize = 400;

/// Curves kept of paths, and of modules: further ones are not drawn.
pub(super) const MOST_SERIES: usize = 256;

/// How an event looks to whoever is responsible for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

impl Tone {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// One peer of this process.
#[derive(Default)]
pub(super) struct Seen {
    /// Nothing while it does not run.
    pub(super) handle: Option<PeerHandle>,
    /// The newest.
    pub(super) status: Option<PeerStatus>,
    /// Whether viewers have not been shown it yet, and the one that they have been shown.
    pub(super) is_newer: bool,
    pub(super) shown_status: Option<PeerStatus>,
    /// When the status was given, in milliseconds since 1970.
    pub(super) answered_ms: u64,
    /// Since when it has been asked in vain, in milliseconds since 1970.
    pub(super) unanswered_ms: Option<u64>,
    /// When the peer started, in milliseconds since 1970, as far as its status tells.
    pub(super) started_ms: u64,
    /// Whether anything but the status may have changed since the last frame.
    pub(super) touched: bool,
    /// What each of its paths waits for, without numbers that count down, and since when.
    pub(super) waiting: BTreeMap<(u32, u32), (Waiting, u64)>,
    /// Seconds waited, by kind.
    pub(super) waited_s: BTreeMap<String, f64>,
    /// Blobs, bytes and seconds of all fetches.
    pub(super) fetched: (u64, u64, f64),
    /// Updates of modules applied, and when each module was updated last.
    pub(super) rounds: u64,
    pub(super) updated_ms: BTreeMap<ModuleId, u64>,
    /// Training losses since the last line of `metrics.jsonl`.
    pub(super) losses: Losses,
}

/// Everything that is known.
pub(super) struct State {
    pub(super) began_ms: u64,
    pub(super) run: Option<RunOutline>,
    /// A stage of preparation: its name, what is done of it, and all of it.
    pub(super) stage: Option<(String, u64, u64)>,
    pub(super) peers: BTreeMap<String, Seen>,
    /// What else this process does.
    pub(super) services: BTreeMap<&'static str, Vec<Fact>>,
    pub(super) events: VecDeque<Value>,
    pub(super) next_event: u64,
    pub(super) series: BTreeMap<String, Series>,
    /// Outer steps by module.
    pub(super) outer_steps: BTreeMap<ModuleId, Series<OuterPoint>>,
    /// Tokens by curve.
    pub(super) tokens: BTreeMap<String, u64>,
    /// Held-out bits per byte: phase and thousandths, by path.
    pub(super) held_out: BTreeMap<u32, Vec<(u64, u64, u32)>>,
    pub(super) spans: Spans,
    pub(super) latencies: Latencies,
    pub(super) recorder: Option<Recorder>,
    pub(super) event_files: Option<EventFiles>,
    /// Training losses of the dense control since its last line of `metrics.jsonl`.
    pub(super) dense_losses: Losses,
    pub(super) news: News,
    /// Whether a peer has answered since the last frame.
    pub(super) answered: bool,
    /// How often peers have been asked.
    pub(super) turns: usize,
}

/// What has been added since the last frame.
#[derive(Default)]
pub(super) struct News {
    pub(super) events: Vec<Value>,
    pub(super) points: BTreeMap<String, Vec<Value>>,
    /// Another run has begun: viewers begin anew.
    pub(super) restart: bool,
}

impl Seen {
    pub(super) fn answer(&mut self, status: PeerStatus, now: u64) {
        let before = std::mem::take(&mut self.waiting);
        for path in &status.node.paths {
            let Some(waiting) = &path.waits_for else { continue };
            let key = (path.path, path.trainer);
            let since = before.get(&key).filter(|(earlier, _)| is_same_wait(earlier, waiting));
            self.waiting.insert(key, (waiting.clone(), since.map_or(now, |(_, since)| *since)));
        }
        // Its clock counts whole seconds: the same start is not another one in every frame.
        let started_ms = now.saturating_sub(1_000 * status.activity.uptime_s);
        if started_ms.abs_diff(self.started_ms) > 2_000 {
            self.started_ms = started_ms;
        }
        if !self.is_newer {
            self.shown_status = self.status.take();
            // Viewers are not shown these, so a status that differs in nothing else is the same to them.
            if let Some(shown) = self.shown_status.as_mut().map(|shown| &mut shown.activity) {
                shown.uptime_s = status.activity.uptime_s;
                shown.queues.clone_from(&status.activity.queues);
            }
        }
        self.status = Some(status);
        (self.answered_ms, self.unanswered_ms, self.is_newer) = (now, None, true);
    }

    /// When it answered last, if it is late: it has been asked in vain for a while.
    pub(super) fn silent_since(&self, now_ms: u64) -> Option<u64> {
        let unanswered_ms = self.unanswered_ms?;
        (now_ms.saturating_sub(unanswered_ms) > LATE_MS).then_some(self.answered_ms)
    }
}

/// Whether two waits are one, although what is missing or left has changed.
fn is_same_wait(one: &Waiting, other: &Waiting) -> bool {
    let key = |waiting: &Waiting| {
        let value = json!(waiting);
        (value["kind"].clone(), value["module"].clone(), value["owner"].clone())
    };
    key(one) == key(other)
}

impl State {
    pub(super) fn new(began_ms: u64) -> Self {
        Self {
            began_ms,
            run: None,
            stage: None,
            peers: BTreeMap::new(),
            services: BTreeMap::new(),
            events: VecDeque::new(),
            next_event: 0,
            series: BTreeMap::new(),
            outer_steps: BTreeMap::new(),
            tokens: BTreeMap::new(),
            held_out: BTreeMap::new(),
            spans: Spans::default(),
            latencies: Latencies::default(),
            recorder: None,
            event_files: None,
            dense_losses: Losses::default(),
            news: News::default(),
            answered: false,
            turns: 0,
        }
    }

    /// The peers that are to be asked now: those of which nothing is known, and of the others those whose turn it is.
    pub(super) fn take_turn(&mut self) -> Vec<(String, PeerHandle)> {
        self.turns += 1;
        let rounds = self.peers.len().div_ceil(ASKED_PER_TICK).max(1);
        let due = |index: usize, seen: &Seen| seen.status.is_none() || index % rounds == self.turns % rounds;
        let asked = self.peers.iter().enumerate().filter(|(index, (_, seen))| due(*index, seen));
        asked.filter_map(|(_, (peer, seen))| Some((peer.clone(), seen.handle.clone()?))).collect()
    }

    /// A peer has not answered what it was asked at that time.
    pub(super) fn has_not_answered(&mut self, peer: &str, asked_ms: u64) {
        if let Some(seen) = self.peers.get_mut(peer) {
            seen.unanswered_ms.get_or_insert(asked_ms);
        }
    }

    /// Viewers have been shown everything.
    pub(super) fn is_shown(&mut self) {
        self.answered = false;
        for seen in self.peers.values_mut() {
            (seen.touched, seen.is_newer, seen.shown_status) = (false, false, None);
        }
    }

    /// What is known of a peer, in order to change it.
    pub(super) fn touch(&mut self, peer: &str) -> &mut Seen {
        let seen = self.peers.entry(peer.to_owned()).or_default();
        seen.touched = true;
        seen
    }

    /// What the peer does has changed: a part of its time may have ended.
    pub(super) fn count(&mut self, peer: &str, ended: Option<(Doing, f64)>) {
        if let Some(seen) = self.peers.get_mut(peer) {
            seen.touched = true;
        }
        match ended {
            Some((Doing::Training { .. }, seconds)) => self.latencies.phase(seconds),
            Some((Doing::Waiting { kind, .. }, seconds)) => {
                self.latencies.waited(&kind, seconds);
                *self.touch(peer).waited_s.entry(kind).or_default() += seconds;
            }
            None => {}
        }
    }
}
