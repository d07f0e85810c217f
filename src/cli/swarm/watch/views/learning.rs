//! Curves of what is learnt: one chart with its newest values, or on a large screen all charts.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis as ChartAxis, Block, Borders, Chart, Dataset, GraphType, Paragraph};

use super::document::draw_line;
use super::format::{clock, count, fixed, percent};
use super::text::{cut, fill};
use crate::cli::swarm::watch::theme::Theme;
use crate::cli::swarm::watch::view::{Limits, ViewState};
use crate::telemetry::overview::{Axis, Overview, Quantity, ShownLine};

/// From this size on, all charts are shown.
const LARGE: (u16, u16) = (150, 40);

/// Columns of the list of curves.
const LIST: u16 = 30;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, overview: &Overview, view: &ViewState, theme: Theme) -> Limits {
    let lines = overview.lines(view.quantity, view.axis);
    let curve = view.curve.min(lines.len());
    let chosen = curve.checked_sub(1).and_then(|at| lines.get(at)).cloned();
    let [charts, list] = Layout::horizontal([Constraint::Min(0), Constraint::Length(LIST)]).spacing(1).areas(area);
    if area.width >= LARGE.0 && area.height >= LARGE.1 {
        let has = |quantity: &Quantity| !overview.lines(*quantity, view.axis).is_empty();
        let always = [view.quantity, Quantity::Loss, Quantity::HeldOut];
        let shown: Vec<Quantity> = Quantity::ALL.into_iter().filter(|it| always.contains(it) || has(it)).collect();
        let rows = Layout::vertical(vec![Constraint::Fill(1); shown.len().div_ceil(2)]).spacing(1).split(charts);
        let side_by_side = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2);
        let places = rows.iter().flat_map(|row| side_by_side.areas::<2>(*row));
        for (quantity, place) in shown.into_iter().zip(places) {
            draw_chart(frame, place, overview, (quantity, view), chosen.as_ref(), theme);
        }
    } else {
        draw_chart(frame, charts, overview, (view.quantity, view), chosen.as_ref(), theme);
    }
    draw_list(frame, list, (&lines, curve), view, theme);
    Limits { farthest: 0, page: usize::from(area.height), sought: None, curves: lines.len() }
}

fn title(quantity: Quantity) -> (&'static str, &'static str) {
    match quantity {
        Quantity::Loss => ("Training loss by path", "nats/token"),
        Quantity::ModuleLoss => ("Training loss by module", "nats/token"),
        Quantity::HeldOut => ("Held-out text by path", "bits/byte"),
        Quantity::Speed => ("Speed by path", "tokens/s"),
        Quantity::GradientNorm => ("Gradient norm by path", "before clipping"),
        Quantity::LearningRate => ("Learning rate by path", "of the schedule"),
    }
}

fn nothing(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::ModuleLoss => "No level is known to have several modules, or no step has been reported yet.",
        Quantity::HeldOut => {
            "No path has been scored yet: standbys score while they wait, and every path is scored at the end."
        }
        Quantity::GradientNorm | Quantity::LearningRate => "Known only where the peer itself shows its curves.",
        _ => "No step has been reported yet.",
    }
}

fn value(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Speed => count(value),
        Quantity::LearningRate => format!("{value:.1e}"),
        Quantity::GradientNorm => fixed(Some(value), 2),
        _ => fixed(Some(value), 3),
    }
}

