//! Size and agreement of the outer gradients of a module, update by update.

use serde_json::{Value, json};

use crate::peer::aggregator::GradientNorms;
use crate::telemetry::curves::series::Sample;

/// One update of a module that a peer of this process has computed, or the mean of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::telemetry) struct OuterPoint {
    /// Milliseconds since 1970.
    pub(in crate::telemetry) at_ms: u64,
    pub(in crate::telemetry) version: u64,
    pub(in crate::telemetry) norms: GradientNorms,
}

/// Five digits, however small a norm is: more than a chart shows.
fn five_digits(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

impl Sample for OuterPoint {
    fn to_json(self) -> Value {
        let Self { at_ms, version, norms: GradientNorms { contributions, mean_norm, average_norm, agreement } } = self;
        let norms = [mean_norm, average_norm].map(five_digits);
        json!([at_ms, version, contributions, norms[0], norms[1], agreement.map(five_digits)])
    }

    /// The time, the version and the contributions are those of the last.
    fn mean(points: &[Self]) -> Self {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let of = |value: fn(&GradientNorms) -> f64| {
            mean(&points.iter().map(|point| value(&point.norms)).collect::<Vec<f64>>())
        };
        let last = points.last().copied().unwrap_or_default();
        let agreements: Vec<f64> = points.iter().filter_map(|point| point.norms.agreement).collect();
        let norms = GradientNorms {
            mean_norm: of(|norms| norms.mean_norm),
            average_norm: of(|norms| norms.average_norm),
            agreement: (!agreements.is_empty()).then(|| mean(&agreements)),
            ..last.norms
        };
        Self { norms, ..last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_keep_five_digits_of_small_norms_and_a_mean_leaves_out_what_is_unknown() {
        let point = |version, mean_norm: f64, agreement| OuterPoint {
            at_ms: version,
            version,
            norms: GradientNorms { contributions: 2, mean_norm, average_norm: mean_norm / 2.0, agreement },
        };
        assert_eq!(point(3, 1.234_567e-4, None).to_json(), json!([3, 3, 2, 1.2346e-4, 6.1728e-5, null]));
        let mean = OuterPoint::mean(&[point(3, 1.0, Some(0.25)), point(4, 2.0, None), point(5, 3.0, Some(0.75))]);
        assert_eq!(mean, point(5, 2.0, Some(0.5)));
        assert_eq!(OuterPoint::mean(&[point(3, 1.0, None)]).norms.agreement, None);
    }
}
