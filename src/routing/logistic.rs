//! The fit of the discriminative router: from a document's features to the path that scored it best (DiPaCo, section
//! 2.4.2).
//!
//! Multinomial logistic regression with an L2 penalty, minimised by L-BFGS. The biases are then calibrated so that each
//! path gets its share of the documents. The same documents give the same bits on any machine and any number of
//! threads: sums are in f64 over a fixed number of parts, and `exp` and `ln` are not the platform's.

use rayon::prelude::*;

use super::calibration::balance;
use super::clusters::moments;
use super::cross_entropy::CrossEntropy;
use super::lbfgs::{dot, minimise};

/// Rows per rayon task.
const ROWS_A_TASK: usize = 256;

/// The fit has converged when all derivatives of the mean loss by standardised weights are below this.
const TOLERANCE: f64 = 1e-8;

/// Limit of steps. With separable paths and a tiny penalty, the last digits take long.
const MOST_ROUNDS: usize = 2000;

/// Tolerance for the sum of a target.
const SUM_TOLERANCE: f64 = 1e-6;

/// An affine score of a document's features for each path. The best score wins.
#[derive(Clone, Debug, PartialEq)]
pub struct Logistic {
    pub(super) width: usize,
    /// Row-major `[paths, width]`.
    pub(super) weights: Vec<f64>,
    /// `[paths]`.
    pub(super) bias: Vec<f64>,
}

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum LogisticError {
    #[error("{documents} documents cannot make {paths} shards; give more text or use fewer paths")]
    TooFew { documents: usize, paths: u32 },
    #[error("{values} values cannot be divided into rows of width {width}")]
    Shape { values: usize, width: usize },
    #[error("{labels} labels came for {documents} documents")]
    Labels { documents: usize, labels: usize },
    #[error("document {document} is for path {label}, but there are {paths} paths")]
    Label { document: usize, label: u32, paths: u32 },
    #[error("document {0} has a feature that is not finite")]
    NotFinite(usize),
    #[error("the strength of the penalty is {0}, but must be finite and above 0")]
    Strength(f64),
    #[error(
        "the target of calibration is not a distribution over {0} paths: it needs shares from 0 to 1 that add up to 1"
    )]
    Target(usize),
    #[error("the fit has diverged: the loss is not finite")]
    Diverged,
}

impl Logistic {
    /// Minimises the mean over documents of −ln p(label), plus `l2` / 2 times the sum of squared weights of
    /// standardised features. Biases are not penalised. (scikit-learn's `C` is 1 / (`l2` · documents).) `features` is
    /// row-major `[documents, width]`, `labels` has the best path of each document. A nearly constant feature gets no
    /// weight.
    ///
    /// A path without labels takes no part in the fit. It gets the same score on every document, below all other paths
    /// on these documents, and is first on no document until [`Logistic::calibrate`] raises its bias.
    pub fn fit(features: &[f32], width: usize, labels: &[u32], paths: u32, l2: f64) -> Result<Self, LogisticError> {
        check((features, width), labels, paths, l2)?;
        // Only paths with labels are fitted, in order; the biases of the others would diverge to minus infinity.
        let mut place = vec![None; paths as usize];
        labels.iter().for_each(|label| place[*label as usize] = Some(0));
        let mut present = 0;
        place.iter_mut().flatten().for_each(|place| {
            *place = present;
            present += 1;
        });
        let labels: Vec<usize> = labels.iter().filter_map(|label| place[*label as usize]).collect();
        let (mean, scale) = moments(features, width);
        let (paths, mean, scale) = (present, &mean[..], &scale[..]);
        let loss = CrossEntropy { features, width, labels: &labels, paths, mean, scale, l2, prior: None };
        Ok(Self::least(&loss, vec![0.0; present * (width + 1)])?.with_absent(&place, features))
    }

    /// The same, but the penalty is on the distance of weights and biases from this fit, so that without evidence they
    /// stay nearly the same. Features are standardised over `all` documents, so that a feature that is constant in
    /// these few keeps its weight.
    pub fn refit(&self, features: &[f32], labels: &[u32], all: &[f32], l2: f64) -> Result<Self, LogisticError> {
        let width = self.width;
        check((features, width), labels, self.paths(), l2)?;
        rows(all, width)?;
        let labels: Vec<usize> = labels.iter().map(|label| *label as usize).collect();
        let (mean, scale) = moments(all, width);
        let (paths, mean, scale) = (self.bias.len(), &mean[..], &scale[..]);
        let loss = CrossEntropy { features, width, labels: &labels, paths, mean, scale, l2, prior: None };
        let prior = loss.unfolded(&self.weights, &self.bias);
        Self::least(&CrossEntropy { prior: Some(&prior), ..loss }, prior.clone())
    }

