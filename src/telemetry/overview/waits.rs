//! What is waited for, by whom, since when, until when, and what follows.

use crate::protocol::status::PathStatus;
use crate::protocol::status::waiting::Waiting;
use crate::telemetry::overview::told::{Answered, Told};
use crate::telemetry::words::{follows, waits_for};

/// Waits that are told: several paths often wait for one thing.
const MOST_WAITS: usize = 256;

/// One thing that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// The paths or peers that wait.
    pub who: Vec<String>,
    /// What follows "waits for".
    pub words: String,
    /// Since when the first of them has waited, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// How long it lasts at most.
    pub left_s: Option<u64>,
    /// What happens if the wait goes on, or when it ends.
    pub then: &'static str,
}

/// A peer that does not answer any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    pub label: String,
    pub since_ms: u64,
}

pub(super) fn silences(told: &Told<'_>) -> Vec<Silence> {
    let late = told.answered.iter().filter_map(|it| Some((it, it.silent_since_ms?)));
    late.map(|(it, since_ms)| Silence { label: it.label.to_owned(), since_ms }).collect()
}

pub(super) fn waits(told: &Told<'_>) -> Vec<WaitRow> {
    let mut rows: Vec<WaitRow> = Vec::new();
    for it in &told.answered {
        let node = &it.status.node;
        let waiting = node.paths.iter().filter(|path| path.stage != "done");
        let waiting = waiting.filter_map(|path| Some((path, path.waits_for.as_ref()?)));
        for (path, waiting) in waiting {
            let since = it.seen.waiting.get(&(path.path, path.trainer)).map(|(_, since_ms)| *since_ms);
            add(&mut rows, &path_name(told, it, path), waiting, since);
        }
        let is_said = node.paths.iter().any(|path| path.waits_for.is_some());
        if let Some(waiting) = node.waits_for.as_ref().filter(|_| !is_said && !node.done) {
            add(&mut rows, it.label, waiting, None);
        }
    }
    rows
}

fn add(rows: &mut Vec<WaitRow>, who: &str, waiting: &Waiting, since_ms: Option<u64>) {
    let (words, then) = (waits_for(waiting), follows(waiting));
    if let Some(row) = rows.iter_mut().find(|row| row.words == words) {
        row.who.push(who.to_owned());
        row.since_ms = [row.since_ms, since_ms].into_iter().flatten().min();
    } else if rows.len() < MOST_WAITS {
        rows.push(WaitRow { who: vec![who.to_owned()], words, since_ms, left_s: left_s(waiting), then });
    }
}

/// Of several peers, with the peer's name.
fn path_name(told: &Told<'_>, it: &Answered<'_>, path: &PathStatus) -> String {
    let trainer = if path.trainer > 1 { format!(", trainer {}", path.trainer) } else { String::new() };
    let name = format!("path {}{trainer}", path.path);
    if told.answered.len() > 1 { format!("{name} ({})", it.label) } else { name }
}

fn left_s(waiting: &Waiting) -> Option<u64> {
    match waiting {
        Waiting::Contributions { left_s, .. } => *left_s,
        Waiting::Return { left_s } | Waiting::Pausing { left_s, .. } => Some(*left_s),
        _ => None,
    }
}
