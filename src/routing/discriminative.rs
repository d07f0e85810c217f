//! The router that sends documents where those of a slice were predicted best (DiPaCo, section 2.4.2).

use super::logistic::{Logistic, LogisticError};
use super::router::Router;
use crate::names::BlobHash;

/// Strength of the fit's penalty.
const PENALTY: f64 = 1e-3;

/// Features of the ancestor, row-major `[documents, width]`.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Of the slice's documents.
    pub slice: &'a [f32],
    /// Of the training documents.
    pub train: &'a [f32],
    /// Values of a row.
    pub width: usize,
    /// BLAKE3 of the ancestor's parameters.
    pub ancestor: BlobHash,
}

impl Router {
    /// Fits it; `best` is the best path of each document of the slice. Its shares of the training documents are those of
    /// the slice, a little evened out so that no path goes without.
    ///
    /// # Errors
    /// If there is no fit.
    pub fn by_best(rows: Rows<'_>, best: &[u32], paths: u32, prefix_tokens: usize) -> Result<Self, LogisticError> {
        let mut logistic = Logistic::fit(rows.slice, rows.width, best, paths, PENALTY)?;
        let mut counts = vec![1.0; paths as usize];
        best.iter().for_each(|path| counts[*path as usize] += 1.0);
        let all: f64 = counts.iter().sum();
        let target: Vec<f64> = counts.into_iter().map(|count| count / all).collect();
        logistic.calibrate(rows.train, &target)?;
        Ok(Self::discriminative(logistic, prefix_tokens, rows.ancestor))
    }
}
