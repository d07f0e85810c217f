//! Plots of the analyses, as SVG, and of images, as PNG.

pub mod routes;
pub mod sheet;

use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 520);
const SMALL: (u32, u32) = (680, 400);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Points or lines of one name.
pub struct Series<'a> {
    /// For the legend.
    pub name: &'a str,
    /// In order.
    pub points: Vec<(f64, f64)>,
}

/// Labels of a plot.
pub struct Labels<'a> {
    /// Title.
    pub title: &'a str,
    /// Along the bottom.
    pub x: &'a str,
    /// Along the side.
    pub y: &'a str,
}

pub(super) fn wrong(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("cannot draw: {error}")
}

fn image(draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>) -> anyhow::Result<String> {
    image_of(SIZE, draw)
}

/// A plot of some size, in pixels.
pub(super) fn image_of(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(wrong)?;
        draw(&root)?;
        root.present().map_err(wrong)?;
    }
    Ok(svg)
}

/// The range of some numbers, with a margin.
fn range(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let finite = values.filter(|value| value.is_finite());
    let (least, most) = (finite.clone().fold(f64::INFINITY, f64::min), finite.fold(f64::NEG_INFINITY, f64::max));
    if least > most {
        return 0.0..1.0;
    }
    let room = 0.05 * (most - least).max(1e-6);
    least - room..most + room
}

/// A number at an axis, without zeros that say nothing.
fn tick(value: &f64) -> String {
    if *value != 0.0 && value.abs() < 1e-4 {
        return format!("{value:.2e}");
    }
    let digits = format!("{value:.5}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    if digits == "-0" { "0".to_owned() } else { digits.to_owned() }
}

fn colour(number: usize, of: usize) -> HSLColor {
    HSLColor(number as f64 / of.max(1) as f64, 0.7, 0.42)
}

/// Lines, or only points.
pub fn chart(labels: &Labels<'_>, series: &[Series<'_>], lines: bool) -> anyhow::Result<String> {
    chart_of((SIZE, SeriesLabelPosition::MiddleRight), labels, series, lines)
}

/// Lines for a page that is also read on small screens. The legend is where the curves leave room, if all fall or all rise.
pub fn curves(labels: &Labels<'_>, series: &[Series<'_>]) -> anyhow::Result<String> {
    let rises = |points: &[(f64, f64)]| matches!(points, [first, .., last] if last.1 > first.1);
    let legend = match series.iter().any(|series| rises(&series.points)) {
        true => SeriesLabelPosition::UpperLeft,
        false => SeriesLabelPosition::UpperRight,
    };
    chart_of((SMALL, legend), labels, series, true)
}

fn chart_of(
    (size, legend): ((u32, u32), SeriesLabelPosition),
    labels: &Labels<'_>,
    series: &[Series<'_>],
    lines: bool,
) -> anyhow::Result<String> {
    let points = || series.iter().flat_map(|series| series.points.iter().copied());
    image_of(size, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(12)
            .caption(labels.title, ("sans-serif", 18))
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(range(points().map(|(x, _)| x)), range(points().map(|(_, y)| y)))
            .map_err(wrong)?;
        chart
            .configure_mesh()
            .x_desc(labels.x)
            .y_desc(labels.y)
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .draw()
            .map_err(wrong)?;
        for (number, Series { name, points }) in series.iter().enumerate() {
            let colour = colour(number, series.len());
            let drawn = if lines {
                chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))
            } else {
                chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, colour.filled())))
            };
            let drawn = drawn.map_err(wrong)?;
            drawn.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
        }
        if series.len() > 1 {
            let mut labels = chart.configure_series_labels();
            let labels = labels.position(legend).background_style(WHITE.mix(0.85)).border_style(BLACK).draw();
            labels.map_err(wrong)?;
        }
        Ok(())
    })
}

