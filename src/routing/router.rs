//! The rule that sends a document to a path by its first tokens (DiPaCo, section 2.4).

use rand::Rng;

use super::kmeans::{Clustering, KmeansError, kmeans, nearest};
use crate::grid::MAX_PATHS;
use crate::names::{BlobHash, PathId};
use crate::seed::Seed;

const MAGIC: [u8; 4] = *b"PSRT";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const KIND_KMEANS: u16 = 1;
const KIND_RANDOM: u16 = 2;

/// The widest features; bounds what an encoded router can ask for.
pub const MAX_WIDTH: usize = 1 << 16;

/// Centroids are found on at most this many documents, spread evenly; all documents are then routed by them.
const MAX_FIT_ROWS: usize = 50_000;

/// Sends documents to paths. Never changes in a run, except with a new version of the shard index.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    paths: u32,
    prefix_tokens: u32,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// The nearest of one centroid a path, after each feature was given mean 0 and variance 1.
    Kmeans {
        /// BLAKE3 of the parameters that give the features.
        ancestor: BlobHash,
        mean: Vec<f32>,
        scale: Vec<f32>,
        /// Row-major `[paths, width]`.
        centroids: Vec<f32>,
    },
    /// By keyed hash of the first tokens: the control. What k-means gains over it, it gains by routing.
    Random { key: [u8; 32] },
}

