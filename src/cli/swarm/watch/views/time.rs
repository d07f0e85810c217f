//! Bytes by kind, shares of time, and what each peer did when.

use std::collections::BTreeMap;

use ratatui::text::Line;

use super::document::{Document, Section};
use super::format::{UNKNOWN, bytes, clock, duration, fixed, percent};
use super::table::{Cell, Column, Table};
use super::text::{fill, width};
use super::{Seen, columns};
use crate::cli::swarm::watch::view::WINDOWS;
use crate::telemetry::overview::{Lane, TimeShares, Work};

/// Characters of a bar.
const BAR: usize = 20;

/// Columns of the names of lanes.
const NAMES: usize = 12;

pub(super) fn documents(seen: &Seen<'_>, is_wide: bool) -> Vec<Document> {
    if seen.overview.summary.asked == 0 {
        return columns(Vec::new(), Vec::new(), is_wide);
    }
    columns(vec![exchanged(seen), shares(seen)], vec![lanes(seen)], is_wide)
}

/// The peers that are asked, with their names.
fn asked<'a>(seen: &'a Seen<'_>) -> impl Iterator<Item = (&'a str, &'a Work)> {
    seen.overview.peers.iter().filter_map(|peer| Some((peer.label.as_deref()?, peer.work.as_ref()?)))
}

fn exchanged(seen: &Seen<'_>) -> Section {
    let theme = seen.theme;
    let mut table = Table::new([
        Column::text("peer").at_least(6),
        Column::number("blobs out"),
        Column::number("blobs in"),
        Column::number("msgs out"),
        Column::number("msgs in"),
        Column::number("contrib."),
        Column::number("averages"),
        Column::number("on disk"),
        Column::number("forwarded").goes(1),
        Column::number("a fetch").goes(2),
    ]);
    for (label, work) in asked(seen) {
        let traffic = work.traffic;
        table.row(vec![
            Cell::styled(label, theme.strong()),
            bytes(traffic.blob_bytes_sent).into(),
            bytes(traffic.blob_bytes_received).into(),
            bytes(traffic.message_bytes_sent).into(),
            bytes(traffic.message_bytes_received).into(),
            bytes(work.contribution_bytes).into(),
            bytes(work.average_bytes).into(),
            bytes(work.disk_bytes).into(),
            bytes(traffic.blob_bytes_forwarded).into(),
            work.fetch_s.map_or_else(|| UNKNOWN.to_owned(), |seconds| format!("{seconds:.2} s")).into(),
        ]);
    }
    let exchange = seen.overview.exchange;
    let (up, down) = (fixed(exchange.bits_up, 2), fixed(exchange.bits_down, 2));
    let words = format!(
        "A parameter costs {up} bits up and {down} bits down in an exchange. Blobs are contributions, averages, states and \
         text; contrib. and averages are compressed outer gradients received as owner and as member."
    );
    let title = Section::title("Bytes", "since each peer started", theme);
    table.section(title, seen.room, theme).remark(&words, seen.room, theme)
}

fn shares(seen: &Seen<'_>) -> Section {
    let theme = seen.theme;
    let mut table = Table::new([
        Column::text("peer").at_least(6),
        Column::text("share of its time"),
        Column::number("trained"),
        Column::number("waited"),
        Column::number("other").goes(1),
        Column::text("longest wait for").at_most(32),
        Column::number("up for").goes(2),
    ]);
    for (label, work) in asked(seen) {
        let time = &work.time;
        let all = time.all().max(1e-9);
        let longest = time.waited_s.first().map(|(name, seconds)| format!("{name} ({})", duration(*seconds)));
        table.row(vec![
            Cell::styled(label, theme.strong()),
            share_bar(time).into(),
            percent(time.trained_s / all).into(),
            percent(time.waited() / all).into(),
            percent(time.other_s / all).into(),
            longest.unwrap_or_else(|| UNKNOWN.to_owned()).into(),
            duration(work.uptime_s as f64).into(),
        ]);
    }
    let title = Section::title("Time", "█ trained  ▒ waited  ░ other: device, start, scoring, done", theme);
    table.section(title, seen.room, theme)
}

fn share_bar(time: &TimeShares) -> String {
    let all = time.all();
    if all <= 0.0 {
        return " ".repeat(BAR);
    }
    let characters = |seconds: f64| (seconds / all * BAR as f64).round() as usize;
    let trained = characters(time.trained_s).min(BAR);
    let waited = characters(time.waited()).min(BAR - trained);
    format!("{}{}{}", "█".repeat(trained), "▒".repeat(waited), "░".repeat(BAR - trained - waited))
}

