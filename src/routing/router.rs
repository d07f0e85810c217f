//! The rule that sends a document to a path by its first tokens (DiPaCo, section 2.4).

use rand::Rng;

use super::clusters::{Book, Clusters, columns};
use super::kmeans::KmeansError;
use crate::grid::{MAX_PATHS, halves};
use crate::names::{BlobHash, PathId};
use crate::seed::Seed;

const MAGIC: [u8; 4] = *b"PSRT";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const KIND_KMEANS: u16 = 1;
const KIND_RANDOM: u16 = 2;
const KIND_PRODUCT: u16 = 3;

/// The widest features; bounds what an encoded router can ask for.
pub const MAX_WIDTH: usize = 1 << 16;

/// Sends documents to paths. Never changes in a run, except with a new version of the shard index.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    paths: u32,
    prefix_tokens: u32,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// By the features that the ancestor gives, of which this is the BLAKE3.
    Clusters { ancestor: BlobHash, clusters: Clusters },
    /// By keyed hash of the first tokens: the control. What k-means gains over it, it gains by routing.
    Random { key: [u8; 32] },
}

/// Why there is no router, or it does not fit.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RouterError {
    /// No clusters.
    #[error(transparent)]
    Kmeans(#[from] KmeansError),
    /// The paths are not pairs.
    #[error(
        "{0} paths are no product of two numbers above 1, which product k-means needs; use another number, or k-means"
    )]
    NoPairs(u32),
    /// Not an encoded router of this version.
    #[error("not a router of version {VERSION}: {0}")]
    Format(&'static str),
    /// Made for another run.
    #[error("the router has {what} {found}, but the run asks for {expected}")]
    Mismatch {
        /// Paths, width or prefix.
        what: &'static str,
        /// The router's.
        found: usize,
        /// The run's.
        expected: usize,
    },
}

impl Router {
    /// Finds one cluster of documents for each path, or where `product` is asked for, clusters of each half of the
    /// features, of which the paths are the pairs. `features` is row-major `[documents, width]`, of finite values, of
    /// which at most 50,000 rows are looked at; `ancestor` is the hash of the parameters that gave them.
    ///
    /// # Errors
    /// If there are fewer documents than clusters, the features are no finite rows, or the paths are no pairs.
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

    /// The control: documents go anywhere, but the same first tokens always to the same path.
    pub fn random(paths: u32, prefix_tokens: usize, seed: Seed) -> Self {
        let mut key = [0; 32];
        seed.child("random routing").generator().fill_bytes(&mut key);
        Self { paths: paths.max(1), prefix_tokens: prefix_tokens as u32, rule: Rule::Random { key } }
    }

    /// The path of a document. `features` (of [`Router::width`] values) come from the ancestor for `prefix`, the
    /// document's first [`Router::prefix_tokens`] tokens; the control looks at `prefix` alone. Features that are not
    /// finite lead to the first cluster, path 0 of k-means.
    ///
    /// # Panics
    /// If there are not [`Router::width`] features; [`Router::check`] tells when the router arrives.
    pub fn route(&self, features: &[f32], prefix: &[u32]) -> PathId {
        match &self.rule {
            Rule::Clusters { clusters, .. } => {
                assert_eq!(features.len(), clusters.width(), "features of the router's width");
                PathId(clusters.path_of(features))
            }
            Rule::Random { key } => {
                let mut hasher = blake3::Hasher::new_keyed(key);
                for token in prefix.iter().take(self.prefix_tokens as usize) {
                    hasher.update(&token.to_le_bytes());
                }
                let mut head = [0; 8];
                hasher.finalize_xof().fill(&mut head);
                // The high word of a product is as even as the hash, without a remainder's bias.
                PathId(((u128::from(u64::from_le_bytes(head)) * u128::from(self.paths)) >> 64) as u32)
            }
        }
    }