/// Why there is no router, or it does not fit.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RouterError {
    /// No clusters.
    #[error(transparent)]
    Kmeans(#[from] KmeansError),
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
    /// Finds one cluster of documents for each path. `features` is row-major `[documents, width]`, of finite values;
    /// `ancestor` is the hash of the parameters that gave them. Also says how the documents it looked at (all, up to
    /// 50,000) fell.
    ///
    /// # Errors
    /// If there are fewer documents than paths, or the features are no finite rows.
    pub fn fit(
        features: &[f32],
        width: usize,
        paths: u32,
        prefix_tokens: usize,
        ancestor: BlobHash,
        rounds: usize,
        seed: Seed,
    ) -> Result<(Self, Clustering), RouterError> {
        if width == 0 || width > MAX_WIDTH {
            return Err(RouterError::Kmeans(KmeansError::Shape { values: features.len(), width }));
        }
        let every = (features.len() / width).div_ceil(MAX_FIT_ROWS).max(1);
        let (mean, scale) = moments(features, width);
        let mut rows = Vec::with_capacity(features.len().div_ceil(every));
        for row in features.chunks(width).step_by(every) {
            rows.extend(standardise(row, &mean, &scale));
        }
        let clustering = kmeans(&rows, width, paths as usize, rounds, seed.child("k-means"))?;
        let rule = Rule::Kmeans { ancestor, mean, scale, centroids: clustering.centroids.clone() };
        Ok((Self { paths, prefix_tokens: prefix_tokens as u32, rule }, clustering))
    }

    /// The control: documents go anywhere, but the same first tokens always to the same path.
    pub fn random(paths: u32, prefix_tokens: usize, seed: Seed) -> Self {
        let mut key = [0; 32];
        seed.child("random routing").generator().fill_bytes(&mut key);
        Self { paths: paths.max(1), prefix_tokens: prefix_tokens as u32, rule: Rule::Random { key } }
    }

    /// The path of a document. `features` (of [`Router::width`] values) come from the ancestor for `prefix`, the
    /// document's first [`Router::prefix_tokens`] tokens; the control looks at `prefix` alone. Features that are not
    /// finite lead to path 0.
    ///
    /// # Panics
    /// If there are not [`Router::width`] features; [`Router::check`] tells when the router arrives.
    pub fn route(&self, features: &[f32], prefix: &[u32]) -> PathId {
        match &self.rule {
            Rule::Kmeans { mean, scale, centroids, .. } => {
                assert_eq!(features.len(), mean.len(), "features of the router's width");
                let row: Vec<f32> = standardise(features, mean, scale).collect();
                PathId(nearest(&row, centroids).0)
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
            Rule::Kmeans { mean, .. } => mean.len(),
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
            Rule::Kmeans { ancestor, .. } => Some(*ancestor),
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

    /// Little endian: `PSRT`, version u16, kind u16 (1 k-means, 2 random), paths u32, prefix tokens u32; then for
    /// k-means the ancestor's hash, width u32, mean, scale and centroids as f32; for random its key of 32 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let kind = if self.needs_features() { KIND_KMEANS } else { KIND_RANDOM };
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(self.paths.to_le_bytes());
        bytes.extend(self.prefix_tokens.to_le_bytes());
        match &self.rule {
            Rule::Kmeans { ancestor, mean, scale, centroids } => {
                bytes.extend(ancestor.0);
                bytes.extend((mean.len() as u32).to_le_bytes());
                for value in mean.iter().chain(scale).chain(centroids) {
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
            KIND_KMEANS => decode_kmeans(rest, paths as usize)?,
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

fn decode_kmeans(bytes: &[u8], paths: usize) -> Result<Rule, RouterError> {
    let wrong = RouterError::Format;
    let (ancestor, rest) = bytes.split_first_chunk::<32>().ok_or(wrong("too short"))?;
    let (width, rest) = rest.split_first_chunk::<4>().ok_or(wrong("too short"))?;
    let width = u32::from_le_bytes(*width) as usize;
    // At most 2^16 times 2^20 values of four bytes, so this cannot overflow.
    if width == 0 || width > MAX_WIDTH || rest.len() as u64 != 4 * (paths as u64 + 2) * width as u64 {
        return Err(wrong("a size that does not fit its width and paths"));
    }
    let mut values = rest.chunks_exact(4).map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]]));
    let mean: Vec<f32> = values.by_ref().take(width).collect();
    let scale: Vec<f32> = values.by_ref().take(width).collect();
    let centroids: Vec<f32> = values.collect();
    if mean.iter().chain(&scale).chain(&centroids).any(|value| !value.is_finite()) {
        return Err(wrong("values that are not finite"));
    }
    Ok(Rule::Kmeans { ancestor: BlobHash(*ancestor), mean, scale, centroids })
}

/// Mean and one over standard deviation of each feature; 0 for a feature that hardly varies, which leaves it out.
fn moments(features: &[f32], width: usize) -> (Vec<f32>, Vec<f32>) {
    let count = (features.len() / width).max(1) as f64;
    let mut mean = vec![0f64; width];
    for row in features.chunks_exact(width) {
        mean.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value) / count);
    }
    let mut variance = vec![0f64; width];
    for row in features.chunks_exact(width) {
        for ((sum, value), mean) in variance.iter_mut().zip(row).zip(&mean) {
            *sum += (f64::from(*value) - mean).powi(2) / count;
        }
    }
    let scale = variance.iter().zip(&mean).map(|(variance, mean)| {
        let varies = variance.sqrt() > 1e-6 * (mean.abs() + 1e-6);
        if varies { (1.0 / variance.sqrt()) as f32 } else { 0.0 }
    });
    (mean.iter().map(|mean| *mean as f32).collect(), scale.collect())
}

fn standardise<'a>(row: &'a [f32], mean: &'a [f32], scale: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
    row.iter().zip(mean).zip(scale).map(|((value, mean), scale)| (value - mean) * scale)
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
        Router::fit(&features(), 3, 2, 4, ancestor, 50, Seed::root(1)).unwrap().0
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
    fn fitting_and_routing_agree() {
        let features = features();
        let (router, clustering) = Router::fit(&features, 3, 5, 4, BlobHash([0; 32]), 50, Seed::root(9)).unwrap();
        let routed: Vec<u32> = router.route_all(&features, &[&[][..]; 80]).iter().map(|path| path.0).collect();
        assert_eq!(routed, clustering.assignments);
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
        for router in [fitted(), Router::random(3, 8, Seed::root(1))] {
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
        fn changed_bytes_never_panic(at in any::<prop::sample::Index>(), to in any::<u8>(), cut in 0usize..4) {
            let mut bytes = fitted().encode();
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
