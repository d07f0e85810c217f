//! Plots of the training of an experiment's arms.

use plotters::prelude::*;

use crate::experiment::plan::Experiment;
use crate::experiment::results::outcome::{Outcome, Point};

/// The horizontal axis of the held-out loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Inner steps of a path.
    Steps,
    /// Tokens of all paths together, in millions.
    Tokens,
}

impl Axis {
    fn of(self, point: &Point) -> f64 {
        match self {
            Self::Steps => point.steps as f64,
            Self::Tokens => point.tokens as f64 / 1e6,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Steps => "inner steps of a path",
            Self::Tokens => "million tokens of all paths, after the ancestor",
        }
    }
}

const SIZE: (u32, u32) = (900, 560);

/// The first points are so high that they would compress the rest: this quantile of the losses is the highest shown.
const HIGHEST_SHOWN: f64 = 0.98;

/// The mean over the seeds of each arm that has been trained.
fn lines<'a>(experiment: &'a Experiment, outcomes: &[Outcome], axis: Axis) -> Vec<(&'a str, Vec<(f64, f64)>)> {
    let line = |name: &'a str| {
        let curves: Vec<&[Point]> =
            outcomes.iter().filter(|outcome| outcome.arm == name).map(|outcome| &outcome.curve[..]).collect();
        let shortest = curves.iter().map(|curve| curve.len()).min().unwrap_or(0);
        let mean = |at: usize| {
            let count = curves.len() as f64;
            let sum = |value: &dyn Fn(&Point) -> f64| curves.iter().map(|curve| value(&curve[at])).sum::<f64>() / count;
            (sum(&|point| axis.of(point)), sum(&|point| point.loss))
        };
        (name, (0..shortest).map(mean).collect::<Vec<_>>())
    };
    let lines = experiment.arms.iter().map(|arm| line(&arm.name));
    lines.filter(|(_, points)| !points.is_empty()).collect()
}

/// An SVG plot of held-out loss against an axis; `None` if no arm has been trained.
pub fn svg(experiment: &Experiment, outcomes: &[Outcome], axis: Axis) -> anyhow::Result<Option<String>> {
    let lines = lines(experiment, outcomes, axis);
    let points = || lines.iter().flat_map(|(_, points)| points);
    let mut losses: Vec<f64> = points().map(|(_, loss)| *loss).filter(|loss| loss.is_finite()).collect();
    losses.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (losses.first(), losses.get((losses.len() as f64 * HIGHEST_SHOWN) as usize)) else {
        return Ok(None);
    };
    let right = points().map(|(x, _)| *x).fold(0.0, f64::max);
    let margin = 0.05 * (most - least).max(0.01);
    let mut image = String::new();
    {
        let root = SVGBackend::with_string(&mut image, SIZE).into_drawing_area();
        let wrong = |error: DrawingAreaErrorKind<_>| anyhow::anyhow!("cannot draw the plot: {error}");
        root.fill(&WHITE).map_err(wrong)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(12)
            .caption(&experiment.title, ("sans-serif", 18))
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..right, least - margin..most + margin)
            .map_err(wrong)?;
        chart.configure_mesh().x_desc(axis.label()).y_desc("held out nats a token").draw().map_err(wrong)?;
        for (number, (name, points)) in lines.iter().enumerate() {
            let colour = HSLColor(number as f64 / lines.len() as f64, 0.75, 0.42);
            let shown = points.iter().copied().filter(|(_, loss)| *loss <= most + margin);
            let line = chart.draw_series(LineSeries::new(shown, colour.stroke_width(2))).map_err(wrong)?;
            line.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        let labels = chart.configure_series_labels().background_style(WHITE.mix(0.85)).border_style(BLACK).draw();
        labels.map_err(wrong)?;
        root.present().map_err(wrong)?;
    }
    Ok(Some(image))
}