    /// The paths of documents: `features` is row-major `[prefixes, width]`, or empty for the control.
    ///
    /// # Panics
    /// As [`Router::route`].
    pub fn route_all(&self, features: &[f32], prefixes: &[&[u32]]) -> Vec<PathId> {
        let width = self.width();
        let route = |(i, prefix): (usize, &&[u32])| self.route(&features[i * width..(i + 1) * width], prefix);
        prefixes.iter().enumerate().map(route).collect()
    }

    /// Whether routing takes the ancestor's features.
    pub fn needs_features(&self) -> bool {
        self.width() > 0
    }

    /// How many features; 0 for the control.
    pub fn width(&self) -> usize {
        match &self.rule {
            Rule::Clusters { clusters, .. } => clusters.width(),
            Rule::Random { .. } => 0,
        }
    }

    /// How many paths.
    pub fn paths(&self) -> u32 {
        self.paths
    }

    /// How many of a document's first tokens it looks at.
    pub fn prefix_tokens(&self) -> usize {
        self.prefix_tokens as usize
    }

    /// BLAKE3 of the parameters that give the features; none for the control.
    pub fn ancestor(&self) -> Option<BlobHash> {
        match &self.rule {
            Rule::Clusters { ancestor, .. } => Some(*ancestor),
            Rule::Random { .. } => None,
        }
    }

    /// Checks a router that was fetched against the run it is for. `width` is the model's.
    ///
    /// # Errors
    /// What does not fit.
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