/// A table of numbers as colours, from white for the least to dark for the most; rows from the top.
pub fn heat(labels: &Labels<'_>, rows: &[Vec<f64>]) -> anyhow::Result<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let shown = range(rows.iter().flatten().copied());
    image(|root| {
        let mut chart = ChartBuilder::on(root)
            .margin(12)
            .caption(format!("{} ({:.3} to {:.3})", labels.title, shown.start, shown.end), ("sans-serif", 18))
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..columns.max(1) as f64, rows.len().max(1) as f64..0.0)
            .map_err(wrong)?;
        chart.configure_mesh().disable_mesh().x_desc(labels.x).y_desc(labels.y).draw().map_err(wrong)?;
        let cell = |(row, column, value): (usize, usize, f64)| {
            let share = (value - shown.start) / (shown.end - shown.start);
            let place = [(column as f64, row as f64), (column as f64 + 1.0, row as f64 + 1.0)];
            Rectangle::new(place, HSLColor(0.6, 0.7, 1.0 - 0.75 * share.clamp(0.0, 1.0)).filled())
        };
        let cells = rows.iter().enumerate();
        let cells = cells.flat_map(|(row, of)| of.iter().enumerate().map(move |(column, value)| (row, column, *value)));
        chart.draw_series(cells.map(cell)).map_err(wrong)?;
        Ok(())
    })
}

/// A bar for each name, from 0.
pub fn bars(labels: &Labels<'_>, values: &[(String, f64)]) -> anyhow::Result<String> {
    bars_of(SIZE, labels, values)
}

/// The same as high as its bars need, for a page that is also read on small screens.
pub fn few_bars(labels: &Labels<'_>, values: &[(String, f64)]) -> anyhow::Result<String> {
    bars_of((SMALL.0, 110 + 34 * values.len().min(40) as u32), labels, values)
}

fn bars_of(size: (u32, u32), labels: &Labels<'_>, values: &[(String, f64)]) -> anyhow::Result<String> {
    let shown = range(values.iter().map(|(_, value)| *value).chain([0.0]));
    image_of(size, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(12)
            .caption(labels.title, ("sans-serif", 18))
            .x_label_area_size(44)
            .y_label_area_size(170)
            .build_cartesian_2d(shown, (0..values.len().max(1)).into_segmented())
            .map_err(wrong)?;
        let name = |at: &SegmentValue<usize>| match at {
            SegmentValue::CenterOf(number) => values.get(*number).map(|(name, _)| name.clone()).unwrap_or_default(),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .x_desc(labels.x)
            .y_desc(labels.y)
            .y_labels(values.len().max(1))
            .y_label_formatter(&name)
            .draw()
            .map_err(wrong)?;
        let bar = |(number, (_, value)): (usize, &(String, f64))| {
            let place = [(0.0, SegmentValue::Exact(number)), (*value, SegmentValue::Exact(number + 1))];
            let mut bar = Rectangle::new(place, colour(0, 1).filled());
            bar.set_margin(3, 3, 0, 0);
            bar
        };
        chart.draw_series(values.iter().enumerate().map(bar)).map_err(wrong)?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: Labels<'_> = Labels { title: "title", x: "across", y: "up" };

    #[test]
    fn axes_have_no_more_digits_than_they_need() {
        let shown = [500.0, 0.1 + 0.2, -1.5, 0.0, -1e-17, 2e-5].map(|value| tick(&value));
        assert_eq!(shown, ["500", "0.3", "-1.5", "0", "-1.00e-17", "2.00e-5"]);
    }

    #[test]
    fn names_in_images_are_no_markup() {
        let name = "</svg><script>\"'&";
        let labels = Labels { title: name, x: name, y: name };
        let series = || Series { name, points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let images = [curves(&labels, &[series(), series()]), few_bars(&labels, &[(name.to_owned(), 1.0)])];
        for image in images {
            let image = image.unwrap();
            assert!(image.contains("&lt;/svg&gt;&lt;script&gt;") && !image.contains("<script"), "{image}");
        }
    }

    #[test]
    fn images_are_svg_with_their_labels_also_of_nothing_or_one_thing() {
        let series = |points| Series { name: "some", points };
        let images = [
            chart(&LABELS, &[series(vec![(0.0, 1.0), (1.0, 2.0)]), series(vec![(0.5, f64::NAN)])], true),
            chart(&LABELS, &[series(vec![(1.0, 1.0)])], false),
            chart(&LABELS, &[], true),
            heat(&LABELS, &[vec![0.0, 1.0], vec![0.5]]),
            heat(&LABELS, &[]),
            bars(&LABELS, &[("one".to_owned(), -1.0), ("two".to_owned(), 2.0)]),
            bars(&LABELS, &[]),
            curves(&LABELS, &[series(vec![(0.0, 1.0), (1.0, 2.0)]), series(vec![])]),
            few_bars(&LABELS, &[("one".to_owned(), 1.0)]),
        ];
        for image in images {
            let image = image.unwrap();
            assert!(image.starts_with("<svg") && image.contains("title") && image.contains("across"));
        }
    }
}
