//! A curve of bounded length: when it is full, neighbouring points become one, and so do further reports.

use serde_json::{Value, json};

/// Points of a curve: as many as a chart has pixels.
const MOST_POINTS: usize = 720;

/// One point of a curve.
pub(in crate::telemetry) trait Sample: Copy {
    fn to_json(self) -> Value;

    /// One point in place of several neighbours.
    fn mean(points: &[Self]) -> Self;
}

/// One report of a trainer, or the mean of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::telemetry) struct Point {
    /// Milliseconds since 1970.
    pub(in crate::telemetry) at_ms: u64,
    /// Inner steps since the run's first phase.
    pub(in crate::telemetry) step: u64,
    /// Tokens trained on for this curve since the start of this process.
    pub(in crate::telemetry) tokens: u64,
    /// Nats a token.
    pub(in crate::telemetry) loss: f64,
    /// Tokens a second of inner steps.
    pub(in crate::telemetry) tokens_per_s: f64,
    pub(in crate::telemetry) learning_rate: f64,
    /// Of the last step, before clipping.
    pub(in crate::telemetry) gradient_norm: f64,
}

impl Sample for Point {
    fn to_json(self) -> Value {
        let Self { at_ms, step, tokens, loss, tokens_per_s, learning_rate, gradient_norm } = self;
        // Five digits are more than a chart shows.
        let round = |value: f64| (value * 1e4).round() / 1e4;
        json!([at_ms, step, tokens, round(loss), tokens_per_s.round(), learning_rate, round(gradient_norm)])
    }

    fn mean(points: &[Self]) -> Self {
        let of = |value: fn(&Self) -> f64| points.iter().map(value).sum::<f64>() / points.len().max(1) as f64;
        let last = points.last().copied().unwrap_or_default();
        Self {
            loss: of(|point| point.loss),
            tokens_per_s: of(|point| point.tokens_per_s),
            gradient_norm: of(|point| point.gradient_norm),
            ..last
        }
    }
}

/// A curve.
#[derive(Clone, Debug)]
pub(in crate::telemetry) struct Series<P = Point> {
    points: Vec<P>,
    /// Reports that become one point.
    stride: usize,
    pending: Vec<P>,
}

impl<P> Default for Series<P> {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1, pending: Vec::new() }
    }
}

impl<P: Sample> Series<P> {
    /// Adds a report. Returns the new point, if the report completes one.
    pub(in crate::telemetry) fn push(&mut self, report: P) -> Option<P> {
        self.pending.push(report);
        if self.pending.len() < self.stride {
            return None;
        }
        let point = P::mean(&self.pending);
        self.pending.clear();
        if self.points.len() >= MOST_POINTS {
            self.points = self.points.chunks(2).map(P::mean).collect();
            self.stride *= 2;
        }
        self.points.push(point);
        Some(point)
    }

    /// Every so many points, and the last.
    pub(in crate::telemetry) fn to_json(&self, stride: usize) -> Value {
        let points: Vec<Value> = self.points.iter().rev().step_by(stride.max(1)).map(|point| point.to_json()).collect();
        points.into_iter().rev().collect()
    }

    pub(in crate::telemetry) fn points(&self) -> &[P] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_its_ends_and_its_mean_however_long_it_gets() {
        let mut series = Series::default();
        for step in 0..100_000u64 {
            series.push(Point { step, loss: (step % 2) as f64, ..Point::default() });
        }
        let points = series.points();
        assert!(points.len() <= MOST_POINTS && points.len() > MOST_POINTS / 4, "{}", points.len());
        assert!(points[0].step < 1_000 && points[points.len() - 1].step > 99_000);
        assert!(points.windows(2).all(|two| two[0].step < two[1].step));
        assert!(points.iter().all(|point| (point.loss - 0.5).abs() < 0.01), "averaged, not picked");
    }
}