    /// Little endian: `PSRT`, version u16, kind u16 (1 k-means, 2 random, 3 product k-means), paths u32, prefix tokens
    /// u32; then for k-means the ancestor's hash, width u32, mean, scale and centroids as f32, those of the first half
    /// before those of the second; for random its key of 32 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let kind = match &self.rule {
            Rule::Clusters { clusters, .. } if clusters.books.len() > 1 => KIND_PRODUCT,
            Rule::Clusters { .. } => KIND_KMEANS,
            Rule::Random { .. } => KIND_RANDOM,
        };
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(self.paths.to_le_bytes());
        bytes.extend(self.prefix_tokens.to_le_bytes());
        match &self.rule {
            Rule::Clusters { ancestor, clusters } => {
                bytes.extend(ancestor.0);
                bytes.extend((clusters.width() as u32).to_le_bytes());
                let centroids = clusters.books.iter().flat_map(|book| &book.centroids);
                for value in clusters.mean.iter().chain(&clusters.scale).chain(centroids) {
                    bytes.extend(value.to_le_bytes());
                }
            }
            Rule::Random { key } => bytes.extend(key),
        }
        bytes
    }

    /// Reads an encoded router.
    ///
    /// # Errors
    /// If it is not one, is cut short, or has values that are not finite.
    pub fn decode(bytes: &[u8]) -> Result<Self, RouterError> {
        let wrong = RouterError::Format;
        let (head, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(wrong("too short"))?;
        if head[..4] != MAGIC || head[4..6] != VERSION.to_le_bytes() {
            return Err(wrong("another kind of file"));
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (paths, prefix_tokens) = (number(8), number(12));
        if paths == 0 || paths > MAX_PATHS || prefix_tokens == 0 {
            return Err(wrong("an impossible number of paths or prefix tokens"));
        }
        let rule = match u16::from_le_bytes([head[6], head[7]]) {
            KIND_KMEANS => decode_clusters(rest, &[paths as usize])?,
            KIND_PRODUCT => decode_clusters(rest, &halves(paths).ok_or(wrong("paths that are no pairs"))?)?,
            KIND_RANDOM => Rule::Random { key: rest.try_into().map_err(|_| wrong("a key of another size"))? },
            _ => return Err(wrong("a kind that is not known")),
        };
        Ok(Self { paths, prefix_tokens, rule })
    }

    /// BLAKE3 of [`Router::encode`], which names the version.
    pub fn hash(&self) -> BlobHash {
        BlobHash::of(&self.encode())
    }
}

/// One book of as many clusters for each of `counts`.
fn decode_clusters(bytes: &[u8], counts: &[usize]) -> Result<Rule, RouterError> {
    let wrong = RouterError::Format;
    let (ancestor, rest) = bytes.split_first_chunk::<32>().ok_or(wrong("too short"))?;
    let (width, rest) = rest.split_first_chunk::<4>().ok_or(wrong("too short"))?;
    let width = u32::from_le_bytes(*width) as usize;
    if width < counts.len() || width > MAX_WIDTH {
        return Err(wrong("a width that cannot be"));
    }
    let books =
        counts.iter().enumerate().map(|(number, clusters)| (columns(width, counts.len(), number).len(), *clusters));
    // At most 2^16 times 2^20 values of four bytes, so this cannot overflow.
    let values = 2 * width + books.clone().map(|(width, clusters)| width * clusters).sum::<usize>();
    if rest.len() as u64 != 4 * values as u64 {
        return Err(wrong("a size that does not fit its width and paths"));
    }
    let values: Vec<f32> = rest.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    if values.iter().any(|value| !value.is_finite()) {
        return Err(wrong("values that are not finite"));
    }
    let mut values = values.into_iter();
    let mut take = |count: usize| values.by_ref().take(count).collect::<Vec<f32>>();
    let (mean, scale) = (take(width), take(width));
    let books = books.map(|(width, clusters)| Book { width, centroids: take(width * clusters) }).collect();
    Ok(Rule::Clusters { ancestor: BlobHash(*ancestor), clusters: Clusters { mean, scale, books } })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Documents of two kinds, told apart by a small feature beside a large one that only makes noise.
    fn features() -> Vec<f32> {
        (0..80).flat_map(|i| [(i % 2) as f32 * 0.01, 1000.0 + ((i * 37) % 80) as f32, 5.0]).collect()
    }

    fn fitted() -> Router {
        let ancestor = BlobHash::of(b"ancestor");
        Router::fit((&features(), 3), (2, false), 4, ancestor, 50, Seed::root(1)).unwrap()
    }

    fn fitted_in_pairs() -> Router {
        Router::fit((&features(), 3), (6, true), 4, BlobHash::of(b"ancestor"), 50, Seed::root(1)).unwrap()
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
        // The first half is the small feature alone, and has two clusters of three paths each.
        assert!((0..80).all(|i| paths[i].0 / 3 == paths[i % 2].0 / 3), "{paths:?}");
        assert_eq!(paths.iter().collect::<std::collections::BTreeSet<_>>().len(), 6);
        let seven = Router::fit((&features(), 3), (7, true), 4, BlobHash([0; 32]), 50, Seed::root(1)).unwrap_err();
        assert_eq!(seven, RouterError::NoPairs(7));
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
    fn routers_survive_encoding() {
        for router in [fitted(), fitted_in_pairs(), Router::random(3, 8, Seed::root(1))] {
            let again = Router::decode(&router.encode()).unwrap();
            assert_eq!(again, router);
            assert_eq!(again.hash(), router.hash());
        }
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

    #[test]
    fn hostile_routers_are_errors() {
        let bytes = fitted().encode();
        assert!(Router::decode(&bytes[..bytes.len() - 4]).is_err());
        let mut infinite = bytes.clone();
        let end = infinite.len();
        infinite[end - 4..].copy_from_slice(&f32::INFINITY.to_le_bytes());
        assert_eq!(Router::decode(&infinite), Err(RouterError::Format("values that are not finite")));
        let mut wide = bytes;
        wide[48..52].fill(0xff);
        assert!(Router::decode(&wide).is_err());
        assert_eq!(Router::decode(b"PSRT"), Err(RouterError::Format("too short")));
    }

    proptest! {
        #[test]
        fn changed_bytes_never_panic(
            product in any::<bool>(),
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
            cut in 0usize..4,
        ) {
            let mut bytes = if product { fitted_in_pairs() } else { fitted() }.encode();
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(bytes.len() - cut);
            if let Ok(router) = Router::decode(&bytes) {
                let path = router.route(&vec![1.0; router.width()], &[1, 2, 3]);
                prop_assert!(path.0 < router.paths());
            }
        }
    }
}