fn draw_chart(
    frame: &mut Frame<'_>,
    area: Rect,
    overview: &Overview,
    (quantity, view): (Quantity, &ViewState),
    chosen: Option<&ShownLine>,
    theme: Theme,
) {
    let (name, unit) = title(quantity);
    let against = match (quantity, view.axis) {
        (Quantity::HeldOut, _) => "phases",
        (_, Axis::Steps) => "inner steps",
        (_, Axis::Tokens) => "tokens",
        (_, Axis::Time) => "time",
    };
    // Of several charts, the one whose values are listed.
    let mark = if quantity == view.quantity && area.width < frame.area().width / 2 { "▸ " } else { "" };
    let title = Line::from(vec![
        Span::styled(format!("{mark}{name}"), theme.title()),
        Span::styled(format!("  {unit} · {against}"), theme.faint()),
    ]);
    let lines = overview.lines(quantity, view.axis);
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    draw_line(frame, head, title);
    let is_shown = |(at, line): &(usize, &ShownLine)| match chosen {
        // The chosen path in every chart; a module only in its own.
        Some(chosen) if chosen.path.is_some() && line.path.is_some() => chosen.label == line.label,
        Some(chosen) if quantity == view.quantity => chosen.label == line.label,
        _ => *at < usize::MAX,
    };
    let shown: Vec<(usize, &ShownLine)> = lines.iter().enumerate().filter(is_shown).collect();
    let points = || shown.iter().flat_map(|(_, line)| &line.points).copied();
    let (Some(x), Some(y)) = (range(points().map(|point| point.0)), range(points().map(|point| point.1))) else {
        frame.render_widget(Paragraph::new(nothing(quantity)).style(theme.faint()).wrap(Default::default()), body);
        return;
    };
    let y = (y.0 - 0.05 * (y.1 - y.0), y.1 + 0.05 * (y.1 - y.0));
    let datasets: Vec<Dataset<'_>> = shown.iter().map(|(at, line)| dataset(line, *at, theme)).collect();
    let words = |at: f64| match (quantity, view.axis) {
        (Quantity::HeldOut, _) => format!("{at:.0}"),
        (_, Axis::Time) => clock((1e3 * at) as u64),
        _ => count(at),
    };
    let labels = |(low, high): (f64, f64), number: usize, words: &dyn Fn(f64) -> String| -> Vec<Line<'static>> {
        let step = (high - low) / (number - 1) as f64;
        (0..number).map(|at| Line::styled(words(low + step * at as f64), theme.plain())).collect()
    };
    let below = if body.width > 60 { 4 } else { 3 };
    let beside = if body.height > 12 { 5 } else { 3 };
    let chart = Chart::new(datasets)
        .x_axis(ChartAxis::default().bounds([x.0, x.1]).style(theme.faint()).labels(labels(x, below, &words)))
        .y_axis(
            ChartAxis::default()
                .bounds([y.0, y.1])
                .style(theme.faint())
                .labels(labels(y, beside, &|at| value(quantity, at)))
                .labels_alignment(Alignment::Right),
        )
        .legend_position(None);
    frame.render_widget(chart, body);
}

fn dataset<'a>(line: &'a ShownLine, number: usize, theme: Theme) -> Dataset<'a> {
    let is_point = line.points.len() < 2;
    Dataset::default()
        .marker(if is_point { Marker::Dot } else { Marker::Braille })
        .graph_type(if is_point { GraphType::Scatter } else { GraphType::Line })
        .style(theme.curve(number))
        .data(&line.points)
}

/// The least and the greatest of finite values, somewhat apart.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let both = |range: (f64, f64), value: f64| (range.0.min(value), range.1.max(value));
    let (low, high) = values
        .filter(|value| value.is_finite())
        .map(|value| (value, value))
        .reduce(|range, (value, _)| both(range, value))?;
    let apart = if high > low { 0.0 } else { high.abs().max(1.0) * 0.01 };
    Some((low - apart, high + apart))
}

/// The curves with their newest and least values. The chosen one is drawn alone: colours alone tell nobody.
fn draw_list(
    frame: &mut Frame<'_>,
    area: Rect,
    (lines, chosen): (&[ShownLine], usize),
    view: &ViewState,
    theme: Theme,
) {
    let block = Block::new().borders(Borders::LEFT).border_style(theme.faint());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let room = usize::from(inner.width);
    let name = room.saturating_sub(19);
    let least = if view.quantity == Quantity::Speed { "most" } else { "least" };
    let row = |mark: &str, label: &str, newest: &str, least: &str| {
        format!("{mark} {} {newest:>7} {least:>7}", fill(label, name, false))
    };
    let mut rows = vec![
        Line::styled(row(" ", "", "newest", least), theme.faint()),
        Line::styled(
            cut(&format!("{} all {} curves", if chosen == 0 { "▸" } else { " " }, lines.len()), room),
            if chosen == 0 { theme.chosen() } else { theme.plain() },
        ),
    ];
    // The chosen one is in sight.
    let fits = usize::from(inner.height).saturating_sub(rows.len() + 1).max(1);
    let first = chosen.saturating_sub(fits);
    for (at, line) in lines.iter().enumerate().skip(first).take(fits) {
        let values = || line.points.iter().map(|point| point.1);
        let far = if view.quantity == Quantity::Speed { values().reduce(f64::max) } else { values().reduce(f64::min) };
        let text = |it: Option<f64>| it.map_or_else(String::new, |it| value(view.quantity, it));
        let mark = if chosen == at + 1 { "▸" } else { "■" };
        let style = if chosen == at + 1 { theme.chosen() } else { theme.curve(at) };
        let label = short_label(&line.label);
        rows.push(Line::styled(row(mark, &label, &text(values().next_back()), &text(far)), style));
    }
    if lines.len() > fits {
        let share = (first + fits) as f64 / lines.len() as f64;
        rows.push(Line::styled(format!("  {} of the curves", percent(share.min(1.0))), theme.faint()));
    }
    frame.render_widget(Paragraph::new(rows), inner);
}

/// `path 3, trainer 2` in little room.
fn short_label(label: &str) -> String {
    label.replace(", trainer ", " · ").replace("dense control", "dense")
}
