//! Routing of documents when a run is created: the router is fitted on a bounded number of documents and applied to a
//! few thousand at a time.

use crate::config::{RoutingMethod, RunConfig};
use crate::names::{BlobHash, PathId};
use crate::peer::create::continuation::{Continuation, NextRouter};
use crate::peer::create::dense::Dense;
use crate::peer::create::dense_trainer::DenseTrainer;
use crate::routing::Router;
use crate::seed::Seed;
use crate::text::TokenSet;

/// Limit of documents for a fit, evenly sampled.
const MOST_CLUSTERED: usize = 1 << 16;

/// Documents whose features are in memory at once.
const ROUTED_AT_ONCE: usize = 1 << 13;

fn fit_router(
    run: &RunConfig,
    trainer: &mut DenseTrainer<'_>,
    ancestor: &Dense,
    ancestor_hash: BlobHash,
    train: &TokenSet,
) -> anyhow::Result<Router> {
    let paths = run.grid()?.path_count();
    let prefix_tokens = run.routing.prefix_tokens;
    let seed = Seed::root(run.seed).child("routing");
    Ok(match run.routing.method {
        RoutingMethod::Random => Router::random(paths, prefix_tokens, seed),
        RoutingMethod::Kmeans | RoutingMethod::ProductKmeans => {
            let product = run.routing.method == RoutingMethod::ProductKmeans;
            let features = sampled_features(trainer, ancestor, train, prefix_tokens)?;
            let (width, rounds) = (run.model.width, run.routing.kmeans_rounds);
            Router::fit((&features, width), (paths, product), prefix_tokens, ancestor_hash, rounds, seed)?
        }
    })
}

/// The first router of a run: random, fitted on the training text, or that of the run from which it goes on.
///
/// # Errors
/// If there are too few documents, or they do not fit the ancestor.
pub(super) fn first_router(
    run: &RunConfig,
    continuation: Option<&Continuation>,
    trainer: &mut DenseTrainer<'_>,
    (ancestor, ancestor_hash): (&Dense, BlobHash),
    train: &TokenSet,
) -> anyhow::Result<Router> {
    match continuation.map_or(NextRouter::Fitted, Continuation::router) {
        NextRouter::Same(router) => {
            let fits = router.ancestor().is_none_or(|of| of == ancestor_hash);
            anyhow::ensure!(
                fits,
                "the earlier run's ancestor is written otherwise now, which its router does not know"
            );
            Ok(router.clone())
        }
        NextRouter::Divided(router, parents) => {
            let features = sampled_features(trainer, ancestor, train, run.routing.prefix_tokens)?;
            let seed = Seed::root(run.seed).child("routing");
            Ok(router.divided((&features, run.model.width), &parents, run.routing.kmeans_rounds, seed)?)
        }
        NextRouter::Fitted => fit_router(run, trainer, ancestor, ancestor_hash, train),
    }
}

/// Features of documents, evenly sampled.
fn sampled_features(
    trainer: &mut DenseTrainer<'_>,
    ancestor: &Dense,
    train: &TokenSet,
    prefix_tokens: usize,
) -> anyhow::Result<Vec<f32>> {
    let prefixes = prefixes(train, prefix_tokens);
    let every = prefixes.len().div_ceil(MOST_CLUSTERED).max(1);
    let sample: Vec<&[u32]> = prefixes.into_iter().step_by(every).collect();
    trainer.features(ancestor, &sample)
}

/// The `each` best paths of each document.
pub(super) fn routes(
    router: &Router,
    trainer: &mut DenseTrainer<'_>,
    ancestor: &Dense,
    set: &TokenSet,
    each: usize,
) -> anyhow::Result<Vec<PathId>> {
    let prefixes = prefixes(set, router.prefix_tokens());
    let mut routes = Vec::with_capacity(prefixes.len() * each);
    for some in prefixes.chunks(ROUTED_AT_ONCE) {
        let features = if router.needs_features() { trainer.features(ancestor, some)? } else { Vec::new() };
        routes.extend(router.top_all(&features, some, each));
    }
    Ok(routes)
}

fn prefixes(set: &TokenSet, count: usize) -> Vec<&[u32]> {
    set.documents().map(|sequences| set.prefix(sequences.start, count)).collect()
}

/// The sequences whose documents go to a path.
pub(super) fn routed_to(set: &TokenSet, routes: &[PathId], path: PathId) -> Vec<usize> {
    let documents = set.documents().zip(routes).filter(|(_, route)| **route == path);
    documents.flat_map(|(sequences, _)| sequences).collect()
}
