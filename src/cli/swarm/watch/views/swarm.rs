//! What is waited for; modules, paths and peers.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::document::{Document, Section};
use super::format::{UNKNOWN, bar, clock, count, duration, fixed, whole};
use super::table::{Cell, Column, Table};
use super::text::wrap;
use super::{Seen, columns, numbers, peer_name};
use crate::telemetry::overview::{Agreement, Health, ModuleRow, PathRow, PeerRow, WaitRow};

/// Waits that are told unless all are wanted: a quarter of the screen, two lines each.
fn most_waits(rows: usize) -> usize {
    (rows / 8).max(2)
}

/// Waiting paths that are named.
const MOST_NAMES: usize = 6;

pub(super) fn documents(seen: &Seen<'_>, is_wide: bool) -> Vec<Document> {
    if seen.overview.summary.asked == 0 {
        return columns(Vec::new(), Vec::new(), is_wide);
    }
    let mut left = vec![waits(seen)];
    left.extend(modules(seen));
    columns(left, vec![paths(seen), peers(seen)], is_wide)
}

fn waits(seen: &Seen<'_>) -> Section {
    let (overview, theme) = (seen.overview, seen.theme);
    let title = |remark: &str| Section::title("Waiting", remark, theme);
    if overview.waits.is_empty() && overview.silences.is_empty() {
        let nothing = match overview.summary.done {
            true => "Nothing: all paths here are done.",
            false => "Nothing: every path here trains.",
        };
        return Section::of(title(""), vec![Line::from(nothing)]);
    }
    let most = if seen.view.shows_all_waits { usize::MAX } else { most_waits(seen.rows) };
    let mut rows: Vec<Line<'static>> = Vec::new();
    for silence in overview.silences.iter().take(most) {
        let since = clock(silence.since_ms);
        let words = format!("has not answered since {since}: what is shown of it is from then.");
        rows.extend(wrapped(seen, &silence.label, &words, theme.bad()));
    }
    for wait in overview.waits.iter().take(most) {
        rows.extend(wrapped(seen, &who(wait), &format!("{} {}", verb(wait), wait.words), theme.strong()));
        rows.extend(
            wrap(&details(seen, wait), seen.room - 2)
                .into_iter()
                .map(|it| Line::styled(format!("  {it}"), theme.faint())),
        );
    }
    let hidden = overview.waits.len().saturating_sub(most) + overview.silences.len().saturating_sub(most);
    if hidden > 0 {
        rows.push(Line::styled(format!("and {hidden} more: press w"), theme.faint()));
    }
    Section::of(title(""), rows)
}