    /// The minimum of a loss, from a start.
    fn least(loss: &CrossEntropy<'_>, start: Vec<f64>) -> Result<Self, LogisticError> {
        let found = minimise(start, TOLERANCE, MOST_ROUNDS, |at| loss.at(at)).ok_or(LogisticError::Diverged)?;
        let (weights, bias) = loss.folded(&found.at);
        let fitted = Self { width: loss.width, weights, bias };
        if fitted.weights.iter().chain(&fitted.bias).any(|value| !value.is_finite()) {
            return Err(LogisticError::Diverged);
        }
        Ok(fitted)
    }

    /// Moves the biases so that the share of these documents for each path comes as close to `target` as possible, and
    /// returns the error of the worst share. `features` is row-major `[documents, width]`. Takes 8 bytes for each
    /// document and path.
    ///
    /// Documents with equal features stay together, and so do documents of several paths without labels, since no
    /// feature separates such paths. Otherwise shares come within two documents of the target. It stops after 100
    /// rounds over the paths, with the best biases found.
    pub fn calibrate(&mut self, features: &[f32], target: &[f64]) -> Result<f64, LogisticError> {
        let documents = rows(features, self.width)?;
        if documents == 0 {
            return Err(LogisticError::TooFew { documents, paths: self.paths() });
        }
        let fair = |share: &f64| (0.0..=1.0).contains(share);
        let sum: f64 = target.iter().sum();
        if target.len() != self.bias.len() || !target.iter().all(fair) || (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(LogisticError::Target(self.bias.len()));
        }
        let products = |row: &[f32]| self.products(row);
        let scores: Vec<f64> =
            features.par_chunks(self.width).with_min_len(ROWS_A_TASK).flat_map_iter(products).collect();
        Ok(balance(&scores, &mut self.bias, target))
    }

    /// The best path of each document, the first of equals. `features` is row-major `[documents, width]`. A score that
    /// is not finite loses to all others.
    ///
    /// # Panics
    /// If the features are not whole rows.
    pub fn route(&self, features: &[f32]) -> Vec<u32> {
        self.top(features, 1)
    }

    /// The `n` best paths of each document, or all if there are fewer, best first, the first of equals first. Row-major
    /// `[documents, n]`, for overlapping shards.
    ///
    /// # Panics
    /// If the features are not whole rows.
    pub fn top(&self, features: &[f32], n: usize) -> Vec<u32> {
        assert!(features.len().is_multiple_of(self.width), "features of the router's width");
        let best = |row: &[f32]| {
            let scores = self.scores(row);
            let mut order: Vec<u32> = (0..self.paths()).collect();
            order.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]));
            order.truncate(n);
            order
        };
        features.par_chunks(self.width).with_min_len(ROWS_A_TASK).flat_map_iter(best).collect()
    }

    /// A document's score on each path: the logarithm of the path's probability, up to a common constant. Scores that
    /// are not finite become minus infinity.
    pub fn scores(&self, row: &[f32]) -> Vec<f64> {
        // Adding zero turns -0 into 0, so that equal scores compare as equal.
        let score = |(product, bias): (f64, &f64)| Some(product + bias + 0.0).filter(|score| score.is_finite());
        self.products(row).into_iter().zip(&self.bias).map(|sum| score(sum).unwrap_or(f64::NEG_INFINITY)).collect()
    }

    /// From weights, row-major `[paths, width]`, followed by the biases; `None` if one is not finite.
    pub(super) fn of(width: usize, values: &[f64]) -> Option<Self> {
        let paths = values.len() / (width + 1);
        let (weights, bias) = values.split_at_checked(paths * width)?;
        let finite = values.iter().all(|value| value.is_finite());
        finite.then(|| Self { width, weights: weights.to_vec(), bias: bias.to_vec() })
    }

    /// Number of features of a document.
    pub fn width(&self) -> usize {
        self.width
    }

    pub fn paths(&self) -> u32 {
        self.bias.len() as u32
    }

    /// Row-major `[paths, width]`, for plain features.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// One for each path.
    pub fn bias(&self) -> &[f64] {
        &self.bias
    }

    /// Scores without the biases.
    fn products(&self, row: &[f32]) -> Vec<f64> {
        let row: Vec<f64> = row.iter().map(|value| f64::from(*value)).collect();
        self.weights.chunks_exact(self.width).map(|weights| dot(weights, &row)).collect()
    }

    /// Adds the paths without labels. The scores of the others sum to 0 on every document, so the best of them is never
    /// below 0.
    fn with_absent(self, place: &[Option<usize>], features: &[f32]) -> Self {
        if place.iter().all(Option::is_some) {
            return self;
        }
        let lowest = |row: &[f32]| self.scores(row).into_iter().fold(0.0, f64::min);
        let lowest = features.par_chunks(self.width).with_min_len(ROWS_A_TASK).map(lowest).reduce(|| 0.0, f64::min);
        let weights = place.iter().flat_map(|place| match place {
            Some(place) => self.weights[place * self.width..][..self.width].to_vec(),
            None => vec![0.0; self.width],
        });
        let bias = place.iter().map(|place| place.map_or(lowest - 1.0, |place| self.bias[place]));
        Self { width: self.width, weights: weights.collect(), bias: bias.collect() }
    }
}

