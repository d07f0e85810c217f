//! The loss of a fit and its gradient: mean cross-entropy of the labels under a softmax of affine scores, with an L2
//! penalty.
//!
//! Documents are summed in a fixed number of parts, and the parts in order, so that the number of threads does not
//! change the result. `exp` and `ln` come from libm, since those of platforms differ.

use rayon::prelude::*;

use super::lbfgs::{add, dot};

/// Number of parts that are summed separately, each with its own gradient. More would only cost memory.
const PARTS: usize = 32;

/// A function of parameters: weights of standardised features, row-major `[paths, width]`, followed by the biases.
pub(super) struct CrossEntropy<'a> {
    /// Row-major `[documents, width]`, not standardised.
    pub(super) features: &'a [f32],
    pub(super) width: usize,
    /// The path of each document.
    pub(super) labels: &'a [usize],
    pub(super) paths: usize,
    pub(super) mean: &'a [f64],
    /// Factor of each centred feature.
    pub(super) scale: &'a [f64],
    /// Weight of half the sum of squared weights.
    pub(super) l2: f64,
    /// If given, the penalty is on the squared distance of all parameters from these.
    pub(super) prior: Option<&'a [f64]>,
}

impl CrossEntropy<'_> {
    /// The value and the gradient.
    pub(super) fn at(&self, parameters: &[f64]) -> (f64, Vec<f64>) {
        let count = self.labels.len().div_ceil(PARTS).max(1);
        let features = self.features.par_chunks(count * self.width);
        let parts: Vec<(f64, Vec<f64>)> = features
            .zip(self.labels.par_chunks(count))
            .map(|(features, labels)| self.part(parameters, features, labels))
            .collect();
        let each = 1.0 / self.labels.len() as f64;
        let away: Vec<f64> = match self.prior {
            Some(prior) => parameters.iter().zip(prior).map(|(value, prior)| value - prior).collect(),
            None => parameters[..self.paths * self.width].to_vec(),
        };
        let mut value = 0.5 * self.l2 * dot(&away, &away);
        let mut gradient: Vec<f64> = away.iter().map(|away| self.l2 * away).collect();
        gradient.resize(parameters.len(), 0.0);
        for (loss, slope) in parts {
            value += each * loss;
            add(&mut gradient, each, &slope);
        }
        (value, gradient)
    }

    /// The sums over one part of the documents.
    fn part(&self, parameters: &[f64], features: &[f32], labels: &[usize]) -> (f64, Vec<f64>) {
        let (weights, bias) = parameters.split_at(self.paths * self.width);
        let mut gradient = vec![0.0; parameters.len()];
        let (weight_slopes, bias_slopes) = gradient.split_at_mut(weights.len());
        let mut loss = 0.0;
        let mut row = vec![0.0; self.width];
        let mut scores = vec![0.0; self.paths];
        for (values, label) in features.chunks_exact(self.width).zip(labels) {
            for (((place, value), mean), scale) in row.iter_mut().zip(values).zip(self.mean).zip(self.scale) {
                *place = (f64::from(*value) - mean) * scale;
            }
            for ((score, weights), bias) in scores.iter_mut().zip(weights.chunks_exact(self.width)).zip(bias) {
                *score = bias + dot(weights, &row);
            }
            loss += loss_of(&mut scores, *label);
            for (slope, slopes) in scores.iter().zip(weight_slopes.chunks_exact_mut(self.width)) {
                add(slopes, *slope, &row);
            }
            add(bias_slopes, 1.0, &scores);
        }
        (loss, gradient)
    }

    /// Converts weights and biases of plain features to parameters of standardised ones. A constant feature gets no
    /// weight.
    pub(super) fn unfolded(&self, weights: &[f64], bias: &[f64]) -> Vec<f64> {
        let rows = weights.chunks_exact(self.width);
        let standard = |(weight, scale): (&f64, &f64)| if *scale > 0.0 { weight / scale } else { 0.0 };
        let biases = rows.clone().zip(bias).map(|(row, bias)| bias + dot(row, self.mean));
        let standard: Vec<f64> = rows.flat_map(|row| row.iter().zip(self.scale).map(standard)).collect();
        standard.into_iter().chain(biases).collect()
    }

    /// The inverse of [`Self::unfolded`]: weights and biases for plain features.
    pub(super) fn folded(&self, parameters: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (weights, bias) = parameters.split_at(self.paths * self.width);
        let rows = weights.chunks_exact(self.width);
        let weights: Vec<f64> =
            rows.flat_map(|row| row.iter().zip(self.scale).map(|(weight, scale)| weight * scale)).collect();
        let rows = weights.chunks_exact(self.width);
        let bias = rows.zip(bias).map(|(row, bias)| bias - dot(row, self.mean)).collect();
        (weights, bias)
    }
}

/// −ln of the label's probability. Replaces `scores` by the derivatives: the probabilities, less 1 for the label.
fn loss_of(scores: &mut [f64], label: usize) -> f64 {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let own = scores[label] - most;
    scores.iter_mut().for_each(|score| *score = libm::exp(*score - most));
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
    scores[label] -= 1.0;
    libm::log(sum) - own
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: [f64; 3] = [0.1, -0.2, 0.3];
    const SCALE: [f64; 3] = [1.0, 2.0, 0.5];

    fn loss<'a>(features: &'a [f32], labels: &'a [usize], prior: Option<&'a [f64]>) -> CrossEntropy<'a> {
        CrossEntropy { features, width: 3, labels, paths: 4, mean: &MEAN, scale: &SCALE, l2: 0.3, prior }
    }

    #[test]
    fn the_gradient_is_what_the_value_changes_by() {
        let features: Vec<f32> = (0..300).map(|at| (0.7 * at as f32).sin()).collect();
        let labels: Vec<usize> = (0..100).map(|document| (document * document) % 4).collect();
        let (here, prior): (Vec<f64>, Vec<f64>) =
            (0..16).map(f64::from).map(|at| ((1.3 * at).cos(), (0.9 * at).sin())).unzip();
        for prior in [None, Some(&prior[..])] {
            let loss = loss(&features, &labels, prior);
            let (_, gradient) = loss.at(&here);
            for at in 0..16 {
                let moved = |by: f64| {
                    let mut there = here.clone();
                    there[at] += by;
                    loss.at(&there).0
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((slope - gradient[at]).abs() < 1e-9, "{at}: {slope} {}", gradient[at]);
            }
        }
    }

    #[test]
    fn what_is_folded_can_be_unfolded() {
        let loss = loss(&[], &[], None);
        let here: Vec<f64> = (0..16).map(|at| (1.3 * f64::from(at)).cos()).collect();
        let (weights, bias) = loss.folded(&here);
        let back = loss.unfolded(&weights, &bias);
        assert!(here.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-12), "{here:?} {back:?}");
    }

    #[test]
    fn scores_beyond_the_range_of_exp_have_a_loss() {
        let mut scores = [1000.0, 0.0, -1000.0];
        assert_eq!(loss_of(&mut scores, 2), 2000.0);
        assert_eq!(scores, [1.0, 0.0, -1.0]);
    }
}