/// A name in front of words, in as many lines as they need.
fn wrapped(seen: &Seen<'_>, name: &str, words: &str, style: Style) -> Vec<Line<'static>> {
    let mut lines = wrap(&format!("{name} {words}"), seen.room).into_iter();
    let first = lines.next().unwrap_or_default();
    let first = match first.strip_prefix(name) {
        Some(rest) => Line::from(vec![Span::styled(name.to_owned(), style), Span::raw(rest.to_owned())]),
        None => Line::styled(first, style),
    };
    std::iter::once(first).chain(lines.map(Line::from)).collect()
}

fn who(wait: &WaitRow) -> String {
    let named = wait.who.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match wait.who.len().saturating_sub(MOST_NAMES) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn verb(wait: &WaitRow) -> &'static str {
    if wait.who.len() == 1 { "waits for" } else { "wait for" }
}

fn details(seen: &Seen<'_>, wait: &WaitRow) -> String {
    let since = wait.since_ms.map(|since_ms| {
        let waited_s = seen.overview.now_ms.saturating_sub(since_ms) as f64 / 1e3;
        format!("since {} ({})", clock(since_ms), duration(waited_s))
    });
    let left = wait.left_s.map(|left_s| format!("at most {} more", duration(left_s as f64)));
    let parts = since.into_iter().chain(left).chain([wait.then.to_owned()]);
    parts.collect::<Vec<_>>().join(" · ")
}

/// A section for each level.
fn modules(seen: &Seen<'_>) -> Vec<Section> {
    let mut levels: Vec<usize> = seen.overview.modules.iter().map(|module| module.level).collect();
    levels.dedup();
    levels.into_iter().map(|level| modules_of(seen, level)).collect()
}

fn modules_of(seen: &Seen<'_>, level: usize) -> Section {
    let (overview, theme) = (seen.overview, seen.theme);
    let mut table = Table::new([
        Column::text("module"),
        Column::text("owner"),
        Column::number("version"),
        Column::number("members"),
        Column::text("state"),
        Column::text("rounds"),
        Column::number("late").goes(2),
        Column::text("hash").goes(1),
    ]);
    for module in overview.modules.iter().filter(|module| module.level == level) {
        let (words, style) = agreement(seen, module);
        table.row(vec![
            Cell::styled(module.name.clone(), theme.strong()),
            module.owner.clone().unwrap_or_else(|| "nobody".to_owned()).into(),
            module.version.map_or_else(|| UNKNOWN.to_owned(), whole).into(),
            whole(module.members as u64).into(),
            Cell::styled(words, style),
            rounds(seen, module).into(),
            format!("{:.1}", module.late).into(),
            Cell::styled(module.hash.as_deref().map_or(UNKNOWN, |hash| hash.get(..8).unwrap_or(hash)), theme.faint()),
        ]);
    }
    let parts = overview.run.levels.get(level).map_or("", String::as_str);
    table.section(Section::title(&format!("Modules of level {level}"), parts, theme), seen.room, theme)
}

fn agreement(seen: &Seen<'_>, module: &ModuleRow) -> (&'static str, Style) {
    let theme = seen.theme;
    match module.agreement {
        Agreement::Agrees => ("agrees", theme.good()),
        Agreement::Differs => ("DIFFERS", theme.bad()),
        Agreement::NoOwner => ("no owner", theme.warning()),
        Agreement::NoReplica => ("no replica", theme.warning()),
        Agreement::Arriving => ("arriving", theme.plain()),
        Agreement::Elsewhere => ("elsewhere", theme.faint()),
    }
}

fn rounds(seen: &Seen<'_>, module: &ModuleRow) -> String {
    match (module.phase, seen.overview.run.phases) {
        (Some(phase), Some(phases)) => {
            format!("{} {phase}/{phases}", bar(phase as f64 / phases.max(1) as f64, 8))
        }
        (Some(phase), None) => phase.to_string(),
        (None, _) => UNKNOWN.to_owned(),
    }
}

fn paths(seen: &Seen<'_>) -> Section {
    let (overview, theme) = (seen.overview, seen.theme);
    let mut table = Table::new([
        Column::text("path"),
        Column::text("modules").at_most(40).goes(3),
        Column::text("trainer").at_least(9),
        Column::text("stage"),
        Column::number("phase"),
        Column::number("step"),
        Column::number("loss"),
        Column::number("bits/byte"),
        Column::number("tokens/s"),
    ]);
    for path in &overview.paths {
        let (stage, style) = stage(seen, path);
        table.row(vec![
            Cell::styled(path_name(path), theme.strong()),
            Cell::styled(route(seen, path), theme.faint()),
            path.who.clone().unwrap_or_else(|| UNKNOWN.to_owned()).into(),
            Cell::styled(stage, style),
            of(path.phase, overview.run.phases).into(),
            of(path.step, overview.run.inner_steps).into(),
            fixed(path.loss, 3).into(),
            fixed(path.bits_per_byte, 3).into(),
            path.tokens_per_s.map_or_else(|| UNKNOWN.to_owned(), count).into(),
        ]);
    }
    table.section(Section::title("Paths", "and who trains them", theme), seen.room, theme)
}

/// The number, which trainer of several it is, and the path of the grid that it stands for, if that is another.
fn path_name(path: &PathRow) -> String {
    let trainer = if path.trainer > 1 { format!(" · {}", path.trainer) } else { String::new() };
    let drawn = path.drawn.map_or_else(String::new, |drawn| format!(" ({drawn})"));
    format!("{}{drawn}{trainer}", path.path)
}

fn route(seen: &Seen<'_>, path: &PathRow) -> String {
    let experts = seen.overview.routes.get(path.path as usize).map_or(&[][..], Vec::as_slice);
    let modules = experts.iter().enumerate().map(|(level, expert)| format!("{level}.{expert}"));
    modules.collect::<Vec<_>>().join(" ")
}

fn stage(seen: &Seen<'_>, path: &PathRow) -> (String, Style) {
    let theme = seen.theme;
    if let Some(silent_s) = path.silent_s {
        return (format!("silent {}", duration(silent_s as f64)), theme.bad());
    }
    let style = match path.stage.as_str() {
        "training" => theme.good(),
        "waiting" | "leaving" => theme.warning(),
        "no trainer" => theme.bad(),
        _ => theme.plain(),
    };
    (path.stage.clone(), style)
}

fn of(value: Option<u64>, all: Option<u64>) -> String {
    match (value, all) {
        (Some(value), Some(all)) => format!("{value}/{all}"),
        (Some(value), None) => value.to_string(),
        (None, _) => UNKNOWN.to_owned(),
    }
}

fn peers(seen: &Seen<'_>) -> Section {
    let (overview, theme) = (seen.overview, seen.theme);
    let mut table = Table::new([
        Column::text("peer").at_most(34),
        Column::text("state"),
        Column::text("paths").at_most(12),
        Column::text("stands by").at_most(12).goes(2),
        Column::text("modules").at_least(16),
        Column::number("steps/s").goes(1),
        Column::number("counted"),
        Column::number("faults"),
        Column::text("why").at_most(40).goes(3),
    ]);
    let found: Vec<&PeerRow> = overview.peers.iter().filter(|peer| seen.finds(peer)).collect();
    for peer in &found {
        let (state, style) = health(seen, peer);
        table.row(vec![
            Cell::styled(peer_name(peer), if peer.label.is_some() { theme.strong() } else { theme.plain() }),
            Cell::styled(state, style),
            numbers(&peer.paths).into(),
            numbers(&peer.stands_by).into(),
            versions(peer).into(),
            fixed(peer.steps_per_s, 1).into(),
            whole(peer.counted).into(),
            whole(peer.faults).into(),
            peer.why.clone().unwrap_or_else(|| UNKNOWN.to_owned()).into(),
        ]);
    }
    let remark = match (found.len(), overview.peers.len()) {
        (shown, all) if shown == all => format!("{} known", whole(all as u64)),
        (shown, all) => format!("{} of {}, with “{}”", whole(shown as u64), whole(all as u64), seen.view.wanted),
    };
    let section = table.section(Section::title("Peers", &remark, theme), seen.room, theme);
    // In a narrow table there is no room for the reasons.
    let reasons = found.iter().filter_map(|peer| Some(format!("{}: {}", peer_name(peer), peer.why.as_deref()?)));
    let is_shown = section.header.as_ref().is_some_and(|header| header.to_string().contains("why"));
    match is_shown {
        true => section,
        false => reasons.fold(section, |section, reason| section.remark(&reason, seen.room, theme)),
    }
}

fn health(seen: &Seen<'_>, peer: &PeerRow) -> (String, Style) {
    let theme = seen.theme;
    match &peer.health {
        Health::Lives => ("lives".to_owned(), theme.good()),
        Health::Silent { for_s } => (format!("silent {}", duration(*for_s as f64)), theme.warning()),
        Health::Unanswered => ("no answer".to_owned(), theme.bad()),
        Health::Differs => ("DIFFERS".to_owned(), theme.bad()),
        Health::Quarantined => ("quarantined".to_owned(), theme.bad()),
        Health::Banned => ("banned".to_owned(), theme.bad()),
    }
}

fn versions(peer: &PeerRow) -> String {
    let version = |(name, version): &(String, Option<u64>)| match version {
        Some(version) => format!("{name}@{version}"),
        None => format!("{name}@{UNKNOWN}"),
    };
    let listed = peer.modules.iter().map(version).collect::<Vec<_>>().join(" ");
    match peer.module_count - peer.modules.len() {
        0 => listed,
        more => format!("{listed} +{more}"),
    }
}
