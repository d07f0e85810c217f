//! What a screen shows of a run: typed and owned, made of the state in one go.
//!
//! Several peers may say something of the same module, path or peer. It is merged here, by the rules of the page
//! (`console/page/model.js`): the highest term names the owner, and two states of one version are told as a difference.
//! All lists are bounded.

mod curves;
mod labels;
mod modules;
mod paths;
mod peers;
#[cfg(test)]
pub(crate) mod samples;
mod summary;
#[cfg(test)]
mod tests;
mod time;
mod told;
mod waits;

pub use curves::{Axis, Curve, Quantity, Sample, ScoreCurve, ShownLine};
pub use modules::{Agreement, ModuleRow};
pub use paths::PathRow;
pub use peers::{Health, PeerRow, Work};
pub use summary::Summary;
pub use time::{Exchange, Lane, LaneSpan, TimeShares, wait_name};
pub use waits::{Silence, WaitRow};

use crate::telemetry::overview::told::Told;
use crate::telemetry::run::RunOutline;
use crate::telemetry::state::{State, Tone};
use crate::telemetry::{Telemetry, now_ms};

/// Rows of a list: a larger one is cut.
const MOST_ROWS: usize = 4_096;

/// Everything that a screen shows, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The moment, in milliseconds since 1970.
    pub now_ms: u64,
    /// Since when this process has looked.
    pub began_ms: u64,
    /// The run, as far as it is known.
    pub run: RunFacts,
    /// A stage of preparation that goes on.
    pub stage: Option<StageFacts>,
    pub summary: Summary,
    pub silences: Vec<Silence>,
    pub waits: Vec<WaitRow>,
    pub modules: Vec<ModuleRow>,
    pub paths: Vec<PathRow>,
    pub peers: Vec<PeerRow>,
    pub exchange: Exchange,
    pub lanes: Vec<Lane>,
    /// The log, oldest first.
    pub events: Vec<EventRow>,
    /// Training curves, by path.
    pub curves: Vec<Curve>,
    /// Held-out bits per byte, by path.
    pub scores: Vec<ScoreCurve>,
    /// The modules of each path of the grid, by level; empty if the grid is not known or is large.
    pub routes: Vec<Vec<u32>>,
    /// Where another machine can join.
    pub address: Option<String>,
}

/// The run. What only its configuration says is missing where no peer of this process trains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// Its name; empty before anything is known.
    pub name: String,
    /// Its identity, in hexadecimal digits.
    pub id: String,
    pub phases: Option<u64>,
    pub inner_steps: Option<u64>,
    /// What each level consists of.
    pub levels: Vec<String>,
}

/// A stage of preparation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageFacts {
    pub name: String,
    pub done: u64,
    pub total: u64,
}

/// A line of the log of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// It grows from event to event.
    pub id: u64,
    pub at_ms: u64,
    pub peer: Option<String>,
    pub tone: EventTone,
    pub line: String,
}

/// How an event looks to whoever is responsible for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTone {
    Note,
    Good,
    Warning,
    Trouble,
}

impl EventTone {
    fn of(name: Option<&str>) -> Self {
        match name {
            Some(name) if name == Tone::Good.name() => Self::Good,
            Some(name) if name == Tone::Warning.name() => Self::Warning,
            Some(name) if name == Tone::Bad.name() => Self::Trouble,
            _ => Self::Note,
        }
    }

    /// Whether it asks for attention.
    pub fn is_warning(self) -> bool {
        matches!(self, Self::Warning | Self::Trouble)
    }
}

impl Telemetry {
    /// What a screen shows now.
    pub fn overview(&self) -> Overview {
        overview(&self.state(), now_ms())
    }
}

fn overview(state: &State, now_ms: u64) -> Overview {
    let told = Told::of(state, now_ms);
    let curves = curves::curves(state);
    let modules = modules::modules(&told);
    let paths = paths::paths(&told);
    let peers = peers::peers(&told);
    let run = run(&told);
    let waits = waits::waits(&told);
    let silences = waits::silences(&told);
    Overview {
        now_ms,
        began_ms: state.began_ms,
        stage: state.stage.as_ref().map(|(name, done, total)| StageFacts {
            name: name.clone(),
            done: *done,
            total: *total,
        }),
        summary: summary::summary(&told, &run, (&modules, &paths, &peers), &curves),
        silences,
        waits,
        modules,
        paths,
        peers,
        exchange: time::exchange(&told),
        lanes: time::lanes(&told),
        events: events(state),
        scores: curves::scores(state),
        curves,
        routes: state.run.as_ref().map(RunOutline::routes).unwrap_or_default(),
        address: told.answered.iter().find_map(|it| it.status.addresses.first().cloned()),
        run,
    }
}

fn run(told: &Told<'_>) -> RunFacts {
    let first = told.answered.first().map(|it| it.status);
    let outline = told.state.run.as_ref();
    RunFacts {
        name: outline.map(|run| run.name.clone()).or_else(|| Some(first?.name.clone())).unwrap_or_default(),
        id: first.map(|status| status.run.clone()).unwrap_or_default(),
        phases: told.phases(),
        inner_steps: outline.map(|run| run.inner_steps),
        levels: outline.map(|run| run.parts.clone()).unwrap_or_default(),
    }
}

fn events(state: &State) -> Vec<EventRow> {
    let row = |event: &serde_json::Value| EventRow {
        id: event["id"].as_u64().unwrap_or_default(),
        at_ms: event["at"].as_u64().unwrap_or_default(),
        peer: event["peer"].as_str().map(str::to_owned),
        tone: EventTone::of(event["tone"].as_str()),
        line: event["line"].as_str().unwrap_or_default().to_owned(),
    };
    state.events.iter().map(row).collect()
}