/// Checks the input of a fit.
fn check((features, width): (&[f32], usize), labels: &[u32], paths: u32, l2: f64) -> Result<(), LogisticError> {
    let documents = rows(features, width)?;
    if paths == 0 || documents < paths as usize {
        return Err(LogisticError::TooFew { documents, paths });
    }
    if labels.len() != documents {
        return Err(LogisticError::Labels { documents, labels: labels.len() });
    }
    if let Some(document) = labels.iter().position(|label| *label >= paths) {
        return Err(LogisticError::Label { document, label: labels[document], paths });
    }
    if !(l2 > 0.0 && l2.is_finite()) {
        return Err(LogisticError::Strength(l2));
    }
    Ok(())
}

/// Number of rows, if they are whole and finite.
fn rows(features: &[f32], width: usize) -> Result<usize, LogisticError> {
    if width == 0 || !features.len().is_multiple_of(width) {
        return Err(LogisticError::Shape { values: features.len(), width });
    }
    match features.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(LogisticError::NotFinite(at / width)),
        None => Ok(features.len() / width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents of three kinds in the plane, plus one constant feature.
    fn three_kinds() -> (Vec<f32>, Vec<u32>) {
        let centres = [(0.0, 9.0), (-8.0, -5.0), (8.0, -5.0)];
        let row = |i: usize| {
            let (x, y) = centres[i % 3];
            [1000.0 + x + ((i * 37) % 19) as f32 * 0.1, y + ((i * 53) % 23) as f32 * 0.1, 5.0]
        };
        ((0..150).flat_map(row).collect(), (0..150).map(|i| i % 3).collect())
    }

    #[test]
    fn documents_that_are_plain_to_tell_apart_are_told_apart() {
        let (features, labels) = three_kinds();
        let found = Logistic::fit(&features, 3, &labels, 3, 1e-3).unwrap();
        assert_eq!(found.route(&features), labels);
        assert_eq!((found.width(), found.paths()), (3, 3));
        assert!((0..3).all(|path| found.weights()[3 * path + 2] == 0.0), "a feature that never varies says nothing");
    }

    #[test]
    fn features_that_say_nothing_leave_the_shares_as_probabilities() {
        let labels: Vec<u32> = (0..100).map(|i| [0, 0, 0, 0, 0, 1, 1, 1, 2, 2][i % 10]).collect();
        let found = Logistic::fit(&[7.0; 100], 1, &labels, 3, 1e-3).unwrap();
        let scores = found.scores(&[7.0]);
        for (path, share) in [0.5f64, 0.3, 0.2].into_iter().enumerate() {
            assert!((scores[path] - scores[0] - (share / 0.5).ln()).abs() < 1e-6, "{scores:?}");
        }
    }

    #[test]
    fn a_path_that_is_nobodys_best_is_nobodys_first_until_calibration_lifts_it() {
        let (features, labels) = three_kinds();
        let labels: Vec<u32> = labels.iter().map(|label| label * 2).collect();
        let mut found = Logistic::fit(&features, 3, &labels, 5, 1e-3).unwrap();
        assert_eq!(found.route(&features), labels);
        let far: Vec<f32> = (0..60).flat_map(|i| [i as f32 * 90.0, 400.0 - (i * i) as f32, -7.0]).collect();
        assert!(found.route(&far).iter().all(|path| path % 2 == 0));
        assert!(found.top(&features, 3).iter().all(|path| path % 2 == 0));
        let off = found.calibrate(&features, &[0.3, 0.1, 0.3, 0.0, 0.3]).unwrap();
        let lifted = found.route(&features).iter().filter(|path| **path == 1).count();
        assert_eq!((off < 1e-12, lifted), (true, 15), "off by {off}");
    }

    #[test]
    fn a_fit_anew_stays_what_it_was_where_documents_say_nothing() {
        let (features, labels) = three_kinds();
        let before = Logistic::fit(&features, 3, &labels, 3, 1e-3).unwrap();
        // No documents of the third kind are given, and the first path is better on those of the second.
        let heard = || (0..150).filter(|i| i % 3 != 2);
        let some: Vec<f32> = heard().flat_map(|i| features[3 * i..][..3].to_vec()).collect();
        let after = before.refit(&some, &vec![0; 100], &features, 1e-3).unwrap();
        let expected: Vec<u32> = (0..150).map(|i| [0, 0, 2][i % 3]).collect();
        assert_eq!(after.route(&features), expected);
        let same: Vec<u32> = heard().map(|i| labels[i]).collect();
        assert_eq!(before.refit(&some, &same, &features, 1e-3).unwrap().route(&features), labels);
        assert_eq!(
            before.refit(&some, &same[1..], &features, 1.0).unwrap_err(),
            LogisticError::Labels { documents: 100, labels: 99 }
        );
    }

    #[test]
    fn a_fit_anew_keeps_the_weight_of_what_does_not_vary_in_its_documents() {
        // The first feature separates two paths over all documents, but is constant in these few.
        let all: Vec<f32> = (0..80).flat_map(|i| [(i % 2) as f32, (i % 5) as f32]).collect();
        let labels: Vec<u32> = (0..80).map(|i| i % 2).collect();
        let before = Logistic::fit(&all, 2, &labels, 2, 1e-3).unwrap();
        let few: Vec<f32> = (0..20).flat_map(|i| [0.0, (i % 5) as f32]).collect();
        let after = before.refit(&few, &[0; 20], &all, 1e-3).unwrap();
        assert_eq!(after.route(&all), labels);
    }

    #[test]
    fn the_best_paths_come_in_order_and_of_equals_the_first() {
        let weights = vec![1.0, -1.0, 0.0, 1.0];
        let found = Logistic { width: 1, weights, bias: vec![0.0, 0.0, -0.0, 0.0] };
        assert_eq!(found.top(&[2.0, -2.0, 0.0], 3), [0, 3, 2, 1, 2, 0, 0, 1, 2]);
        assert_eq!(found.route(&[2.0, -2.0, 0.0]), [0, 1, 0]);
        assert_eq!(found.top(&[2.0], 9), [0, 3, 2, 1]);
        assert_eq!(found.top(&[f32::NAN], 1), [0]);
        assert!(found.route(&[]).is_empty());
    }

    #[test]
    fn what_cannot_be_fitted_or_calibrated_is_refused() {
        let fit = |features: &[f32], labels: &[u32], paths, l2| Logistic::fit(features, 2, labels, paths, l2);
        let refused = |features: &[f32], labels: &[u32], paths, l2| fit(features, labels, paths, l2).unwrap_err();
        let four = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(refused(&four, &[0, 1], 3, 1.0), LogisticError::TooFew { documents: 2, paths: 3 });
        assert_eq!(refused(&[], &[], 0, 1.0), LogisticError::TooFew { documents: 0, paths: 0 });
        assert_eq!(refused(&four[..3], &[0, 1], 2, 1.0), LogisticError::Shape { values: 3, width: 2 });
        assert_eq!(refused(&four, &[0], 2, 1.0), LogisticError::Labels { documents: 2, labels: 1 });
        assert_eq!(refused(&four, &[0, 2], 2, 1.0), LogisticError::Label { document: 1, label: 2, paths: 2 });
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(refused(&[1.0, 2.0, 3.0, bad], &[0, 1], 2, 1.0), LogisticError::NotFinite(1));
        }
        for l2 in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert!(matches!(refused(&four, &[0, 1], 2, l2), LogisticError::Strength(_)));
        }
        let mut found = fit(&four, &[0, 1], 2, 1.0).unwrap();
        let before = found.clone();
        let mut refused = |features: &[f32], target: &[f64]| found.calibrate(features, target).unwrap_err();
        for target in [&[1.0][..], &[0.6, 0.6], &[1.5, -0.5], &[f64::NAN, 1.0], &[0.5, 0.25, 0.25]] {
            assert_eq!(refused(&four, target), LogisticError::Target(2));
        }
        assert_eq!(refused(&[], &[0.5, 0.5]), LogisticError::TooFew { documents: 0, paths: 2 });
        assert_eq!(refused(&four[..3], &[0.5, 0.5]), LogisticError::Shape { values: 3, width: 2 });
        assert_eq!(refused(&[1.0, f32::NAN], &[0.5, 0.5]), LogisticError::NotFinite(0));
        assert_eq!(found, before);
    }
}
