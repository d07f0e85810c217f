//! `[routing]`: which text goes to which path.

use serde::{Deserialize, Serialize};

/// How sequences find their path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingMethod {
    /// k-means on the ancestor's features (DiPaCo, section 2.4).
    Kmeans,
    /// k-means on each half of them; a path is a pair of clusters (DiPaCo, section 2.4).
    ProductKmeans,
    /// By hash of the document: the control.
    Random,
}

/// `[routing]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingConfig {
    /// k-means, product k-means, or the random control.
    pub method: RoutingMethod,
    /// The first tokens of a document, which choose its path; they do not count in evaluation.
    pub prefix_tokens: usize,
    /// At most this many k-means rounds.
    pub kmeans_rounds: usize,
    /// Each training document goes to so many paths, its best (DiPaCo, section 2.4.3).
    #[serde(skip_serializing_if = "is_one")]
    pub overlap: usize,
    /// Before these phases the text is shared out anew, by which path predicts it best (DiPaCo, section 2.4.2).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reshard: Vec<u64>,
    /// Share of the training documents by which that is found out, and which no path trains on; more where these are fewer
    /// than 50 for each path.
    #[serde(skip_serializing_if = "is_slice_share")]
    pub slice_share: f64,
}

/// Share of the training documents in the slice that paths score (DiPaCo's supplement).
pub const SLICE_SHARE: f64 = 0.005;

/// Documents of the slice for each path, at the least (DiPaCo's supplement).
pub const SLICE_DOCUMENTS: usize = 50;

fn is_slice_share(share: &f64) -> bool {
    *share == SLICE_SHARE
}

fn is_one(number: &usize) -> bool {
    *number == 1
}

impl Default for RoutingConfig {
    fn default() -> Self {
        let (method, slice_share) = (RoutingMethod::Kmeans, SLICE_SHARE);
        Self { method, prefix_tokens: 32, kmeans_rounds: 50, overlap: 1, reshard: Vec::new(), slice_share }
    }
}
