//! Distribution of routing weights: of each layer, between domains, of specialised heads, and the benefit of routing by
//! position.

use serde::Serialize;

use super::capture::{Capture, column_means};
use super::interventions::{Intervention, Scope};
use crate::inspect::statistics::{mean, quantiles, variance};
use crate::inspect::subject::{InspectError, Passages, Subject};
use crate::model::layers::watch::Unwatched;

/// Number of position bins.
const PARTS: usize = 8;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerWeights {
    /// Over all scored positions, heads and directions.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// The 5%, 25%, 50%, 75% and 95% quantiles.
    pub quantiles: [f64; 5],
    /// Variance between the means of domains, averaged over heads and directions; `None` with fewer than two domains.
    pub between_domains: Option<f64>,
}

/// A head whose weights differ most between domains: one of the top quartile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Specialist {
    pub layer: usize,
    pub head: usize,
    /// Variance between the means of domains, averaged over its directions.
    pub between_domains: f64,
    /// The mean weight of its directions in each domain.
    pub by_domain: Vec<(String, f64)>,
}

/// The benefit of routing at some positions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Benefit {
    /// The first position.
    pub from: usize,
    /// After the last.
    pub to: usize,
    /// Additional nats a token without routing.
    pub nats: f64,
}

/// All results of this module.
#[derive(Clone, Debug, Serialize)]
pub struct Distribution {
    /// By layer.
    pub layers: Vec<LayerWeights>,
    /// The most specialised first; empty with fewer than two domains.
    pub specialists: Vec<Specialist>,
    /// By position.
    pub benefit: Vec<Benefit>,
}

/// A text's weights: each sequence's mean over the scored positions, `[sequences][layers · heads · directions]`.
pub fn mean_weights(subject: &Subject, passages: &Passages) -> Result<Vec<Vec<f64>>, InspectError> {
    let one = |tokens: &Vec<u32>| -> Result<Vec<f64>, InspectError> {
        let weights = Capture::of_scored(subject, tokens)?.weights()?;
        Ok(weights.iter().flat_map(|rows| column_means(counted(rows, passages.first))).collect())
    };
    passages.sequences.iter().map(one).collect()
}

/// The rows of the scored positions; a single row stays.
fn counted(rows: &[Vec<f64>], first: usize) -> &[Vec<f64>] {
    if rows.len() == 1 { rows } else { &rows[(first - 1).min(rows.len() - 1)..] }
}

pub fn distribution(subject: &Subject, passages: &Passages) -> Result<Distribution, InspectError> {
    let config = subject.config();
    let directions = config.directional.as_ref().ok_or(InspectError::Plain)?.directions;
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); config.blocks];
    for tokens in &passages.sequences {
        for (layer, rows) in Capture::of_scored(subject, tokens)?.weights()?.iter().enumerate() {
            values[layer].extend(counted(rows, passages.first).iter().flatten());
        }
    }
    let of_domains = of_domains(passages, &mean_weights(subject, passages)?);
    let between: Vec<f64> = between(&of_domains);
    let per_layer = config.heads * directions;
    let layers = values.iter().enumerate().map(|(layer, values)| LayerWeights {
        mean: mean(values),
        deviation: variance(values).sqrt(),
        quantiles: quantiles(values, [0.05, 0.25, 0.5, 0.75, 0.95]),
        between_domains: between.get(layer * per_layer..(layer + 1) * per_layer).map(mean),
    });
    Ok(Distribution {
        layers: layers.collect(),
        specialists: specialists(&of_domains, &between, config.heads, directions),
        benefit: benefit(subject, passages)?,
    })
}

/// For each domain with a text, its name and its texts' mean weights.
fn of_domains(passages: &Passages, weights: &[Vec<f64>]) -> Vec<(String, Vec<f64>)> {
    let of = |(number, name): (usize, &String)| {
        let own = weights.iter().zip(&passages.domains).filter(|(_, domain)| **domain == Some(number as u32));
        let own: Vec<Vec<f64>> = own.map(|(weights, _)| weights.clone()).collect();
        (!own.is_empty()).then(|| (name.clone(), column_means(&own)))
    };
    passages.names.iter().enumerate().filter_map(of).collect()
}

/// For each weight, the variance between domains; empty with fewer than two.
fn between(of_domains: &[(String, Vec<f64>)]) -> Vec<f64> {
    let [(_, first), _, ..] = of_domains else { return Vec::new() };
    let of = |index: usize| variance(&of_domains.iter().map(|(_, means)| means[index]).collect::<Vec<_>>());
    (0..first.len()).map(of).collect()
}

fn specialists(of_domains: &[(String, Vec<f64>)], between: &[f64], heads: usize, directions: usize) -> Vec<Specialist> {
    let one = |(number, own): (usize, &[f64])| {
        let range = number * directions..(number + 1) * directions;
        let by_domain = of_domains.iter().map(|(name, means)| (name.clone(), mean(&means[range.clone()])));
        let (layer, head) = (number / heads, number % heads);
        Specialist { layer, head, between_domains: mean(own), by_domain: by_domain.collect() }
    };
    let mut all: Vec<Specialist> = between.chunks(directions.max(1)).enumerate().map(one).collect();
    all.sort_by(|a, b| b.between_domains.total_cmp(&a.between_domains));
    all.truncate(all.len().div_ceil(4));
    all
}

fn benefit(subject: &Subject, passages: &Passages) -> Result<Vec<Benefit>, InspectError> {
    let off = Intervention::weight(Scope::default(), 0.0);
    let longest = passages.sequences.iter().map(Vec::len).max().unwrap_or(0);
    let width = (longest - passages.first).div_ceil(PARTS).max(1);
    let mut sums = vec![(0.0, 0usize); PARTS];
    for tokens in &passages.sequences {
        let with = subject.losses(tokens, passages.first, &Unwatched)?;
        let without = subject.losses(tokens, passages.first, &off.of(subject.config()))?;
        for (place, (with, without)) in with.iter().zip(&without).enumerate() {
            let (nats, count) = &mut sums[place / width];
            (*nats, *count) = (*nats + without - with, *count + 1);
        }
    }
    let part = |(number, (nats, count)): (usize, (f64, usize))| {
        let from = passages.first + number * width;
        Benefit { from, to: from + width, nats: nats / count as f64 }
    };
    Ok(sums.into_iter().enumerate().filter(|(_, (_, count))| *count > 0).map(part).collect())
}
