//! The run in a few numbers.

use std::collections::BTreeSet;

use crate::telemetry::overview::curves::Curve;
use crate::telemetry::overview::modules::ModuleRow;
use crate::telemetry::overview::paths::PathRow;
use crate::telemetry::overview::peers::PeerRow;
use crate::telemetry::overview::told::Told;
use crate::telemetry::overview::{MOST_ROWS, RunFacts};
use crate::telemetry::spans::Doing;

/// The run in a few numbers. Sums and means are of the peers that are asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Share of the run that is done.
    pub progress: f64,
    /// Seconds to the end of the run at the speed of the last minutes.
    pub left_s: Option<f64>,
    /// Whether every path of these peers is done.
    pub done: bool,
    /// Mean training loss in nats a token, and of how many paths.
    pub loss: Option<f64>,
    pub loss_paths: usize,
    /// Mean held-out bits per byte, and of how many paths.
    pub bits_per_byte: Option<f64>,
    pub scored_paths: usize,
    pub tokens_per_s: f64,
    pub tokens: u64,
    /// Peers of the run that are known, those that are asked included.
    pub known: usize,
    /// Peers that are asked.
    pub asked: usize,
    /// Peers of these that train.
    pub training: usize,
    /// Paths that wait.
    pub waiting: usize,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

pub(super) fn summary(
    told: &Told<'_>,
    run: &RunFacts,
    (modules, paths, peers): (&[ModuleRow], &[PathRow], &[PeerRow]),
    curves: &[Curve],
) -> Summary {
    let asked = told.answered.len();
    let sum = |of: &dyn Fn(&crate::peer::PeerStatus) -> u64| told.answered.iter().map(|it| of(it.status)).sum::<u64>();
    // Not of paths that others have taken over.
    let here: BTreeSet<u32> = paths.iter().filter(|row| row.is_asked).map(|row| row.path).collect();
    let shown: Vec<&Curve> = curves.iter().filter(|curve| curve.path.is_some_and(|it| here.contains(&it))).collect();
    let losses: Vec<f64> = paths.iter().filter(|row| row.is_asked).filter_map(|row| row.loss).collect();
    let scores: Vec<f64> =
        told.state.held_out.values().take(MOST_ROWS).filter_map(|it| Some(f64::from(it.last()?.2) / 1e3)).collect();
    let done = asked > 0 && told.answered.iter().all(|it| it.status.node.done);
    let is_training = |label: &str, training_stage: bool| match told.state.spans.now(label) {
        Some(span) => matches!(span.doing, Doing::Training { .. }),
        None => training_stage,
    };
    let trains = told.answered.iter().filter(|it| {
        let stage = it.status.node.paths.iter().any(|path| path.stage == "training");
        it.silent_since_ms.is_none() && is_training(it.label, stage)
    });
    let training: Vec<_> = trains.collect();
    Summary {
        progress: if done { 1.0 } else { progress(run, modules, &shown) },
        left_s: if done { None } else { left_s(run, &shown) },
        done,
        loss: mean(&losses),
        loss_paths: losses.len(),
        bits_per_byte: mean(&scores),
        scored_paths: scores.len(),
        tokens_per_s: training.iter().filter_map(|it| it.status.activity.tokens_per_s).sum(),
        tokens: sum(&|status| status.activity.tokens),
        known: peers.len(),
        asked,
        training: training.len(),
        waiting: told
            .answered
            .iter()
            .flat_map(|it| &it.status.node.paths)
            .filter(|path| path.stage != "done" && path.waits_for.is_some())
            .count(),
        bytes_sent: sum(&|status| status.traffic.blob_bytes_sent + status.traffic.message_bytes_sent),
        bytes_received: sum(&|status| status.traffic.blob_bytes_received + status.traffic.message_bytes_received),
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// By inner steps if they are known, else by the rounds of the modules.
fn progress(run: &RunFacts, modules: &[ModuleRow], curves: &[&Curve]) -> f64 {
    let phases = run.phases.unwrap_or(0).max(1) as f64;
    let steps: Vec<f64> = curves.iter().filter_map(|curve| Some(curve.samples.last()?.step as f64)).collect();
    if let (Some(inner_steps), Some(mean)) = (run.inner_steps, mean(&steps)) {
        return (mean / (phases * inner_steps.max(1) as f64)).min(1.0);
    }
    let rounds: Vec<f64> = modules.iter().filter_map(|module| Some(module.phase? as f64)).collect();
    (mean(&rounds).unwrap_or(0.0) / phases).min(1.0)
}

/// At the speed of the last ten minutes; nothing if that is not known.
fn left_s(run: &RunFacts, curves: &[&Curve]) -> Option<f64> {
    let total = (run.phases? * run.inner_steps?) as f64;
    let left = curves.iter().filter_map(|curve| {
        let last = curve.samples.last()?;
        let first = curve.samples.iter().find(|sample| sample.at_s > last.at_s - 600.0)?;
        let speed = (last.step as f64 - first.step as f64) / (last.at_s - first.at_s);
        (speed > 0.0 && speed.is_finite()).then(|| ((total - last.step as f64) / speed).max(0.0))
    });
    left.reduce(f64::max)
}
