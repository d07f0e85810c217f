//! `[routing]`: assignment of text to paths.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingMethod {
    /// k-means on the ancestor's features (DiPaCo, section 2.4).
    Kmeans,
    /// k-means on each half of the features; a path is a pair of clusters (DiPaCo, section 7.3).
    ProductKmeans,
    /// By the hash of the document (the control).
    Random,
}

/// `[routing]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingConfig {
    pub method: RoutingMethod,
    /// Number of tokens at the beginning of a document that choose its path. They are not scored.
    pub prefix_tokens: usize,
    pub kmeans_rounds: usize,
    /// Each training document goes to this many best paths (DiPaCo, section 2.4.4).
    pub overlap: usize,
    /// Before these phases the text is resharded, by which path predicts each document best (DiPaCo, section 2.4.2).
    pub reshard: Vec<u64>,
    /// Share of the training documents in the slice for resharding, on which no path trains. The slice has at least 50
    /// documents for each path.
    pub slice_share: f64,
}

/// Default share of the slice (DiPaCo, section 7.2.1).
pub const SLICE_SHARE: f64 = 0.005;

/// Minimum size of the slice for each path.
pub const SLICE_DOCUMENTS: usize = 50;

impl Default for RoutingConfig {
    fn default() -> Self {
        let (method, slice_share) = (RoutingMethod::Kmeans, SLICE_SHARE);
        Self { method, prefix_tokens: 32, kmeans_rounds: 50, overlap: 1, reshard: Vec::new(), slice_share }
    }
}

/// The first scored token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starts {
    /// Of a document. The tokens before it choose the path.
    pub of_document: usize,
    /// Of any sequence. The network may see the tokens before it all at once.
    pub of_sequence: usize,
}
