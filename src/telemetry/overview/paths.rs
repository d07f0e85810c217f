//! Every trainer of every path.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::status::{MemberPath, PathStatus};
use crate::telemetry::overview::MOST_ROWS;
use crate::telemetry::overview::told::{Answered, Told};

/// The stage of a path that waits for a trainer's failure, for which it is not in the list of trainers.
pub(super) const STANDBY: &str = "standby";
const TRAINING: &str = "training";

/// One trainer of a path, or a path without one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathRow {
    pub path: u32,
    /// Which of the path's trainers it is, from 1.
    pub trainer: u32,
    /// The path of the grid that it stands for now, if that is another.
    pub drawn: Option<u32>,
    /// The trainer, as a name for people; nothing if no trainer is known.
    pub who: Option<String>,
    /// Whether it is one of the peers that are asked.
    pub is_asked: bool,
    pub stage: String,
    /// The phase that it trains, or the phases that are done, of all.
    pub phase: Option<u64>,
    /// Inner steps made in this phase.
    pub step: Option<u64>,
    /// Nats a token.
    pub loss: Option<f64>,
    /// Newest known score on held-out text.
    pub bits_per_byte: Option<f64>,
    pub tokens_per_s: Option<f64>,
    /// Seconds of silence, if it is silent for longer than usual.
    pub silent_s: Option<u64>,
}

pub(super) fn paths(told: &Told<'_>) -> Vec<PathRow> {
    // By path, trainer and peer. What a peer says of itself counts more than what others have heard of it.
    let mut found: BTreeMap<(u32, u32, &str), PathRow> = BTreeMap::new();
    for it in &told.answered {
        for path in &it.status.node.paths {
            found.insert((path.path, path.trainer, &it.status.node.peer), own(told, it, path));
        }
    }
    let mut keys = BTreeMap::new();
    for it in &told.answered {
        for (key, member) in it.status.node.members.iter().filter(|(_, member)| !member.paths.is_empty()) {
            keys.entry(*key).or_insert_with(|| (key.to_string(), Vec::new())).1.push(member);
        }
    }
    for (key, members) in keys.values() {
        for member in members {
            for path in &member.paths {
                let place = (path.path, path.trainer, key.as_str());
                found.entry(place).or_insert_with(|| other(told, key, path, member.silent_s));
            }
        }
    }
    let mut rows: Vec<PathRow> = found.into_values().filter(|row| row.stage != STANDBY).take(MOST_ROWS).collect();
    rows.extend(without_trainer(told, &rows));
    rows.sort_by_key(|row| (row.path, row.trainer));
    rows.truncate(MOST_ROWS);
    rows
}

fn own(told: &Told<'_>, it: &Answered<'_>, path: &PathStatus) -> PathRow {
    let activity = &it.status.activity;
    let trains = path.stage == TRAINING && activity.path == Some(path.path);
    let device = activity.devices.iter().find(|device| device.path == Some(path.path));
    let curve = match path.trainer {
        0 | 1 => format!("path/{}", path.path),
        trainer => format!("path/{}/{trainer}", path.path),
    };
    let newest = told.state.series.get(&curve).and_then(|series| Some(series.points().last()?.loss));
    let told_now = activity.loss.filter(|_| activity.path == Some(path.path));
    PathRow {
        drawn: (path.drawn != path.path).then_some(path.drawn),
        who: Some(it.label.to_owned()),
        is_asked: true,
        phase: path.phase.map(|phase| shown_phase(told, phase, &path.stage)),
        step: activity.step.filter(|_| trains),
        // A trainer that joins has not trained yet: the curve is that of another one.
        loss: newest.or(told_now).filter(|_| path.stage != "joining"),
        tokens_per_s: match device {
            Some(device) => device.tokens_per_s,
            None => activity.tokens_per_s.filter(|_| trains),
        },
        ..row(told, path.path, path.trainer, &path.stage)
    }
}

fn other(told: &Told<'_>, key: &str, path: &MemberPath, silent_s: Option<u64>) -> PathRow {
    PathRow {
        who: Some(told.labels.name(key)),
        phase: Some(shown_phase(told, path.phase, &path.stage)),
        silent_s,
        ..row(told, path.path, path.trainer, &path.stage)
    }
}

fn row(told: &Told<'_>, path: u32, trainer: u32, stage: &str) -> PathRow {
    let score = told.state.held_out.get(&path).and_then(|scores| scores.last());
    let bits_per_byte = score.map(|(_, _, thousandths)| f64::from(*thousandths) / 1e3);
    PathRow { path, trainer, stage: stage.to_owned(), bits_per_byte, ..PathRow::default() }
}

/// A path in training is in the phase after those that are done.
fn shown_phase(told: &Told<'_>, done: u64, stage: &str) -> u64 {
    let shown = done + u64::from(stage == TRAINING);
    told.phases().map_or(shown, |phases| shown.min(phases))
}

/// Paths of the grid that nobody trains.
fn without_trainer(told: &Told<'_>, known: &[PathRow]) -> Vec<PathRow> {
    let Some(run) = told.state.run.as_ref().filter(|run| !run.slots.are_drawn_anew()) else { return Vec::new() };
    let held: BTreeSet<u32> = known.iter().map(|row| row.path).collect();
    let paths = 0..u32::try_from(run.routes().len()).unwrap_or(u32::MAX);
    paths.filter(|path| !held.contains(path)).map(|path| row(told, path, 1, "no trainer")).collect()
}
