//! How the training went: losses against inner steps, of several runs laid over each other.

use std::collections::BTreeMap;

use crate::inspect::plots::{Labels, Series, curves};
use crate::report::folder::Run;
use crate::report::html::{figure, remark};
use crate::report::sections::summary::path_name;

/// More curves in one image cannot be told apart.
const MOST_CURVES: usize = 10;

type Line = (String, Vec<(f64, f64)>);

/// The curves of training and held-out loss. `names` are those of the runs.
pub(in crate::report) fn all(runs: &[Run], names: &[String]) -> anyhow::Result<String> {
    let mut body = training(runs, names)?;
    body += &held_out(runs, names)?;
    Ok(body)
}

fn training(runs: &[Run], names: &[String]) -> anyhow::Result<String> {
    let lines = training_lines(runs, names);
    if lines.is_empty() {
        return Ok(remark("There are no curves: no training loss is in metrics.jsonl here."));
    }
    let described = "Nats a token against inner steps of a path since the ancestor: the mean of each phase. \
                     Lower is better.";
    let mut body = draw(("loss", "Training loss"), described, ("inner steps of a path", "nats a token"), &lines)?;
    if runs.iter().all(|run| run.recorded.dense.is_empty()) {
        body += &remark("There is no curve of a dense control here: only simulate trains one.");
    }
    Ok(body)
}

/// A curve for each path of one run, or for each run, and those of dense controls.
fn training_lines(runs: &[Run], names: &[String]) -> Vec<Line> {
    let mut lines = Vec::new();
    match runs {
        [run] if run.recorded.losses.len() <= MOST_CURVES => {
            let of_path = |(path, points): (&u32, &Vec<(f64, f64)>)| (path_name(*path), points.clone());
            lines.extend(run.recorded.losses.iter().map(of_path));
        }
        runs => {
            let mean = |(run, name): (&Run, &String)| {
                (name.clone(), run.recorded.mean_losses(run.manifest.config.training.inner_steps))
            };
            lines.extend(runs.iter().zip(names).map(mean).filter(|(_, points)| !points.is_empty()).take(MOST_CURVES));
        }
    }
    for (run, name) in runs.iter().zip(names).filter(|(run, _)| !run.recorded.dense.is_empty()) {
        let name = if runs.len() == 1 { "dense control".to_owned() } else { format!("{name}, dense control") };
        lines.push((name, run.recorded.dense.clone()));
    }
    lines
}

/// Bits a byte of held-out text against phases, as standbys have scored them.
fn held_out(runs: &[Run], names: &[String]) -> anyhow::Result<String> {
    let mut lines: Vec<Line> = Vec::new();
    for (run, name) in runs.iter().zip(names) {
        let mut of_paths: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
        let mut of_phases: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for ((path, phase), bits) in &run.recorded.held_out {
            of_paths.entry(*path).or_default().push((*phase as f64, *bits));
            let (sum, count) = of_phases.entry(*phase).or_default();
            (*sum, *count) = (*sum + bits, *count + 1.0);
        }
        if runs.len() == 1 && of_paths.len() <= MOST_CURVES {
            lines.extend(of_paths.into_iter().map(|(path, points)| (path_name(path), points)));
        } else if !of_phases.is_empty() && lines.len() < MOST_CURVES {
            let mean = |(phase, (sum, count)): (u64, (f64, f64))| (phase as f64, sum / count);
            lines.push((name.clone(), of_phases.into_iter().map(mean).collect()));
        }
    }
    if lines.is_empty() {
        let why = "No held-out scores were recorded during training: standbys make them, where there are more peers than work.";
        return Ok(remark(why));
    }
    let described =
        "Bits a byte of held-out text against phases, as peers that stood by have scored them. Lower is better.";
    draw(("held-out", "Held-out text"), described, ("phases", "bits a byte"), &lines)
}

/// Draws lines of names and points.
pub(in crate::report) fn draw(
    (id, title): (&str, &str),
    described: &str,
    (x, y): (&str, &str),
    lines: &[Line],
) -> anyhow::Result<String> {
    let series: Vec<Series<'_>> = lines.iter().map(|(name, points)| Series { name, points: points.clone() }).collect();
    let svg = curves(&Labels { title, x, y }, &series)?;
    Ok(figure(id, &svg, title, described))
}
