//! Separation of domains by weights: texts as points of their mean weights, in the plane of largest variance, and
//! classified by the nearest mean of a domain.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use serde::Serialize;
use tch::{Device, Kind, Tensor};

use super::capture::column_means;
use crate::inspect::statistics::interval;
use crate::inspect::subject::{InspectError, Passages};
use crate::seed::Seed;

/// A text as a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    pub domain: String,
    /// Along the two principal directions.
    pub at: [f64; 2],
}

/// Accuracy of classifying domains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guesses {
    /// Number of documents for the domains' means.
    pub learnt: usize,
    /// Number of classified documents.
    pub guessed: usize,
    /// Share of right classifications.
    pub accuracy: f64,
    /// The 95% Wilson interval.
    pub interval: [f64; 2],
    /// Share of the commonest domain.
    pub chance: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Domains {
    pub points: Vec<Point>,
    /// Share of the variance along the two directions.
    pub explained: [f64; 2],
    /// By the nearest mean.
    pub guesses: Guesses,
}

/// From documents with a domain and their [mean weights](super::distribution::mean_weights), with one point for each
/// document; `None` without two domains of two documents.
pub fn domains(passages: &Passages, weights: &[Vec<f64>]) -> Result<Option<Domains>, InspectError> {
    let mut by_document: BTreeMap<u32, (usize, Vec<Vec<f64>>)> = BTreeMap::new();
    for ((own, domain), document) in weights.iter().zip(&passages.domains).zip(&passages.documents) {
        let Some(domain) = domain else { continue };
        by_document.entry(*document).or_insert((*domain as usize, Vec::new())).1.push(own.clone());
    }
    let (of, rows): (Vec<usize>, Vec<Vec<f64>>) =
        by_document.into_values().map(|(domain, own)| (domain, column_means(&own))).unzip();
    let rows: Vec<&Vec<f64>> = rows.iter().collect();
    let texts = |domain: usize| of.iter().filter(|own| **own == domain).count();
    if (0..passages.names.len()).filter(|domain| texts(*domain) >= 2).count() < 2 {
        return Ok(None);
    }
    let (places, explained) = principal(&rows)?;
    let point = |(domain, at): (&usize, [f64; 2])| Point { domain: passages.names[*domain].clone(), at };
    let points = of.iter().zip(places).map(point).collect();
    Ok(Some(Domains { points, explained, guesses: guesses(&of, &rows, passages.names.len()) }))
}

/// Each row along the two principal axes, and their shares of the variance.
fn principal(rows: &[&Vec<f64>]) -> Result<(Vec<[f64; 2]>, [f64; 2]), InspectError> {
    let flat: Vec<f64> = rows.iter().flat_map(|row| row.iter().copied()).collect();
    let matrix = Tensor::f_from_slice(&flat)?.f_view([rows.len() as i64, -1])?;
    let centred = matrix.f_sub(&matrix.f_mean_dim([0i64].as_slice(), true, Kind::Double)?)?;
    let (_, lengths, axes) = centred.f_svd(true, true)?;
    let axes = axes.f_narrow(1, 0, 2.min(axes.size()[1]))?;
    let places: Vec<Vec<f64>> = Vec::try_from(centred.f_matmul(&axes)?.f_to_device(Device::Cpu)?)?;
    let squares: Vec<f64> = Vec::try_from(lengths.f_square()?)?;
    let all = squares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let at = |row: &Vec<f64>, axis: usize| row.get(axis).copied().unwrap_or(0.0);
    let share = |axis: usize| squares.get(axis).copied().unwrap_or(0.0) / all;
    Ok((places.iter().map(|row| [at(row, 0), at(row, 1)]).collect(), [share(0), share(1)]))
}

/// A random half of the texts gives the means; the domain of each other one is classified.
fn guesses(of: &[usize], rows: &[&Vec<f64>], domains: usize) -> Guesses {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.shuffle(&mut Seed::root(0).child("texts that are learnt").generator());
    let (learnt, guessed) = order.split_at(rows.len() / 2);
    let centre = |domain: usize| {
        let own: Vec<Vec<f64>> =
            learnt.iter().filter(|text| of[**text] == domain).map(|text| rows[*text].clone()).collect();
        (!own.is_empty()).then(|| (domain, column_means(&own)))
    };
    let centres: Vec<(usize, Vec<f64>)> = (0..domains).filter_map(centre).collect();
    let far = |row: &[f64], centre: &[f64]| row.iter().zip(centre).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let nearest = |row: &[f64]| {
        let by_distance = centres.iter().min_by(|a, b| far(row, &a.1).total_cmp(&far(row, &b.1)));
        by_distance.map(|(domain, _)| *domain)
    };
    let hits = guessed.iter().filter(|text| nearest(rows[**text]) == Some(of[**text])).count();
    let count = |texts: &[usize], domain: usize| texts.iter().filter(|text| of[**text] == domain).count();
    let commonest = (0..domains).max_by_key(|domain| count(learnt, *domain)).unwrap_or(0);
    let all = guessed.len().max(1) as f64;
    Guesses {
        learnt: learnt.len(),
        guessed: guessed.len(),
        accuracy: hits as f64 / all,
        interval: interval(hits, guessed.len()),
        chance: count(guessed, commonest) as f64 / all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passages(domains: Vec<Option<u32>>) -> Passages {
        let sequences = vec![vec![1, 2]; domains.len()];
        let documents = (0..domains.len() as u32).collect();
        Passages { sequences, documents, domains, names: vec!["a".to_owned(), "b".to_owned()], first: 1 }
    }

    #[test]
    fn clouds_that_lie_apart_are_told_apart() {
        let (of, rows): (Vec<Option<u32>>, Vec<Vec<f64>>) = (0..40u32)
            .map(|text| {
                let (side, noise) = (f64::from(text % 2), f64::from(text * 7 % 11) / 100.0);
                (Some(text % 2), vec![side + noise, 0.5, noise, -side])
            })
            .unzip();
        let found = domains(&passages(of), &rows).unwrap().unwrap();
        assert_eq!((found.guesses.accuracy, found.guesses.learnt, found.guesses.guessed), (1.0, 20, 20));
        assert!(found.explained[0] > 0.98 && found.guesses.chance < 0.8, "{found:?}");
        let sides: Vec<bool> = found.points.iter().map(|point| point.at[0] > 0.0).collect();
        assert!(sides.iter().step_by(2).all(|side| *side == sides[0]) && sides[1] != sides[0]);
    }

    #[test]
    fn sequences_of_one_document_are_one_point() {
        let mut passages = passages((0..12).map(|text| Some(text % 2)).collect());
        passages.documents = (0..12).map(|text| text % 4).collect();
        let rows: Vec<Vec<f64>> = (0..12).map(|text| vec![f64::from(text % 2), f64::from(text)]).collect();
        let found = domains(&passages, &rows).unwrap().unwrap();
        assert_eq!((found.points.len(), found.guesses.learnt, found.guesses.guessed), (4, 2, 2));
    }

    #[test]
    fn one_domain_is_nothing_to_be_told_apart() {
        let rows = vec![vec![0.1, 0.2]; 4];
        assert!(domains(&passages(vec![Some(0); 4]), &rows).unwrap().is_none());
        assert!(domains(&passages(vec![Some(0), Some(0), Some(1), None]), &rows).unwrap().is_none());
    }
}
