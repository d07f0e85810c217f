//! Curves of what is learnt, and the lines of a chart of them.

use crate::telemetry::curves::series::Point;
use crate::telemetry::overview::Overview;
use crate::telemetry::state::State;

/// Curves that are kept with all of their points: a chart of more cannot be read.
const MOST_CURVES: usize = 24;

/// Points of a curve after which it is smoothed.
const SMOOTHED_FROM: usize = 20;

/// A level of more modules is not drawn by module.
const MOST_EXPERTS: usize = 16;

/// The training of one path, by one trainer; or the dense control.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    pub label: String,
    /// Nothing for the dense control.
    pub path: Option<u32>,
    pub samples: Vec<Sample>,
}

/// A point of a curve. What is 0 is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since 1970.
    pub at_s: f64,
    pub step: u64,
    pub tokens: u64,
    /// Nats a token.
    pub loss: f64,
    pub tokens_per_s: f64,
    pub gradient_norm: f64,
    pub learning_rate: f64,
}

/// Held-out bits per byte of a path, by phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoreCurve {
    pub path: u32,
    pub points: Vec<(f64, f64)>,
}

/// What a chart shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quantity {
    #[default]
    Loss,
    /// The mean loss of the paths that go through a module.
    ModuleLoss,
    HeldOut,
    Speed,
    GradientNorm,
    LearningRate,
}

impl Quantity {
    pub const ALL: [Self; 6] =
        [Self::Loss, Self::ModuleLoss, Self::HeldOut, Self::Speed, Self::GradientNorm, Self::LearningRate];
}

/// Against what a chart shows it. Held-out scores are always shown against phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    #[default]
    Steps,
    Tokens,
    Time,
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownLine {
    pub label: String,
    /// The path, if the line is of one.
    pub path: Option<u32>,
    pub points: Vec<(f64, f64)>,
}

pub(super) fn curves(state: &State) -> Vec<Curve> {
    let sample = |point: &Point| Sample {
        at_s: point.at_ms as f64 / 1e3,
        step: point.step,
        tokens: point.tokens,
        loss: point.loss,
        tokens_per_s: point.tokens_per_s,
        gradient_norm: point.gradient_norm,
        learning_rate: point.learning_rate,
    };
    let mut named: Vec<(Option<(u32, u32)>, &String)> =
        state.series.keys().filter_map(|name| Some((place(name)?, name))).collect();
    named.sort();
    let curve = |(place, name): (Option<(u32, u32)>, &String)| {
        let samples: Vec<Sample> = state.series.get(name)?.points().iter().map(sample).collect();
        let label = match place {
            None => "dense control".to_owned(),
            Some((path, 1)) => format!("path {path}"),
            Some((path, trainer)) => format!("path {path}, trainer {trainer}"),
        };
        (!samples.is_empty()).then_some(Curve { label, path: place.map(|(path, _)| path), samples })
    };
    named.into_iter().filter_map(curve).take(MOST_CURVES).collect()
}

/// The path and the trainer of a curve's name; no path for the dense control.
fn place(name: &str) -> Option<Option<(u32, u32)>> {
    if name == "dense" {
        return Some(None);
    }
    let mut parts = name.strip_prefix("path/")?.split('/');
    let path = parts.next()?.parse().ok()?;
    let trainer = parts.next().map_or(Ok(1), str::parse).ok()?;
    Some(Some((path, trainer)))
}

pub(super) fn scores(state: &State) -> Vec<ScoreCurve> {
    let curve = |(path, scores): (&u32, &Vec<(u64, u64, u32)>)| ScoreCurve {
        path: *path,
        points: scores.iter().map(|(phase, _, bits)| (*phase as f64, f64::from(*bits) / 1e3)).collect(),
    };
    state.held_out.iter().map(curve).take(MOST_CURVES).collect()
}

impl Overview {
    /// The lines of a chart.
    pub fn lines(&self, quantity: Quantity, axis: Axis) -> Vec<ShownLine> {
        match quantity {
            Quantity::ModuleLoss => self.by_module(axis),
            Quantity::HeldOut => {
                let line = |scores: &ScoreCurve| ShownLine {
                    label: format!("path {}", scores.path),
                    path: Some(scores.path),
                    points: scores.points.clone(),
                };
                self.scores.iter().filter(|scores| !scores.points.is_empty()).map(line).collect()
            }
            Quantity::LearningRate => self.by_path(quantity, axis),
            _ => {
                let lines = self.by_path(quantity, axis).into_iter();
                lines.map(|line| ShownLine { points: smoothed(line.points), ..line }).collect()
            }
        }
    }

