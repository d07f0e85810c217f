//! Biases under which each path is the best one for its quota of documents.
//!
//! Such biases maximise Σ quotaₚ·biasₚ − Σ_documents maxₚ(score + bias), which is concave: it is the dual of the
//! assignment with the greatest sum of scores. It is maximised exactly in one bias at a time: the bias goes to the
//! middle between the last document inside the path's quota and the first one outside.

use rayon::prelude::*;

/// Rounds over all paths. A few bring all shares within one percent; the rest place the last documents.
const ROUNDS: usize = 100;

/// Documents per rayon task.
const DOCUMENTS_A_TASK: usize = 1024;

/// The two best paths of a document, and their scores with bias.
#[derive(Clone, Copy)]
struct Standing {
    first: (u32, f64),
    second: (u32, f64),
}

impl Standing {
    /// The first of equals is the best. With a single path, the second is below any score.
    fn of(scores: &[f64], bias: &[f64]) -> Self {
        let nobody = (u32::MAX, f64::NEG_INFINITY);
        let mut found = Self { first: nobody, second: nobody };
        for (path, (score, bias)) in scores.iter().zip(bias).enumerate() {
            let candidate = (path as u32, score + bias);
            if candidate.1 > found.first.1 {
                found = Self { first: candidate, second: found.first };
            } else if candidate.1 > found.second.1 {
                found.second = candidate;
            }
        }
        found
    }

    /// The best score over all other paths.
    fn without(&self, path: u32) -> f64 {
        if self.first.0 == path { self.second.1 } else { self.first.1 }
    }
}

/// Documents with their scores (row-major `[documents, paths]`, finite) and their best paths under a bias.
struct Documents<'a> {
    scores: &'a [f64],
    paths: usize,
    standings: Vec<Standing>,
}

impl<'a> Documents<'a> {
    fn new(scores: &'a [f64], bias: &[f64]) -> Self {
        let standing = |row: &[f64]| Standing::of(row, bias);
        let standings = scores.par_chunks(bias.len()).with_min_len(DOCUMENTS_A_TASK).map(standing).collect();
        Self { scores, paths: bias.len(), standings }
    }

    fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.paths];
        self.standings.iter().for_each(|standing| counts[standing.first.0 as usize] += 1);
        counts
    }

    /// The bias that gives a path exactly `quota` documents while the other biases stay: the middle of all such biases.
    fn level(&self, path: usize, quota: usize) -> f64 {
        let standings = self.standings.par_iter().zip(self.scores.par_chunks(self.paths));
        let mut lacks: Vec<f64> = standings
            .with_min_len(DOCUMENTS_A_TASK)
            .map(|(standing, scores)| standing.without(path as u32) - scores[path])
            .collect();
        if quota >= lacks.len() {
            return lacks.iter().copied().fold(f64::NEG_INFINITY, f64::max) + 1.0;
        }
        let (within, beyond, _) = lacks.select_nth_unstable_by(quota, f64::total_cmp);
        match within.iter().copied().reduce(f64::max) {
            Some(last) => 0.5 * (last + *beyond),
            None => *beyond - 1.0,
        }
    }

    /// Updates the best paths after the bias of one path has changed.
    fn moved(&mut self, path: usize, bias: &[f64]) {
        let standings = self.standings.par_iter_mut().zip(self.scores.par_chunks(self.paths));
        standings.with_min_len(DOCUMENTS_A_TASK).for_each(|(standing, scores)| {
            let was_in = standing.first.0 == path as u32 || standing.second.0 == path as u32;
            if was_in || scores[path] + bias[path] >= standing.second.1 {
                *standing = Standing::of(scores, bias);
            }
        });
    }
}

/// Moves `bias` so that the share of documents of each path comes as close to `target` as possible, and returns the
/// error of the worst share. `scores` is row-major `[documents, paths]`, finite and not empty. `target` has a share for
/// each path.
pub(super) fn balance(scores: &[f64], bias: &mut [f64], target: &[f64]) -> f64 {
    let quotas = quotas(target, scores.len() / bias.len());
    let mut documents = Documents::new(scores, bias);
    let mut counts = documents.counts();
    let mut best = (deviation(&counts, target), bias.to_vec());
    for _ in 0..ROUNDS {
        if counts == quotas {
            break;
        }
        let mut settled = true;
        for (path, quota) in quotas.iter().enumerate() {
            if documents.counts()[path] == *quota {
                continue;
            }
            let level = documents.level(path, *quota);
            settled &= level == bias[path];
            bias[path] = level;
            documents.moved(path, bias);
        }
        counts = documents.counts();
        let off = deviation(&counts, target);
        if off < best.0 {
            best = (off, bias.to_vec());
        }
        if settled {
            break;
        }
    }
    bias.copy_from_slice(&best.1);
    best.0
}

