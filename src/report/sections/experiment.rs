//! An experiment: its arms, and the held-out loss of each.

use crate::experiment::results::outcome::{Outcome, Point};
use crate::report::folder::Tried;
use crate::report::html::{paragraph, remark, table};
use crate::report::sections::curves::draw;
use crate::report::words::{seconds, short, whole};

/// More curves in one image cannot be told apart.
const MOST_CURVES: usize = 12;

/// What of a point an axis shows.
type Axis = fn(&Point) -> f64;

/// The arms in the order in which they were trained.
fn arms(outcomes: &[Outcome]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !names.contains(&outcome.arm.as_str()) {
            names.push(&outcome.arm);
        }
    }
    names
}

/// The mean of some values, and their range if they are several.
fn spread(values: &[f64], decimals: usize) -> String {
    let count = values.len() as f64;
    let (least, most) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (value.min(least), value.max(most)));
    match values {
        [] => "–".to_owned(),
        [one] => format!("{one:.decimals$}"),
        values => format!("{:.decimals$} ({least:.decimals$}–{most:.decimals$})", values.iter().sum::<f64>() / count),
    }
}

/// An experiment's tables and curves. `number` tells several apart.
pub(in crate::report) fn all(tried: &Tried, number: usize) -> anyhow::Result<String> {
    if tried.outcomes.is_empty() {
        return Ok(remark("No arm has been trained yet."));
    }
    let names = arms(&tried.outcomes);
    let mut body = paragraph(
        "Perplexity of the test text at the end, the mean of all seeds and their range. Early takes each path, or the dense \
         network, as it was when it predicted its held-out documents best.",
    ) + &scores(&names, &tried.outcomes)
        + &sizes(&names, &tried.outcomes);
    let axes: [(&str, &str, &str, Axis); 2] = [
        ("steps", "Held-out loss by steps", "inner steps of a path, with the ancestor's", |point| point.steps as f64),
        ("tokens", "Held-out loss by tokens", "million tokens of all paths, after the ancestor", |point| {
            point.tokens as f64 / 1e6
        }),
    ];
    for (id, title, x, of) in axes {
        let lines: Vec<_> =
            names.iter().take(MOST_CURVES).map(|arm| ((*arm).to_owned(), curve(&tried.outcomes, arm, of))).collect();
        let described = "Held-out nats a token, each document on its path: the mean of all seeds. Lower is better.";
        body += &draw((&format!("{id}-{number}"), title), described, (x, "nats a token"), &lines)?;
    }
    if names.len() > MOST_CURVES {
        body += &remark(&format!("Curves of {} more arms are left out.", names.len() - MOST_CURVES));
    }
    Ok(body)
}

fn scores(names: &[&str], outcomes: &[Outcome]) -> String {
    let row = |arm: &&str| {
        let own = || outcomes.iter().filter(|outcome| outcome.arm == *arm);
        let of = |value: &dyn Fn(&Outcome) -> Option<f64>, decimals| {
            let values: Vec<f64> = own().filter_map(value).filter(|value| value.is_finite()).collect();
            spread(&values, decimals)
        };
        vec![
            (*arm).to_owned(),
            of(&|outcome| Some(outcome.last.perplexity()), 2),
            of(&|outcome| outcome.last.bits_per_byte(), 3),
            of(&|outcome| Some(outcome.early.perplexity()), 2),
            own().count().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = names.iter().map(row).collect();
    table(&["arm", "#perplexity", "#bits a byte", "#perplexity, early", "#seeds"], &rows)
}

/// What each arm is, as its first seed has it.
fn sizes(names: &[&str], outcomes: &[Outcome]) -> String {
    let first = |arm: &&str| outcomes.iter().find(|outcome| outcome.arm == *arm);
    let row = |first: &Outcome| {
        vec![
            first.arm.clone(),
            whole(f64::from(first.paths)),
            short(first.path_parameters as f64),
            short(first.parameters as f64),
            whole(first.steps as f64),
            short(first.tokens as f64),
            seconds(first.seconds),
        ]
    };
    let rows: Vec<Vec<String>> = names.iter().filter_map(first).map(row).collect();
    table(&["arm", "#paths", "#parameters of a path", "#of all", "#steps", "#tokens", "#took"], &rows)
}

/// The mean over an arm's seeds, as long as all have points.
fn curve(outcomes: &[Outcome], arm: &str, x: Axis) -> Vec<(f64, f64)> {
    let curves: Vec<&[Point]> =
        outcomes.iter().filter(|outcome| outcome.arm == arm).map(|outcome| &outcome.curve[..]).collect();
    let shortest = curves.iter().map(|curve| curve.len()).min().unwrap_or(0);
    let mean = |at: usize| {
        let sum = |of: &dyn Fn(&Point) -> f64| curves.iter().map(|curve| of(&curve[at])).sum::<f64>();
        (sum(&x) / curves.len() as f64, sum(&|point| point.loss) / curves.len() as f64)
    };
    (0..shortest).map(mean).collect()
}
