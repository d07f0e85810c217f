//! The whole screen: tabs, the run in a few numbers, a view, and keys. Drawing has no effect but on the frame.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::document::draw_line;
use super::format::{UNKNOWN, bar, bytes, clock, count, duration, fixed, percent, plural, whole};
use super::keys;
use super::text::{cut, width};
use super::theme::Theme;
use super::view::{Limits, View, ViewState};
use super::views;
use crate::telemetry::overview::Overview;

/// The least size on which everything has its place.
const LEAST: (u16, u16) = (80, 24);

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, overview: &Overview, view: &ViewState, theme: Theme) -> Limits {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        too_small(frame, area);
        return Limits { farthest: usize::MAX, page: 1, sought: None, curves: usize::MAX };
    }
    let rows = [1, 1, 1, 1].map(Constraint::Length).into_iter().chain([Constraint::Min(0), Constraint::Length(1)]);
    let [tabs, first, second, rule, body, foot] = Layout::vertical(rows).areas(area);
    draw_tabs(frame, tabs, overview, view, theme);
    let [one, other] = summary(overview, view, area.width.into(), theme);
    draw_line(frame, first, one);
    draw_line(frame, second, other);
    draw_line(frame, rule, Line::styled("─".repeat(rule.width.into()), theme.faint()));
    let limits = views::draw(frame, body, overview, view, theme);
    footer(frame, foot, overview, view, (limits, body.height), theme);
    if view.shows_help {
        help(frame, area, theme);
    }
    limits
}

/// One line, as much of it as there is room for.
fn too_small(frame: &mut Frame<'_>, area: Rect) {
    if let Some(row) = area.rows().next() {
        let words = format!("{}x{}: 80x24 are needed; q leaves", area.width, area.height);
        frame.render_widget(Line::from(cut(&words, area.width.into())), row);
    }
}

fn draw_tabs(frame: &mut Frame<'_>, area: Rect, overview: &Overview, view: &ViewState, theme: Theme) {
    let mut spans = Vec::new();
    for (at, tab) in View::ALL.into_iter().enumerate() {
        let unseen = if tab == View::Events { view.unseen(overview) } else { 0 };
        let news = if unseen > 0 { format!(" {}!", unseen.min(99)) } else { String::new() };
        let title = format!("{} {}{news}", at + 1, tab.title());
        spans.push(match tab == view.view {
            true => Span::styled(format!("[{title}]"), theme.chosen()),
            false => Span::raw(format!(" {title} ")),
        });
    }
    let tabs = Line::from(spans);
    let room = usize::from(area.width).saturating_sub(tabs.width() + 1);
    let (name, id) = (&overview.run.name, overview.run.id.get(..8).unwrap_or(&overview.run.id));
    let run = if room > width(name) + width(id) + 4 { format!("{name} ({id})") } else { name.clone() };
    let run = cut(&run, room);
    let place = Rect { x: area.right() - u16::try_from(width(&run)).unwrap_or(0), width: area.width, ..area };
    frame.render_widget(tabs, area);
    frame.render_widget(Line::styled(run, theme.strong()), place.intersection(area));
}

