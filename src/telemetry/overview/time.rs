//! What an exchange costs, and how the peers that are asked spend their time.

use std::collections::BTreeMap;

use crate::telemetry::overview::labels::natural;
use crate::telemetry::overview::told::{Answered, Told};
use crate::telemetry::spans::Doing;

/// Peers of which it is told what they did when.
const MOST_LANES: usize = 64;

/// Bits that a parameter costs in an exchange; nothing before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchange {
    /// From a trainer to an owner.
    pub bits_up: Option<f64>,
    /// From an owner to the members.
    pub bits_down: Option<f64>,
}

/// How a peer has spent its time, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeShares {
    pub trained_s: f64,
    /// By what was waited for, the longest first. The names are those of [`wait_name`].
    pub waited_s: Vec<(&'static str, f64)>,
    /// Waiting for the device, starting, scoring, or done.
    pub other_s: f64,
}

impl TimeShares {
    pub fn waited(&self) -> f64 {
        // The sum of nothing would be -0.
        self.waited_s.iter().fold(0.0, |sum, (_, seconds)| sum + seconds)
    }

    pub fn all(&self) -> f64 {
        self.trained_s + self.waited() + self.other_s
    }
}

/// What one peer did when.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    pub label: String,
    /// Oldest first.
    pub spans: Vec<LaneSpan>,
}

/// A part of a peer's time.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneSpan {
    pub from_ms: u64,
    /// Now, while it lasts.
    pub to_ms: u64,
    /// The path and the phase from 0 that it trains; nothing if it waits.
    pub trains: Option<(u32, u64)>,
    /// What it waits for, in short.
    pub waits: &'static str,
}

/// What a kind of wait is called where there is little room.
pub fn wait_name(kind: &str) -> &'static str {
    match kind {
        "contributions" => "contributions missing",
        "arriving" => "contributions arrive",
        "collecting" => "collecting",
        "owner" => "the owner",
        "unowned" => "no owner",
        "applying" => "applying an update",
        "combining" => "averaging",
        "turn" => "its turn",
        "settling" => "a new owner",
        "skipping" => "a skipped round",
        "pausing" => "the next update",
        "taker" => "the next trainer",
        "disk" => "the disk",
        "directory" | "nobody" | "modules" | "text" | "trainer" | "return" => "joining",
        _ => "something else",
    }
}

pub(super) fn exchange(told: &Told<'_>) -> Exchange {
    let synced = || told.answered.iter().map(|it| it.status.synced);
    let rate = |bytes: u64, parameters: u64| (parameters > 0).then(|| 8.0 * bytes as f64 / parameters as f64);
    Exchange {
        bits_up: rate(
            synced().map(|it| it.contribution_bytes).sum(),
            synced().map(|it| it.contribution_parameters).sum(),
        ),
        bits_down: rate(synced().map(|it| it.average_bytes).sum(), synced().map(|it| it.average_parameters).sum()),
    }
}

pub(super) fn shares(it: &Answered<'_>) -> TimeShares {
    let mut by_name: BTreeMap<&'static str, f64> = BTreeMap::new();
    for (kind, seconds) in &it.seen.waited_s {
        *by_name.entry(wait_name(kind)).or_default() += seconds;
    }
    let mut waited_s: Vec<(&'static str, f64)> = by_name.into_iter().collect();
    waited_s.sort_by(|a, b| b.1.total_cmp(&a.1));
    let trained_s = it.status.activity.trained_s;
    let known = TimeShares { trained_s, waited_s, other_s: 0.0 };
    TimeShares { other_s: (it.status.activity.uptime_s as f64 - known.all()).max(0.0), ..known }
}

pub(super) fn lanes(told: &Told<'_>) -> Vec<Lane> {
    let mut lanes: BTreeMap<&str, Vec<LaneSpan>> = BTreeMap::new();
    for span in told.state.spans.iter() {
        if lanes.len() >= MOST_LANES && !lanes.contains_key(span.peer.as_str()) {
            continue;
        }
        let (trains, waits) = match &span.doing {
            Doing::Training { path, phase } => (Some((*path, *phase)), ""),
            Doing::Waiting { kind, .. } => (None, wait_name(kind)),
        };
        let (from_ms, to_ms) = (span.from_ms, span.to_ms.unwrap_or(told.now_ms));
        lanes.entry(&span.peer).or_default().push(LaneSpan { from_ms, to_ms, trains, waits });
    }
    let mut lanes: Vec<Lane> =
        lanes.into_iter().map(|(label, spans)| Lane { label: label.to_owned(), spans }).collect();
    lanes.sort_by(|a, b| natural(&a.label).cmp(&natural(&b.label)));
    lanes
}