    fn by_path(&self, quantity: Quantity, axis: Axis) -> Vec<ShownLine> {
        let value = |sample: &Sample| match quantity {
            Quantity::Speed => sample.tokens_per_s,
            Quantity::GradientNorm => sample.gradient_norm,
            Quantity::LearningRate => sample.learning_rate,
            _ => sample.loss,
        };
        let at = |sample: &Sample| match axis {
            Axis::Steps => sample.step as f64,
            Axis::Tokens => sample.tokens as f64,
            Axis::Time => sample.at_s,
        };
        let line = |curve: &Curve| {
            let known = curve.samples.iter().filter(|sample| value(sample) > 0.0 && value(sample).is_finite());
            let points = rising(known.map(|sample| (at(sample), value(sample))));
            ShownLine { label: curve.label.clone(), path: curve.path, points }
        };
        self.curves.iter().map(line).filter(|line| !line.points.is_empty()).collect()
    }

    /// The mean of the paths through each module, at the points of the first.
    fn by_module(&self, axis: Axis) -> Vec<ShownLine> {
        let mut all = self.by_path(Quantity::Loss, axis);
        all.retain(|line| line.path.is_some());
        let levels = self.routes.iter().map(Vec::len).max().unwrap_or(0);
        let mut lines = Vec::new();
        for level in 0..levels {
            let expert_of = |path: u32| self.routes.get(path as usize)?.get(level).copied();
            let experts: std::collections::BTreeSet<u32> =
                self.routes.iter().filter_map(|route| route.get(level).copied()).collect();
            if experts.len() < 2 || experts.len() > MOST_EXPERTS {
                continue;
            }
            for expert in experts {
                let through = |line: &&ShownLine| line.path.is_some_and(|path| expert_of(path) == Some(expert));
                let parts: Vec<&ShownLine> = all.iter().filter(through).collect();
                if let Some(points) = mean_of(&parts) {
                    let label = format!("module {level}.{expert}");
                    lines.push(ShownLine { label, path: None, points: smoothed(points) });
                }
            }
        }
        lines.truncate(MOST_CURVES);
        lines
    }
}

/// The mean of several lines, at the points of the first.
fn mean_of(parts: &[&ShownLine]) -> Option<Vec<(f64, f64)>> {
    let mut at = vec![0; parts.len()];
    let mean = |(x, _): &(f64, f64)| {
        let near = parts.iter().zip(&mut at).map(|(part, at)| {
            while part.points.get(*at + 1).is_some_and(|next| next.0 <= *x) {
                *at += 1;
            }
            part.points.get(*at).map_or(0.0, |point| point.1)
        });
        (*x, near.sum::<f64>() / parts.len() as f64)
    };
    Some(parts.first()?.points.iter().map(mean).collect())
}

/// An exponential mean over about a twentieth of the curve.
fn smoothed(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() < SMOOTHED_FROM {
        return points;
    }
    let weight = 2.0 / (points.len() as f64 / 20.0 + 1.0);
    let mut mean = points[0].1;
    for (_, y) in &mut points {
        mean += weight * (*y - mean);
        *y = mean;
    }
    points
}

/// Only the points that go on to the right: a path may be trained again from an earlier step.
fn rising(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut last = f64::NEG_INFINITY;
    let goes_on = |(x, _): &(f64, f64)| {
        let rises = *x > last;
        last = last.max(*x);
        rises
    };
    points.filter(goes_on).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> ShownLine {
        ShownLine { label: String::new(), path: None, points: points.to_vec() }
    }

    #[test]
    fn a_module_learns_what_the_paths_through_it_learn_on_average() {
        let (one, other) = (line(&[(1.0, 4.0), (2.0, 2.0)]), line(&[(1.0, 2.0), (1.5, 1.0), (9.0, 0.0)]));
        assert_eq!(mean_of(&[&one, &other]), Some(vec![(1.0, 3.0), (2.0, 1.5)]));
        assert_eq!(mean_of(&[]), None);
    }

    #[test]
    fn a_curve_goes_to_the_right_and_a_long_one_is_smoothed() {
        let back = [(1.0, 5.0), (3.0, 4.0), (2.0, 9.0), (4.0, 3.0)];
        assert_eq!(rising(back.into_iter()), [(1.0, 5.0), (3.0, 4.0), (4.0, 3.0)]);
        let noisy: Vec<(f64, f64)> = (0..200).map(|at| (f64::from(at), f64::from(at % 2))).collect();
        assert!(smoothed(noisy).iter().skip(40).all(|(_, y)| (0.3..0.7).contains(y)));
        assert_eq!(smoothed(vec![(0.0, 1.0), (1.0, 7.0)]), [(0.0, 1.0), (1.0, 7.0)]);
    }

    #[test]
    fn names_of_curves_say_path_and_trainer() {
        assert_eq!(place("dense"), Some(None));
        assert_eq!(place("path/3"), Some(Some((3, 1))));
        assert_eq!(place("path/3/2"), Some(Some((3, 2))));
        assert_eq!(place("something"), None);
    }
}