/// The run in two lines.
fn summary(overview: &Overview, view: &ViewState, room: usize, theme: Theme) -> [Line<'static>; 2] {
    let summary = &overview.summary;
    if let Some(stage) = overview.stage.as_ref().filter(|_| summary.asked == 0 || overview.run.name.is_empty()) {
        let share = stage.done as f64 / stage.total.max(1) as f64;
        let line = format!("Preparing: {}  {} {}", stage.name, bar(share, 20), percent(share));
        return [Line::from(line), Line::default()];
    }
    if summary.asked == 0 {
        let line = format!("No peer has answered yet. Looking in {}", view.source);
        return [
            Line::styled(line, theme.strong()),
            Line::styled("This screen follows it once a second.", theme.faint()),
        ];
    }
    let left = match summary.left_s {
        _ if summary.done => "all paths are done".to_owned(),
        Some(left_s) => format!("~{} left", duration(left_s)),
        None => {
            overview.run.phases.map_or_else(String::new, |phases| format!("of {}", plural(phases as usize, "phase")))
        }
    };
    let first = vec![
        Span::raw(format!("{} {}  ", bar(summary.progress, 10), percent(summary.progress))),
        Span::styled(left, theme.faint()),
        Span::raw("  loss "),
        Span::styled(fixed(summary.loss, 3), theme.strong()),
        Span::styled(" nats", theme.faint()),
        Span::raw("  held out "),
        Span::styled(fixed(summary.bits_per_byte, 3), theme.strong()),
        Span::styled(" bits/byte", theme.faint()),
    ];
    let waits = match summary.waiting {
        0 => String::new(),
        1 => ", 1 path waits".to_owned(),
        more => format!(", {more} paths wait"),
    };
    let (now, style) = match summary {
        _ if summary.done => ("done", theme.plain()),
        _ if summary.training > 0 => ("training", theme.good()),
        _ if summary.waiting > 0 => ("waiting", theme.warning()),
        _ => ("starting", theme.plain()),
    };
    let speed = if summary.training > 0 { count(summary.tokens_per_s) } else { UNKNOWN.to_owned() };
    let mut second = Line::from(vec![
        Span::styled(now, style.patch(theme.strong())),
        Span::raw(format!(": {} of {}{waits}", summary.training, plural(summary.asked, "peer"))),
        Span::raw(format!("  {speed} tokens/s")),
        Span::styled(
            format!("  {} out, {} in", bytes(summary.bytes_sent), bytes(summary.bytes_received)),
            theme.faint(),
        ),
    ]);
    let known = format!("  {} known", whole(summary.known as u64));
    if summary.known > summary.asked && second.width() + width(&known) <= room {
        second.push_span(Span::raw(known));
    }
    [Line::from(first), second]
}

fn footer(
    frame: &mut Frame<'_>,
    area: Rect,
    overview: &Overview,
    view: &ViewState,
    (limits, rows): (Limits, u16),
    theme: Theme,
) {
    let mut spans = Vec::new();
    if view.is_typing {
        spans.push(Span::styled(format!("find: {}▏", cut(&view.wanted, 30)), theme.strong()));
        spans.push(Span::raw("  "));
    }
    for (key, words) in keys::hints(view) {
        spans.push(Span::styled(key, theme.strong()));
        spans.push(Span::styled(format!(" {words}  "), theme.faint()));
    }
    if !view.wanted.is_empty() && !view.is_typing {
        spans.push(Span::styled(format!("only “{}” (Esc: all)", cut(&view.wanted, 12)), theme.warning()));
    }
    let place = match limits.farthest {
        0 => String::new(),
        farthest => {
            let (last, all) = (view.scrolled().min(farthest) + usize::from(rows), farthest + usize::from(rows));
            format!("{last} of {all}  ")
        }
    };
    let right = format!("{place}{}", clock(overview.now_ms));
    let left = Line::from(spans);
    let columns = u16::try_from(width(&right)).unwrap_or(0);
    let [keys, end] = Layout::horizontal([Constraint::Min(0), Constraint::Length(columns)]).areas(area);
    draw_line(frame, keys, left);
    frame.render_widget(Line::styled(right, theme.faint()), end);
}

fn help(frame: &mut Frame<'_>, area: Rect, theme: Theme) {
    let line = |(key, words): (&str, &str)| {
        let blank = " ".repeat(11_usize.saturating_sub(width(key)));
        Line::from(vec![Span::styled(format!(" {key}{blank}"), theme.strong()), Span::raw(words.to_owned())])
    };
    let lines: Vec<Line<'_>> = keys::ALL.into_iter().map(line).collect();
    let size = |length: usize, most: u16| u16::try_from(length).unwrap_or(most).min(most);
    let columns = size(lines.iter().map(Line::width).max().unwrap_or(0) + 3, area.width);
    let rows = size(lines.len() + 2, area.height);
    let [middle] = Layout::vertical([Constraint::Length(rows)]).flex(ratatui::layout::Flex::Center).areas(area);
    let [place] = Layout::horizontal([Constraint::Length(columns)]).flex(ratatui::layout::Flex::Center).areas(middle);
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys (any key closes this) ")), place);
}