/// The closest whole numbers of documents with the right sum: rounded down, then one more for those with the largest
/// remainder, the first of equals.
fn quotas(target: &[f64], documents: usize) -> Vec<usize> {
    let sum: f64 = target.iter().sum();
    let wanted = |path: usize| target[path] / sum * documents as f64;
    let mut quotas: Vec<usize> = (0..target.len()).map(|path| wanted(path).floor() as usize).collect();
    let mut losers: Vec<usize> = (0..target.len()).filter(|path| target[*path] > 0.0).collect();
    losers.sort_by(|a, b| (wanted(*b) - wanted(*b).floor()).total_cmp(&(wanted(*a) - wanted(*a).floor())));
    let left = documents.saturating_sub(quotas.iter().sum());
    losers.into_iter().take(left).for_each(|path| quotas[path] += 1);
    quotas
}

fn deviation(counts: &[usize], target: &[f64]) -> f64 {
    let documents: usize = counts.iter().sum();
    let off = counts.iter().zip(target).map(|(count, share)| (*count as f64 / documents as f64 - share).abs());
    off.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::seed::Seed;

    /// Scores on which some paths do better than others.
    fn scores(documents: usize, paths: usize) -> Vec<f64> {
        let mut rng = Seed::root(8).generator();
        let lead = |path: usize| ((path * 7) % paths) as f64 / paths as f64;
        (0..documents * paths).map(|at| 2.0 * rng.random::<f64>() + lead(at % paths)).collect()
    }

    fn counts(scores: &[f64], bias: &[f64]) -> Vec<usize> {
        Documents::new(scores, bias).counts()
    }

    #[test]
    fn every_path_gets_its_quota_whatever_the_biases_before() {
        for (documents, paths) in [(1000, 4), (200, 16), (20_000, 16), (5000, 64)] {
            let scores = scores(documents, paths);
            let sum = (1..=paths).sum::<usize>() as f64;
            let target: Vec<f64> = (1..=paths).map(|path| path as f64 / sum).collect();
            let mut bias: Vec<f64> = (0..paths).map(|path| if path == 1 { -100.0 } else { 0.0 }).collect();
            let off = balance(&scores, &mut bias, &target);
            let found = counts(&scores, &bias);
            assert_eq!(off, deviation(&found, &target));
            let quotas = quotas(&target, documents);
            let worst = found.iter().zip(&quotas).map(|(found, quota)| found.abs_diff(*quota)).max().unwrap();
            assert!(worst <= 1, "{worst} of {documents} documents, {paths} paths");
        }
    }

    #[test]
    fn a_path_that_is_to_have_nothing_gets_nothing_and_one_that_is_to_have_all_gets_all() {
        let scores = scores(500, 3);
        let mut bias = vec![0.0; 3];
        assert_eq!(balance(&scores, &mut bias, &[0.5, 0.0, 0.5]), 0.0);
        assert_eq!(counts(&scores, &bias), [250, 0, 250]);
        assert_eq!(balance(&scores, &mut bias, &[0.0, 1.0, 0.0]), 0.0);
        assert_eq!(counts(&scores, &bias), [0, 500, 0]);
        assert_eq!(balance(&[3.0, 4.0], &mut [7.0], &[1.0]), 0.0);
    }

    #[test]
    fn documents_that_are_all_the_same_go_together_and_the_rest_is_owned_up_to() {
        let scores = [1.0, 2.0, 3.0].repeat(40);
        let mut bias = vec![0.0; 3];
        let off = balance(&scores, &mut bias, &[0.25, 0.25, 0.5]);
        assert_eq!(off, 0.5);
        assert_eq!(counts(&scores, &bias).iter().filter(|count| **count > 0).count(), 1);
    }

    #[test]
    fn quotas_add_up_and_round_fairly() {
        assert_eq!(quotas(&[0.5, 0.25, 0.25], 10), [5, 3, 2]);
        assert_eq!(quotas(&[1.0 / 3.0; 3], 100), [34, 33, 33]);
        assert_eq!(quotas(&[0.0, 1.0], 7), [0, 7]);
        assert_eq!(quotas(&[0.9, 0.1], 1), [1, 0]);
    }
}
