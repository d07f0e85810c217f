//! The router: it sends a document to a path by its first tokens (DiPaCo, section 2.4).

mod encoding;

use rand::Rng;

use crate::grid::halves;
use crate::names::{BlobHash, PathId};
use crate::routing::clusters::Clusters;
use crate::routing::kmeans::KmeansError;
use crate::routing::logistic::Logistic;
use crate::routing::router::encoding::FILE_VERSION;
use crate::seed::Seed;

/// Upper bound of features, which bounds the allocation for an encoded router.
pub const MAX_WIDTH: usize = 1 << 16;

/// Sends documents to paths. It changes during a run only by resharding.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    pub(in crate::routing) paths: u32,
    pub(in crate::routing) prefix_tokens: u32,
    pub(in crate::routing) rule: Rule,
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::routing) enum Rule {
    /// By clusters of the features of the ancestor with this BLAKE3.
    Clusters { ancestor: BlobHash, clusters: Clusters },
    /// By a logistic fit of the path that predicts a document best.
    Logistic { ancestor: BlobHash, logistic: Logistic },
    /// By a keyed hash of the first tokens. The control: the gain of k-means over it is the gain of routing.
    Random { key: [u8; 32] },
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RouterError {
    #[error(transparent)]
    Kmeans(#[from] KmeansError),
    #[error(
        "{0} paths are not a product of two numbers above 1, as product k-means needs; use another number, or k-means"
    )]
    NoPairs(u32),
    #[error(
        "the earlier router sends {documents} of the documents to path {path}, from which {paths} paths come; give more \
         text, or fit another router"
    )]
    Divide { path: PathId, documents: usize, paths: usize },
    #[error("not a router of version {FILE_VERSION}: {0}")]
    Format(&'static str),
    #[error("the router has {what} {found}, but the run asks for {expected}")]
    Mismatch { what: &'static str, found: usize, expected: usize },
}

impl Router {
    /// Fits one cluster for each path, or with `product`, clusters of each half of the features, whose pairs are the
    /// paths. `features` is row-major `[documents, width]`, finite; at most 50,000 rows are used. `ancestor` is the
    /// hash of the parameters that computed them.
    pub fn fit(
        (features, width): (&[f32], usize),
        (paths, product): (u32, bool),
        prefix_tokens: usize,
        ancestor: BlobHash,
        rounds: usize,
        seed: Seed,
    ) -> Result<Self, RouterError> {
        if width == 0 || width > MAX_WIDTH {
            return Err(RouterError::Kmeans(KmeansError::Shape { values: features.len(), width }));
        }
        let counts = match product {
            true => halves(paths).ok_or(RouterError::NoPairs(paths))?.to_vec(),
            false => vec![paths as usize],
        };
        let clusters = Clusters::fit(features, width, &counts, rounds, seed)?;
        let rule = Rule::Clusters { ancestor, clusters };
        Ok(Self { paths, prefix_tokens: prefix_tokens as u32, rule })
    }

    /// Divides each path of a router among the paths that come of it: clusters within the documents that it sends there.
    /// `features` as in [`Router::fit`], of the same ancestor; `parents` has the earlier path of each new one. Documents
    /// near a border may change over to a path of another parent.
    pub fn divided(
        &self,
        (features, width): (&[f32], usize),
        parents: &[PathId],
        rounds: usize,
        seed: Seed,
    ) -> Result<Self, RouterError> {
        let Some(ancestor) = self.ancestor().filter(|_| self.width() == width && width > 0) else {
            return Err(RouterError::Mismatch { what: "features", found: self.width(), expected: width });
        };
        let groups: Vec<u32> = features.chunks(width).map(|row| self.route(row, &[]).0).collect();
        let parents: Vec<u32> = parents.iter().map(|path| path.0).collect();
        let (mut documents, mut paths) = (vec![0; self.paths as usize], vec![0; self.paths as usize]);
        groups.iter().for_each(|group| documents[*group as usize] += 1);
        parents.iter().for_each(|parent| paths[*parent as usize] += 1);
        for (path, (documents, paths)) in (0..).zip(documents.into_iter().zip(paths)) {
            if documents < paths {
                return Err(RouterError::Divide { path: PathId(path), documents, paths });
            }
        }
        let clusters = Clusters::fit_within((features, width), &groups, &parents, rounds, seed)?;
        let paths = parents.len() as u32;
        Ok(Self { paths, prefix_tokens: self.prefix_tokens, rule: Rule::Clusters { ancestor, clusters } })
    }

    /// From a fit of the best paths of documents (DiPaCo, section 2.4.2). `ancestor` is the hash of the parameters that
    /// computed the features.
    pub fn discriminative(logistic: Logistic, prefix_tokens: usize, ancestor: BlobHash) -> Self {
        let (paths, prefix_tokens) = (logistic.paths(), prefix_tokens as u32);
        Self { paths, prefix_tokens, rule: Rule::Logistic { ancestor, logistic } }
    }

    /// The control: random paths, but always the same path for the same first tokens.
    pub fn random(paths: u32, prefix_tokens: usize, seed: Seed) -> Self {
        let mut key = [0; 32];
        seed.child("random routing").generator().fill_bytes(&mut key);
        Self { paths: paths.max(1), prefix_tokens: prefix_tokens as u32, rule: Rule::Random { key } }
    }

    /// The path of a document. `prefix` has the document's first [`Router::prefix_tokens`] tokens, `features` the
    /// [`Router::width`] features that the ancestor computes from them. The control uses only `prefix`. Features that
    /// are not finite lead to the first cluster, path 0 of k-means.
    ///
    /// # Panics
    /// If there are not [`Router::width`] features. [`Router::check`] compares the width when the router arrives.
    pub fn route(&self, features: &[f32], prefix: &[u32]) -> PathId {
        self.top(features, prefix, 1)[0]
    }

    /// The `n` best paths of a document, at least 1, or all if there are fewer, best first. For overlapping shards
    /// (DiPaCo, section 2.4.4). The control takes the paths after its first.
    ///
    /// # Panics
    /// As [`Router::route`].
    pub fn top(&self, features: &[f32], prefix: &[u32], n: usize) -> Vec<PathId> {
        let n = n.clamp(1, self.paths as usize);
        assert!(self.width() == 0 || features.len() == self.width(), "features of the router's width");
        let paths = match &self.rule {
            Rule::Clusters { clusters, .. } => clusters.nearest_paths(features, n),
            Rule::Logistic { logistic, .. } => logistic.top(features, n),
            Rule::Random { key } => {
                let first = drawn(key, &prefix[..prefix.len().min(self.prefix_tokens as usize)], self.paths);
                (0..n as u32)
                    .map(|step| ((u64::from(first) + u64::from(step)) % u64::from(self.paths)) as u32)
                    .collect()
            }
        };
        paths.into_iter().map(PathId).collect()
    }

    /// The paths of documents: `features` is row-major `[prefixes, width]`, or empty for the control.
    ///
    /// # Panics
    /// As [`Router::route`].
    pub fn route_all(&self, features: &[f32], prefixes: &[&[u32]]) -> Vec<PathId> {
        self.top_all(features, prefixes, 1)
    }

    /// The `n` best paths of each document, as by [`Router::top`], one document after the other.
    ///
    /// # Panics
    /// As [`Router::route`].
    pub fn top_all(&self, features: &[f32], prefixes: &[&[u32]], n: usize) -> Vec<PathId> {
        let width = self.width();
        let top = |(i, prefix): (usize, &&[u32])| self.top(&features[i * width..(i + 1) * width], prefix, n);
        prefixes.iter().enumerate().flat_map(top).collect()
    }

    /// Whether routing uses the ancestor's features.
    pub fn needs_features(&self) -> bool {
        self.width() > 0
    }

    /// Number of features; 0 for the control.
    pub fn width(&self) -> usize {
        match &self.rule {
            Rule::Clusters { clusters, .. } => clusters.width(),
            Rule::Logistic { logistic, .. } => logistic.width(),
            Rule::Random { .. } => 0,
        }
    }

    pub fn paths(&self) -> u32 {
        self.paths
    }

    /// Number of a document's first tokens that choose its path.
    pub fn prefix_tokens(&self) -> usize {
        self.prefix_tokens as usize
    }

    /// BLAKE3 of the parameters that compute the features; `None` for the control.
    pub fn ancestor(&self) -> Option<BlobHash> {
        match &self.rule {
            Rule::Clusters { ancestor, .. } | Rule::Logistic { ancestor, .. } => Some(*ancestor),
            Rule::Random { .. } => None,
        }
    }

    /// Checks a fetched router against its run. `width` is the model's.
    pub fn check(&self, paths: u32, width: usize, prefix_tokens: usize) -> Result<(), RouterError> {
        let width_fits = !self.needs_features() || self.width() == width;
        let checks = [
            ("paths", self.paths as usize, paths as usize, self.paths == paths),
            ("features", self.width(), width, width_fits),
            ("prefix tokens", self.prefix_tokens(), prefix_tokens, self.prefix_tokens() == prefix_tokens),
        ];
        match checks.into_iter().find(|(.., fits)| !fits) {
            Some((what, found, expected, _)) => Err(RouterError::Mismatch { what, found, expected }),
            None => Ok(()),
        }
    }

    /// BLAKE3 of [`Router::encode`], which names the version.
    pub fn hash(&self) -> BlobHash {
        BlobHash::of(&self.encode())
    }
}

/// The high word of a product is as uniform as the hash, without the bias of a remainder.
fn drawn(key: &[u8; 32], prefix: &[u32], paths: u32) -> u32 {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for token in prefix {
        hasher.update(&token.to_le_bytes());
    }
    let mut head = [0; 8];
    hasher.finalize_xof().fill(&mut head);
    ((u128::from(u64::from_le_bytes(head)) * u128::from(paths)) >> 64) as u32
}

#[cfg(test)]
pub(in crate::routing) mod tests {
    use super::*;

    /// Documents of two kinds, separated by a small feature; a large feature is noise.
    fn features() -> Vec<f32> {
        (0..80).flat_map(|i| [(i % 2) as f32 * 0.01, 1000.0 + ((i * 37) % 80) as f32, 5.0]).collect()
    }

    pub fn fitted() -> Router {
        let ancestor = BlobHash::of(b"ancestor");
        Router::fit((&features(), 3), (2, false), 4, ancestor, 50, Seed::root(1)).unwrap()
    }

    pub fn fitted_in_pairs() -> Router {
        Router::fit((&features(), 3), (6, true), 4, BlobHash::of(b"ancestor"), 50, Seed::root(1)).unwrap()
    }

    pub fn discriminative() -> Router {
        let labels: Vec<u32> = (0..80).map(|document| 2 - 2 * (document % 2)).collect();
        let logistic = Logistic::fit(&features(), 3, &labels, 3, 1e-3).unwrap();
        Router::discriminative(logistic, 4, BlobHash::of(b"ancestor"))
    }

    #[test]
    fn a_discriminative_router_sends_documents_to_the_path_that_was_best_for_their_like() {
        let router = discriminative();
        let paths = router.route_all(&features(), &[&[][..]; 80]);
        assert!(paths.iter().enumerate().all(|(i, path)| path.0 == 2 - 2 * (i as u32 % 2)), "{paths:?}");
        assert_eq!((router.paths(), router.width(), router.prefix_tokens()), (3, 3, 4));
        assert_eq!(router.ancestor(), Some(BlobHash::of(b"ancestor")));
        assert_eq!(router.check(3, 3, 4), Ok(()));
    }

    #[test]
    fn the_best_paths_begin_with_the_one_that_routing_takes_and_none_comes_twice() {
        for router in [fitted(), fitted_in_pairs(), discriminative(), Router::random(5, 2, Seed::root(1))] {
            for row in features().chunks_exact(3).take(9) {
                let features = if router.needs_features() { row } else { &[] };
                let all = router.top(features, &[row[0].to_bits()], 99);
                assert_eq!(all[0], router.route(features, &[row[0].to_bits()]));
                assert_eq!(router.top(features, &[row[0].to_bits()], 2), all[..2]);
                let distinct: std::collections::BTreeSet<_> = all.iter().collect();
                assert_eq!((all.len(), distinct.len()), (router.paths() as usize, router.paths() as usize));
            }
        }
        // The second best pair of clusters shares one cluster with the best.
        let pairs = fitted_in_pairs().top(&features()[..3], &[], 2);
        assert_eq!(pairs[0].0 / 3, pairs[1].0 / 3, "{pairs:?}");
    }

    #[test]
    fn small_features_count_as_much_as_large_ones() {
        let (router, clustering) = (fitted(), features());
        let paths = router.route_all(&clustering, &[&[][..]; 80]);
        assert!((0..80).all(|i| paths[i] == paths[i % 2]), "{paths:?}");
        assert_ne!(paths[0], paths[1]);
        assert!(router.needs_features());
        assert_eq!((router.width(), router.ancestor()), (3, Some(BlobHash::of(b"ancestor"))));
    }

    #[test]
    fn paths_are_pairs_of_clusters_of_the_halves_where_that_is_asked_for() {
        let router = fitted_in_pairs();
        let paths = router.route_all(&features(), &[&[][..]; 80]);
        // The first half is only the small feature, and has two clusters of three paths each.
        assert!((0..80).all(|i| paths[i].0 / 3 == paths[i % 2].0 / 3), "{paths:?}");
        assert_eq!(paths.iter().collect::<std::collections::BTreeSet<_>>().len(), 6);
        let seven = Router::fit((&features(), 3), (7, true), 4, BlobHash([0; 32]), 50, Seed::root(1)).unwrap_err();
        assert_eq!(seven, RouterError::NoPairs(7));
    }

    #[test]
    fn a_path_is_divided_among_those_that_come_of_it_and_keeps_its_documents() {
        // Two kinds far apart in the first feature, each of two kinds in the third.
        let row = |i: usize| [(i % 2) as f32 * 9.0, ((i * 37) % 80) as f32 * 0.01, (i / 2 % 2) as f32];
        let features: Vec<f32> = (0..80).flat_map(row).collect();
        let prefixes = [&[][..]; 80];
        let ancestor = BlobHash::of(b"ancestor");
        let earlier = Router::fit((&features, 3), (2, false), 4, ancestor, 50, Seed::root(1)).unwrap();
        let parents = [PathId(1), PathId(0), PathId(0), PathId(1)];
        let divided = earlier.divided((&features, 3), &parents, 50, Seed::root(1)).unwrap();
        let (before, after) = (earlier.route_all(&features, &prefixes), divided.route_all(&features, &prefixes));
        assert!(before.iter().zip(&after).all(|(before, after)| parents[after.0 as usize] == *before));
        assert!((0..80).all(|i| (after[i] == after[i % 4]) && (i % 4 == 0 || after[i] != after[0])), "{after:?}");
        assert_eq!((divided.paths(), divided.prefix_tokens(), divided.ancestor()), (4, 4, Some(ancestor)));
        let few = earlier.divided((&features[..9], 3), &parents, 50, Seed::root(1)).unwrap_err();
        assert!(matches!(few, RouterError::Divide { documents: 1, paths: 2, .. }), "{few}");
    }

    #[test]
    fn the_control_spreads_documents_by_their_first_tokens_alone() {
        let router = Router::random(4, 2, Seed::root(1));
        assert!(!router.needs_features());
        let mut sizes = [0; 4];
        for token in 0..4000u32 {
            let path = router.route(&[], &[token, 7, 1]);
            assert_eq!(path, router.route(&[], &[token, 7, 2]));
            sizes[path.0 as usize] += 1;
        }
        assert!(sizes.iter().all(|size| (900..1100).contains(size)), "{sizes:?}");
        let other = Router::random(4, 2, Seed::root(2));
        assert!((0..100u32).any(|token| router.route(&[], &[token]) != other.route(&[], &[token])));
    }

    #[test]
    fn a_router_for_another_run_is_refused_in_words() {
        let router = fitted();
        assert_eq!(router.check(2, 3, 4), Ok(()));
        let error = router.check(2, 16, 4).unwrap_err();
        assert_eq!(error.to_string(), "the router has features 3, but the run asks for 16");
        assert!(router.check(4, 3, 4).is_err() && router.check(2, 3, 5).is_err());
        assert_eq!(Router::random(2, 4, Seed::root(1)).check(2, 999, 4), Ok(()));
    }
}
