//! What each peer has contributed, so that credit can be given.

use ratatui::text::{Line, Span};

use super::document::{Document, Section};
use super::format::{UNKNOWN, bar, bytes, count, duration, percent, whole};
use super::table::{Cell, Column, Table};
use super::text::wrap;
use super::{Seen, numbers, peer_name};
use crate::telemetry::overview::PeerRow;

pub(super) fn document(seen: &Seen<'_>) -> Document {
    if seen.overview.summary.asked == 0 {
        return Document::default();
    }
    Document { sections: [credit(seen)].into_iter().chain(joining(seen)).collect() }
}

fn credit(seen: &Seen<'_>) -> Section {
    let theme = seen.theme;
    let mut peers: Vec<&PeerRow> = seen.overview.peers.iter().filter(|peer| seen.finds(peer)).collect();
    let tokens = |peer: &PeerRow| peer.work.as_ref().map_or(0, |work| work.tokens);
    peers.sort_by_key(|peer| std::cmp::Reverse((peer.counted, tokens(peer))));
    let all = seen.overview.peers.iter().map(|peer| peer.counted).sum::<u64>().max(1);
    let mut table = Table::new([
        Column::text("peer").at_least(9),
        Column::number("counted"),
        Column::text("share"),
        Column::number("faults"),
        Column::number("tokens"),
        Column::number("phases"),
        Column::number("served"),
        Column::number("audits").goes(3),
        Column::number("up for").goes(2),
        Column::text("paths").at_most(20).goes(4),
    ]);
    for peer in peers {
        let share = peer.counted as f64 / all as f64;
        let work = peer.work.as_ref();
        let known = |text: Option<String>| Cell::from(text.unwrap_or_else(|| UNKNOWN.to_owned()));
        table.row(vec![
            Cell::styled(peer_name(peer), if peer.label.is_some() { theme.strong() } else { theme.plain() }),
            whole(peer.counted).into(),
            format!("{} {}", bar(share, 8), percent(share)).into(),
            whole(peer.faults).into(),
            known(work.map(|work| count(work.tokens as f64))),
            known(work.map(|work| whole(work.phases_trained))),
            known(work.map(|work| bytes(work.traffic.blob_bytes_sent + work.traffic.blob_bytes_forwarded))),
            known(work.map(|work| whole(work.audited))),
            known(work.map(|work| duration(work.uptime_s as f64))),
            numbers(&peer.paths).into(),
        ]);
    }
    let words = "Counted are contributions in updates that their owners have signed and that these peers have applied since \
                 they started. Tokens, phases and bytes served are known of the peers that are asked alone.";
    let title = Section::title("Who has contributed what", "", theme);
    table.section(title, seen.room, theme).remark(words, seen.room, theme)
}

fn joining(seen: &Seen<'_>) -> Option<Section> {
    let address = seen.overview.address.as_deref()?;
    let title = Section::title("Take part", "another machine joins with", seen.theme);
    let lines = wrap(&format!("pathswarm join {address}"), seen.room).into_iter();
    Some(Section::of(title, lines.map(|line| Line::from(Span::styled(line, seen.theme.strong()))).collect()))
}
