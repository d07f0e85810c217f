//! Assignment of documents to paths: by clusters of their features, by hash, or by which path predicts them best.

use crate::config::{RoutingMethod, RunConfig};
use crate::experiment::dataset::{Dataset, Documents};
use crate::names::{BlobHash, PathId};
use crate::routing::discriminative::Rows;
use crate::routing::{Router, RouterError};
use crate::seed::Seed;
use crate::text::TokenSet;

/// Features of the frozen ancestor, `[documents, width]` of each part of the text.
pub struct Features {
    /// Features per document; 0 if the router uses none.
    pub width: usize,
    /// BLAKE3 of the ancestor's parameters.
    pub ancestor: BlobHash,
    /// Of the training documents.
    pub train: Vec<f32>,
    /// Of the held out ones.
    pub held_out: Vec<f32>,
    /// Of the slice.
    pub slice: Vec<f32>,
    /// Of the test documents.
    pub test: Vec<f32>,
}

/// The text of each path.
pub struct Assignment {
    /// Training sequences by path.
    pub train: Vec<TokenSet>,
    /// The best path of each training document.
    pub homes: Vec<PathId>,
    /// Held out documents by path.
    pub held_out: Vec<Documents>,
    /// The path of each document of the slice.
    pub slice: Vec<PathId>,
    /// The path of each test document.
    pub test: Vec<PathId>,
}

#[derive(Debug, thiserror::Error)]
pub enum AssignmentError {
    #[error("path {0} has no training sequences; give more text or use fewer paths")]
    Empty(PathId),
    #[error(transparent)]
    Router(#[from] RouterError),
    #[error("the discriminative router: {0}")]
    Logistic(#[from] crate::routing::LogisticError),
}

/// The first router of an arm.
pub fn first_router(run: &RunConfig, paths: u32, features: &Features) -> Result<Router, RouterError> {
    let seed = Seed::root(run.seed).child("routing");
    let (prefix, rounds) = (run.routing.prefix_tokens, run.routing.kmeans_rounds);
    let product = run.routing.method == RoutingMethod::ProductKmeans;
    match run.routing.method {
        RoutingMethod::Random => Ok(Router::random(paths, prefix, seed)),
        RoutingMethod::Kmeans | RoutingMethod::ProductKmeans => {
            let rows = (&features.train[..], features.width);
            Router::fit(rows, (paths, product), prefix, features.ancestor, rounds, seed)
        }
    }
}

/// The router after `current` that sends documents to the paths that predicted similar documents of the slice best:
/// `best` is the path of each.
pub fn discriminative(current: &Router, features: &Features, best: &[u32]) -> Result<Router, AssignmentError> {
    let Features { width, ancestor, train, slice, .. } = features;
    let rows = Rows { slice, train, width: *width, ancestor: *ancestor };
    Ok(Router::by_best(rows, best, current)?)
}

impl Assignment {
    /// Assigns the text by a router; each training document goes to its `overlap` best paths.
    pub fn by(
        router: &Router,
        dataset: &Dataset,
        features: &Features,
        overlap: usize,
    ) -> Result<Self, AssignmentError> {
        let routes = |documents: &Documents, features: &[f32], n: usize| -> Vec<Vec<PathId>> {
            let n = n.min(router.paths() as usize);
            let features = if router.needs_features() { features } else { &[] };
            let routes = router.top_all(features, &documents.prefixes(router.prefix_tokens()), n);
            routes.chunks(n).map(<[PathId]>::to_vec).collect()
        };
        let of_path = |routes: &[Vec<PathId>], path: PathId| -> Vec<usize> {
            (0..routes.len()).filter(|document| routes[*document].contains(&path)).collect()
        };
        let train = routes(&dataset.train, &features.train, overlap);
        let held_out = routes(&dataset.held_out, &features.held_out, 1);
        let only = |routes: Vec<Vec<PathId>>| routes.into_iter().map(|best| best[0]).collect();
        let slice = only(routes(&dataset.slice, &features.slice, 1));
        let test = only(routes(&dataset.test, &features.test, 1));
        let paths = || (0..router.paths()).map(PathId);
        let homes = train.iter().map(|best| best[0]).collect();
        let train: Vec<TokenSet> = paths().map(|path| dataset.train.only(of_path(&train, path)).set).collect();
        if let Some(empty) = train.iter().position(TokenSet::is_empty) {
            return Err(AssignmentError::Empty(PathId(empty as u32)));
        }
        let held_out = paths().map(|path| dataset.held_out.only(of_path(&held_out, path))).collect();
        Ok(Self { train, homes, held_out, slice, test })
    }

    /// All text to one path.
    pub fn undivided(dataset: &Dataset) -> Self {
        Self {
            train: vec![dataset.train.set.clone()],
            homes: vec![PathId(0); dataset.train.count()],
            held_out: vec![dataset.held_out.clone()],
            slice: vec![PathId(0); dataset.slice.count()],
            test: vec![PathId(0); dataset.test.count()],
        }
    }

    /// Training sequences of each path.
    pub fn sizes(&self) -> Vec<usize> {
        self.train.iter().map(TokenSet::len).collect()
    }
}
