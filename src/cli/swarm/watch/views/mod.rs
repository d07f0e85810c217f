//! The views, each in a file of its own.

mod contributions;
mod events;
mod learning;
mod swarm;
mod time;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};

use super::document::Document;
use super::theme::Theme;
use super::view::{Limits, View, ViewState};
use super::{document, format, table, text};
use crate::telemetry::overview::{Overview, PeerRow};

/// From so many columns on, a view has two columns of sections.
const WIDE: u16 = 170;

/// Columns between them.
const BETWEEN: u16 = 3;

/// Draws the chosen view.
pub fn draw(frame: &mut Frame<'_>, area: Rect, overview: &Overview, view: &ViewState, theme: Theme) -> Limits {
    if view.view == View::Learning {
        return learning::draw(frame, area, overview, view, theme);
    }
    let is_wide = area.width >= WIDE && matches!(view.view, View::Swarm | View::BytesAndTime);
    let columns: Vec<Rect> = match is_wide {
        true => {
            Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(BETWEEN).areas::<2>(area).to_vec()
        }
        false => vec![area],
    };
    // Of columns of an odd width, one is narrower.
    let room = columns.iter().map(|column| usize::from(column.width)).min().unwrap_or(0);
    let seen = Seen { overview, view, theme, room, rows: area.height.into() };
    let documents = match view.view {
        View::Swarm => swarm::documents(&seen, is_wide),
        View::BytesAndTime => time::documents(&seen, is_wide),
        View::Contributions => vec![contributions::document(&seen)],
        _ => vec![events::document(&seen)],
    };
    let rows = usize::from(area.height);
    let farthest = documents.iter().map(|document| document.farthest(rows)).max().unwrap_or(0);
    // Peers are the last section.
    let found = || documents.last().filter(|it| it.farthest(rows) > 0).map(|it| it.start_of(it.sections.len() - 1));
    let sought = (view.seeks && view.view == View::Swarm && !view.wanted.is_empty()).then(found).flatten();
    for (column, document) in columns.into_iter().zip(&documents) {
        document.draw(frame, column, sought.unwrap_or(view.scrolled()));
    }
    Limits { farthest, page: rows.saturating_sub(3).max(1), sought, curves: usize::MAX }
}

/// What a view is made of, and the room for it.
struct Seen<'a> {
    overview: &'a Overview,
    view: &'a ViewState,
    theme: Theme,
    /// Columns of a line.
    room: usize,
    /// Rows of the view.
    rows: usize,
}

impl Seen<'_> {
    /// Whether a peer is one that is searched for.
    fn finds(&self, peer: &PeerRow) -> bool {
        self.view.finds(&peer.key) || peer.label.as_deref().is_some_and(|label| self.view.finds(label))
    }
}

/// A peer as its name here, and its key.
fn peer_name(peer: &PeerRow) -> String {
    let key = format!("…{}", peer.key.get(..8).unwrap_or(&peer.key));
    match &peer.label {
        Some(label) => format!("{label} {key}"),
        None => key,
    }
}

/// Numbers of paths.
fn numbers(paths: &[u32]) -> String {
    match paths {
        [] => format::UNKNOWN.to_owned(),
        paths => paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Sections below each other, or in two columns.
fn columns(left: Vec<document::Section>, right: Vec<document::Section>, is_wide: bool) -> Vec<Document> {
    match is_wide {
        true => vec![Document { sections: left }, Document { sections: right }],
        false => vec![Document { sections: left.into_iter().chain(right).collect() }],
    }
}
