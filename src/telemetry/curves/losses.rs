//! Training losses between two lines of `metrics.jsonl`: one mean for each phase of each path.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Phases kept: more pass only if nothing is written for long.
const MOST: usize = 256;

/// Means of losses.
#[derive(Clone, Debug, Default)]
pub(in crate::telemetry) struct Losses {
    /// The newest inner step, the sum of the losses in nats a token, and their number; by path and phase.
    of: BTreeMap<(u32, u64), (u64, f64, u32)>,
}

impl Losses {
    /// Adds a report of a trainer.
    pub(in crate::telemetry) fn add(&mut self, path: u32, phase: u64, step: u64, loss: f64) {
        if self.of.len() >= MOST && !self.of.contains_key(&(path, phase)) {
            return;
        }
        let (newest, sum, count) = self.of.entry((path, phase)).or_default();
        (*newest, *sum, *count) = (step.max(*newest), *sum + loss, *count + 1);
    }

    pub(in crate::telemetry) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether a phase is there.
    pub(in crate::telemetry) fn has(&self, path: u32, phase: u64) -> bool {
        self.of.contains_key(&(path, phase))
    }

    /// Lists of path, inner steps since the run's first phase, mean loss, and the number of reports that it is the mean of;
    /// then begins anew.
    pub(in crate::telemetry) fn take(&mut self) -> Vec<Value> {
        let taken = std::mem::take(&mut self.of);
        // Five digits are more than a chart shows.
        let mean = |sum: f64, count: u32| (1e4 * sum / f64::from(count.max(1))).round() / 1e4;
        taken.into_iter().map(|((path, _), (step, sum, count))| json!([path, step, mean(sum, count), count])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_mean_of_each_phase_and_the_next_line_none_of_it() {
        let mut losses = Losses::default();
        for (path, phase, step, loss) in [(1, 0, 5, 4.0), (1, 0, 10, 3.0), (1, 1, 15, 2.0), (0, 0, 5, 6.0)] {
            losses.add(path, phase, step, loss);
        }
        assert!(losses.has(1, 1) && !losses.has(0, 1));
        assert_eq!(losses.take(), [json!([0, 5, 6.0, 1]), json!([1, 10, 3.5, 2]), json!([1, 15, 2.0, 1])]);
        assert!(losses.take().is_empty());
    }
}
