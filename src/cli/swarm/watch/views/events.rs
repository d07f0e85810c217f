//! The log of events, newest first.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::document::{Document, Section};
use super::format::clock;
use super::text::{fill, wrap};
use super::{Seen, text};
use crate::telemetry::overview::{EventRow, EventTone};

/// Columns of the name of a peer.
const PEER: usize = 12;

/// Columns of the kind of an event.
const KIND: usize = 7;

pub(super) fn document(seen: &Seen<'_>) -> Document {
    let (overview, view, theme) = (seen.overview, seen.view, seen.theme);
    let is_shown = |event: &&EventRow| {
        let finds = view.finds(&event.line) || event.peer.as_deref().is_some_and(|peer| view.finds(peer));
        finds && (event.tone.is_warning() || !view.warnings_only)
    };
    let rows: Vec<Line<'static>> =
        overview.events.iter().rev().filter(is_shown).flat_map(|event| lines(seen, event)).collect();
    let what = if view.warnings_only { "warnings only, newest first" } else { "newest first" };
    let title = Section::title("Events", what, theme);
    let section = match (rows.is_empty(), overview.events.is_empty()) {
        (true, true) => Section::of(title, vec![Line::from("Nothing has happened yet.")]),
        (true, false) => Section::of(title, vec![Line::from("Nothing like this has happened.")]),
        (false, _) => {
            let head = format!("{:<8}  {}  {}  what", "at", fill("peer", PEER, false), fill("kind", KIND, false));
            Section { title, header: Some(Line::styled(head, theme.faint())), rows }
        }
    };
    Document { sections: vec![section] }
}

/// An event, in as many lines as it needs.
fn lines(seen: &Seen<'_>, event: &EventRow) -> Vec<Line<'static>> {
    let (kind, style) = kind(seen, event.tone);
    let start = format!("{}  {}  ", clock(event.at_ms), fill(event.peer.as_deref().unwrap_or("–"), PEER, false));
    let before = text::width(&start) + KIND + 2;
    let mut lines = Vec::new();
    for (at, words) in wrap(&event.line, seen.room.saturating_sub(before).max(20)).into_iter().enumerate() {
        lines.push(match at {
            0 => Line::from(vec![
                Span::styled(start.clone(), seen.theme.faint()),
                Span::styled(fill(kind, KIND, false), style),
                Span::raw(format!("  {words}")),
            ]),
            _ => Line::from(format!("{}{words}", " ".repeat(before))),
        });
    }
    lines
}

fn kind(seen: &Seen<'_>, tone: EventTone) -> (&'static str, Style) {
    match tone {
        EventTone::Note => ("note", seen.theme.faint()),
        EventTone::Good => ("good", seen.theme.good()),
        EventTone::Warning => ("warning", seen.theme.warning()),
        EventTone::Trouble => ("TROUBLE", seen.theme.bad()),
    }
}
