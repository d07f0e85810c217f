//! Encoding of a router, a blob that every peer of a run fetches.

use crate::grid::{MAX_PATHS, halves};
use crate::names::BlobHash;
use crate::routing::clusters::{Book, Clusters, columns};
use crate::routing::logistic::Logistic;
use crate::routing::router::{MAX_WIDTH, Router, RouterError, Rule};

const MAGIC: [u8; 4] = *b"PSRT";
/// Version of the encoding.
pub(super) const FILE_VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const KIND_KMEANS: u16 = 1;
const KIND_RANDOM: u16 = 2;
const KIND_LOGISTIC: u16 = 4;
const KIND_PRODUCT: u16 = 5;

impl Router {
    /// Little endian: `PSRT`, version u16, kind u16 (1 k-means, 2 random, 4 discriminative, 5
    /// product k-means), paths u32, prefix tokens u32. For k-means: the ancestor's hash, width u32;
    /// mean, scale and centroids as f32, those of the first half first; then the shifts of the second half for each
    /// cluster of the first. For discriminative: the ancestor's hash, width u32, weights path by path and biases as
    /// f64. For random: its key of 32 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let kind = match &self.rule {
            Rule::Clusters { clusters, .. } if clusters.books.len() > 1 => KIND_PRODUCT,
            Rule::Clusters { .. } => KIND_KMEANS,
            Rule::Logistic { .. } => KIND_LOGISTIC,
            Rule::Random { .. } => KIND_RANDOM,
        };
        bytes.extend(MAGIC);
        bytes.extend(FILE_VERSION.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(self.paths.to_le_bytes());
        bytes.extend(self.prefix_tokens.to_le_bytes());
        match &self.rule {
            Rule::Clusters { ancestor, clusters } => {
                bytes.extend(ancestor.0);
                bytes.extend((clusters.width() as u32).to_le_bytes());
                let centroids = clusters.books.iter().flat_map(|book| &book.centroids);
                for value in clusters.mean.iter().chain(&clusters.scale).chain(centroids).chain(&clusters.shifts) {
                    bytes.extend(value.to_le_bytes());
                }
            }
            Rule::Logistic { ancestor, logistic } => {
                bytes.extend(ancestor.0);
                bytes.extend((logistic.width() as u32).to_le_bytes());
                for value in logistic.weights().iter().chain(logistic.bias()) {
                    bytes.extend(value.to_le_bytes());
                }
            }
            Rule::Random { key } => bytes.extend(key),
        }
        bytes
    }

    /// Reads an encoded router.
    pub fn decode(bytes: &[u8]) -> Result<Self, RouterError> {
        let wrong = RouterError::Format;
        let (head, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(wrong("too short"))?;
        if head[..4] != MAGIC || head[4..6] != FILE_VERSION.to_le_bytes() {
            return Err(wrong("another kind of file"));
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (paths, prefix_tokens) = (number(8), number(12));
        if paths == 0 || paths > MAX_PATHS || prefix_tokens == 0 {
            return Err(wrong("an impossible number of paths or prefix tokens"));
        }
        let rule = match u16::from_le_bytes([head[6], head[7]]) {
            KIND_KMEANS => decode_clusters(rest, &[paths as usize])?,
            KIND_PRODUCT => decode_clusters(rest, &halves(paths).ok_or(wrong("paths that are not pairs"))?)?,
            KIND_LOGISTIC => decode_logistic(rest, paths)?,
            KIND_RANDOM => Rule::Random { key: rest.try_into().map_err(|_| wrong("a key of another size"))? },
            _ => return Err(wrong("a kind that is not known")),
        };
        Ok(Self { paths, prefix_tokens, rule })
    }
}

fn decode_logistic(bytes: &[u8], paths: u32) -> Result<Rule, RouterError> {
    let wrong = RouterError::Format;
    let (ancestor, width, rest) = decode_width(bytes)?;
    // Cannot overflow: at most 2^16 times 2^20 values of eight bytes.
    let values = (width + 1) * paths as usize;
    if width == 0 || rest.len() as u64 != 8 * values as u64 {
        return Err(wrong("a size that does not fit its width and paths"));
    }
    let values: Vec<f64> = rest.as_chunks().0.iter().map(|value| f64::from_le_bytes(*value)).collect();
    let logistic = Logistic::of(width, &values).ok_or(wrong("values that are not finite"))?;
    Ok(Rule::Logistic { ancestor, logistic })
}

/// The ancestor, the width, and the remaining bytes.
fn decode_width(bytes: &[u8]) -> Result<(BlobHash, usize, &[u8]), RouterError> {
    let wrong = RouterError::Format;
    let (ancestor, rest) = bytes.split_first_chunk::<32>().ok_or(wrong("too short"))?;
    let (width, rest) = rest.split_first_chunk::<4>().ok_or(wrong("too short"))?;
    let width = u32::from_le_bytes(*width) as usize;
    if width > MAX_WIDTH {
        return Err(wrong("a width that cannot be"));
    }
    Ok((BlobHash(*ancestor), width, rest))
}

/// One book for each entry of `counts`, with so many clusters.
fn decode_clusters(bytes: &[u8], counts: &[usize]) -> Result<Rule, RouterError> {
    let wrong = RouterError::Format;
    let (ancestor, width, rest) = decode_width(bytes)?;
    if width < counts.len() {
        return Err(wrong("a width that cannot be"));
    }
    let books =
        counts.iter().enumerate().map(|(number, clusters)| (columns(width, counts.len(), number).len(), *clusters));
    // Cannot overflow: at most 2^16 times 2^20 values of four bytes.
    let shifts = if counts.len() > 1 { counts[0] * columns(width, counts.len(), 1).len() } else { 0 };
    let values = 2 * width + shifts + books.clone().map(|(width, clusters)| width * clusters).sum::<usize>();
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
    let books: Vec<Book> = books.map(|(width, clusters)| Book { width, centroids: take(width * clusters) }).collect();
    let shifts = take(shifts);
    Ok(Rule::Clusters { ancestor, clusters: Clusters { mean, scale, books, shifts } })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::routing::router::tests::{discriminative, fitted, fitted_in_pairs};
    use crate::seed::Seed;

    #[test]
    fn routers_survive_encoding() {
        for router in [fitted(), fitted_in_pairs(), discriminative(), Router::random(3, 8, Seed::root(1))] {
            let again = Router::decode(&router.encode()).unwrap();
            assert_eq!(again, router);
            assert_eq!(again.hash(), router.hash());
        }
    }

    #[test]
    fn hostile_routers_are_errors() {
        let bytes = fitted().encode();
        assert!(Router::decode(&bytes[..bytes.len() - 4]).is_err());
        let mut infinite = bytes.clone();
        let end = infinite.len();
        infinite[end - 4..].copy_from_slice(&f32::INFINITY.to_le_bytes());
        assert_eq!(Router::decode(&infinite), Err(RouterError::Format("values that are not finite")));
        let mut discriminative = discriminative().encode();
        let end = discriminative.len();
        discriminative[end - 8..].copy_from_slice(&f64::NAN.to_le_bytes());
        assert_eq!(Router::decode(&discriminative), Err(RouterError::Format("values that are not finite")));
        assert!(Router::decode(&discriminative[..end - 8]).is_err());
        let mut wide = bytes;
        wide[48..52].fill(0xff);
        assert!(Router::decode(&wide).is_err());
        assert_eq!(Router::decode(b"PSRT"), Err(RouterError::Format("too short")));
    }

    proptest! {
        #[test]
        fn changed_bytes_never_panic(
            kind in 0usize..3,
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
            cut in 0usize..4,
        ) {
            let mut bytes = [fitted(), fitted_in_pairs(), discriminative()][kind].encode();
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