/// What each peer did when: a line of characters for each.
fn lanes(seen: &Seen<'_>) -> Section {
    let (overview, theme) = (seen.overview, seen.theme);
    let (words, window_s) = WINDOWS[seen.view.window % WINDOWS.len()];
    let remark = if window_s == u64::MAX { "everything known".to_owned() } else { format!("the last {words}") };
    let title = Section::title("What each peer did when", &format!("{remark}; t changes it"), theme);
    let cells = seen.room.saturating_sub(NAMES + 1).max(1);
    let first = overview.lanes.iter().filter_map(|lane| Some(lane.spans.first()?.from_ms)).min();
    let Some(first) = first else { return Section::of(title, vec![Line::from("Nothing has been seen yet.")]) };
    let from_ms = first.max(overview.now_ms.saturating_sub(window_s.saturating_mul(1_000)));
    let legend = Legend::of(&overview.lanes);
    let span_ms = overview.now_ms.saturating_sub(from_ms).max(1);
    let mut rows: Vec<Line<'static>> = overview
        .lanes
        .iter()
        .map(|lane| {
            let at = |cell: usize| from_ms + (span_ms as f64 * cell as f64 / cells as f64) as u64;
            let line: String = (0..cells).map(|cell| legend.character(lane, at(cell), at(cell + 1))).collect();
            Line::from(format!("{} {line}", fill(&lane.label, NAMES, false)))
        })
        .collect();
    let (start, end) = (clock(from_ms), clock(overview.now_ms));
    let between = cells.saturating_sub(width(&start) + width(&end));
    rows.push(Line::styled(format!("{}{start}{}{end}", " ".repeat(NAMES + 1), " ".repeat(between)), theme.faint()));
    Section::of(title, rows).remark(&legend.words(), seen.room, theme)
}

/// The characters of what peers do.
struct Legend(BTreeMap<&'static str, char>);

impl Legend {
    fn of(lanes: &[Lane]) -> Self {
        let waits = lanes.iter().flat_map(|lane| &lane.spans).filter(|span| span.trains.is_none());
        let mut characters = BTreeMap::new();
        for span in waits {
            if !characters.contains_key(span.waits) {
                let free = |it: &char| it.is_ascii_alphabetic() && !characters.values().any(|taken| taken == it);
                // The first letter of its words that no other wait has.
                let initials = span.waits.split(' ').rev().filter_map(|word| word.chars().next());
                let mut candidates = initials.chain(span.waits.chars()).chain('a'..='z');
                let character = candidates.find(free).unwrap_or('?');
                characters.insert(span.waits, character);
            }
        }
        Self(characters)
    }

    fn words(&self) -> String {
        let waits = self.0.iter().map(|(words, character)| format!("{character} {words}"));
        let all = ["█▓ training, phase by phase".to_owned()].into_iter().chain(waits);
        format!("{}; blank: nothing known", all.collect::<Vec<_>>().join("  "))
    }

    /// What a peer did for most of a time.
    fn character(&self, lane: &Lane, from_ms: u64, to_ms: u64) -> char {
        let most = lane.spans.iter().max_by_key(|span| {
            let (from, to) = (span.from_ms.max(from_ms), span.to_ms.min(to_ms.max(from_ms + 1)));
            to.saturating_sub(from)
        });
        match most.filter(|span| span.from_ms < to_ms.max(from_ms + 1) && span.to_ms > from_ms) {
            Some(span) => match span.trains {
                Some((_, phase)) if phase % 2 == 0 => '█',
                Some(_) => '▓',
                None => self.0.get(span.waits).copied().unwrap_or('?'),
            },
            None => ' ',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::overview::LaneSpan;

    #[test]
    fn a_lane_shows_what_took_most_of_each_moment() {
        let span = |from_ms, to_ms, trains, waits| LaneSpan { from_ms, to_ms, trains, waits };
        let lane = Lane {
            label: "a".to_owned(),
            spans: vec![
                span(0, 400, Some((0, 0)), ""),
                span(400, 590, None, "the owner"),
                span(590, 800, Some((0, 1)), ""),
                span(900, 1_000, None, "its turn"),
            ],
        };
        let legend = Legend::of(std::slice::from_ref(&lane));
        let line: String = (0..10).map(|cell| legend.character(&lane, 100 * cell, 100 * (cell + 1))).collect();
        assert_eq!(line, "████oo▓▓ t");
        assert_eq!(legend.words(), "█▓ training, phase by phase  t its turn  o the owner; blank: nothing known");
    }

    #[test]
    fn shares_fill_the_bar() {
        let time = TimeShares { trained_s: 50.0, waited_s: vec![("the owner", 25.0)], other_s: 25.0 };
        assert_eq!(share_bar(&time), "██████████▒▒▒▒▒░░░░░");
        assert_eq!(share_bar(&TimeShares::default()).len(), BAR);
    }
}
