//! The router as a module of the run, with a state after each round of its paths.

use super::atlas::{Atlas, Catalogue};
use super::labels::labels;
use super::scores::PathScores;
use crate::names::PathId;
use crate::routing::discriminative::Rows;
use crate::routing::{LogisticError, Router, RouterError};

const MAGIC: [u8; 4] = *b"PSRM";
const FILE_VERSION: u16 = 1;
const HEADER_BYTES: usize = 24;

/// The router after a round. Most rounds change only its counter.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterState {
    /// Rounds so far.
    pub rounds: u64,
    /// Number of reshardings: the router's version.
    pub fits: u32,
    /// Training sequences of each path.
    pub sizes: Vec<u64>,
    pub router: Router,
}

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("not the state of this run's router: {0}")]
    Format(&'static str),
    #[error("the state of the router: {0}")]
    Router(#[from] RouterError),
}

/// Why a resharding that was due did not happen.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum NotShared {
    #[error("no path has scored the slice")]
    NoScores,
    #[error(transparent)]
    Fit(#[from] LogisticError),
    #[error("path {0} would have no training sequences")]
    Empty(PathId),
}

impl RouterState {
    /// The state before the first round.
    pub fn initial(router: Router, sizes: Vec<u64>) -> Self {
        Self { rounds: 0, fits: 0, sizes, router }
    }

    /// The size of each encoded state of a run.
    pub fn size_bytes(paths: u32, width: usize) -> u64 {
        // A logistic router is the largest: a header, the ancestor's hash, and weights and biases of eight bytes.
        HEADER_BYTES as u64 + 8 * u64::from(paths) + 64 + 8 * (width as u64 + 2) * (u64::from(paths) + 2)
    }

    /// Little endian: `PSRM`, version u16, 0 u16, fits u32, length of the router u32, rounds u64; the training
    /// sequences of each path u64; the router; zeros up to [`RouterState::size_bytes`].
    pub fn encode(&self, width: usize) -> Vec<u8> {
        let router = self.router.encode();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FILE_VERSION.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.fits.to_le_bytes());
        bytes.extend((router.len() as u32).to_le_bytes());
        bytes.extend(self.rounds.to_le_bytes());
        self.sizes.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
        bytes.extend(router);
        bytes.resize(Self::size_bytes(self.router.paths(), width) as usize, 0);
        bytes
    }

    /// Decodes and checks a state; `width` is the model's.
    pub fn decode(bytes: &[u8], paths: u32, width: usize, prefix_tokens: usize) -> Result<Self, StateError> {
        let wrong = StateError::Format;
        if bytes.len() as u64 != Self::size_bytes(paths, width) {
            return Err(wrong("another size"));
        }
        let (head, rest) = bytes.split_at(HEADER_BYTES);
        if head[..4] != MAGIC || head[4..6] != FILE_VERSION.to_le_bytes() || head[6..8] != [0, 0] {
            return Err(wrong("another kind of file"));
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let rounds = u64::from(number(16)) | u64::from(number(20)) << 32;
        let (sizes, rest) = rest.split_at(8 * paths as usize);
        let sizes: Vec<u64> = sizes.as_chunks().0.iter().map(|size| u64::from_le_bytes(*size)).collect();
        let (router, zeros) = rest.split_at_checked(number(12) as usize).ok_or(wrong("a router that is too long"))?;
        if zeros.iter().any(|byte| *byte != 0) || sizes.contains(&0) {
            return Err(wrong("a shard without text, or something behind the router"));
        }
        let router = Router::decode(router)?;
        router.check(paths, width, prefix_tokens)?;
        Ok(Self { rounds, fits: number(8), sizes, router })
    }

    /// The state after a round without resharding.
    pub fn passed(&self) -> Self {
        Self { rounds: self.rounds + 1, ..self.clone() }
    }

    /// The state after a round with resharding, and the reason if it did not happen. Documents of the slice go to the
    /// path that predicts them best. A path without scores, or that is best nowhere, keeps its documents.
    pub fn next(&self, scores: &[PathScores], atlas: &Atlas, overlap: usize) -> (Self, Option<NotShared>) {
        let same = self.passed();
        match self.fitted(scores, atlas, overlap) {
            Ok((router, sizes)) => (Self { fits: self.fits + 1, router, sizes, ..same }, None),
            Err(why) => (same, Some(why)),
        }
    }

    fn fitted(&self, scores: &[PathScores], atlas: &Atlas, overlap: usize) -> Result<(Router, Vec<u64>), NotShared> {
        if scores.iter().all(|scores| scores.nats.is_empty()) {
            return Err(NotShared::NoScores);
        }
        let Atlas { slice, train, width, ancestor, .. } = atlas;
        let now = match self.fits {
            0 => atlas.slice_routes.clone(),
            _ => self.router.by_features(slice).into_iter().map(PathId).collect(),
        };
        let labels = labels(&now, scores, self.router.paths());
        let rows = Rows { slice, train: &train.features, width: *width, ancestor: *ancestor };
        let router = Router::by_best(rows, &labels, &self.router)?;
        let mut sizes = vec![0; router.paths() as usize];
        for (place, paths) in train.places.iter().zip(routes(&router, train, *width, overlap)) {
            paths.iter().for_each(|path| sizes[path.0 as usize] += u64::from(place.sequences));
        }
        match sizes.iter().position(|size| *size == 0) {
            Some(empty) => Err(NotShared::Empty(PathId(empty as u32))),
            None => Ok((router, sizes)),
        }
    }

    /// Weight of a path among the paths of a module: its training sequences, relative to their mean.
    pub fn share(&self, path: PathId, others: &[PathId]) -> f32 {
        let size = |path: &PathId| self.sizes[path.0 as usize] as f64;
        (size(&path) * others.len() as f64 / others.iter().map(size).sum::<f64>()) as f32
    }

    /// Indices of the documents of a catalogue that the router gives to a path; each document goes to `overlap` paths.
    /// Only for fitted routers: a creating router may need the tokens of the documents.
    pub fn documents_of(&self, path: PathId, catalogue: &Catalogue, width: usize, overlap: usize) -> Vec<usize> {
        let routes = routes(&self.router, catalogue, width, overlap).enumerate();
        routes.filter(|(_, paths)| paths.contains(&path)).map(|(document, _)| document).collect()
    }
}

/// The paths of each document.
fn routes<'a>(
    router: &'a Router,
    catalogue: &'a Catalogue,
    width: usize,
    overlap: usize,
) -> impl Iterator<Item = Vec<PathId>> + 'a {
    catalogue.features.chunks_exact(width).map(move |row| router.top(row, &[], overlap))
}

#[cfg(test)]
mod tests {
    use super::super::atlas::tests::two_by_two;
    use super::*;
    use crate::names::BlobHash;
    use crate::routing::Logistic;

    /// Splits by the first feature.
    fn created() -> RouterState {
        let logistic = Logistic::of(2, &[-1.0, 0.0, 1.0, 0.0, 0.0, 0.0]).unwrap();
        RouterState::initial(Router::discriminative(logistic, 4, BlobHash([7; 32])), vec![40, 40])
    }

    /// Path 0 is good at documents with a negative second feature, path 1 at the others.
    fn scores(atlas: &Atlas) -> [PathScores; 2] {
        let seconds = || atlas.slice.chunks(2).map(|row| row[1]);
        let path = |path: u32, sign: f32| {
            let nats = seconds().map(|second| 10.0 + sign * second.signum()).collect();
            PathScores { path: PathId(path), nats }
        };
        [path(0, 1.0), path(1, -1.0)]
    }

    #[test]
    fn documents_go_to_the_path_that_predicts_them_best_when_it_is_due() {
        let (atlas, before) = (two_by_two(), created());
        let same = before.passed();
        assert_eq!((same.rounds, same.fits, &same.router), (1, 0, &before.router));
        let (after, why) = before.next(&scores(&atlas), &atlas, 1);
        assert_eq!((after.rounds, after.fits, why), (1, 1, None));
        assert_eq!(after.sizes, [40, 40]);
        let uneven = RouterState { sizes: vec![30, 10], ..after.clone() };
        assert_eq!([0, 1].map(|path| uneven.share(PathId(path), &[PathId(0), PathId(1)])), [1.5, 0.5]);
        assert_eq!(uneven.share(PathId(1), &[PathId(1)]), 1.0, "alone in its module");
        for (path, sign) in [(0, -1.0), (1, 1.0)] {
            let documents = after.documents_of(PathId(path), &atlas.held_out, 2, 1);
            let seconds: Vec<f32> =
                documents.iter().map(|document| atlas.held_out.features[2 * document + 1]).collect();
            assert!(seconds.len() == 4 && seconds.iter().all(|second| second * sign > 0.0), "path {path}: {seconds:?}");
        }
        assert_eq!(after.documents_of(PathId(0), &atlas.train, 2, 2).len(), 40, "two paths a document");
    }

    #[test]
    fn a_path_that_has_not_scored_keeps_what_it_has() {
        let (atlas, before) = (two_by_two(), created());
        let [first, _] = scores(&atlas);
        let silent = PathScores { path: PathId(1), nats: Vec::new() };
        let (after, why) = before.next(&[first, silent.clone()], &atlas, 1);
        assert_eq!((after.fits, why), (1, None));
        let documents = after.documents_of(PathId(1), &atlas.train, 2, 1);
        assert_eq!(documents, before.documents_of(PathId(1), &atlas.train, 2, 1));

        // A Byzantine path that claims to be best everywhere does not take all documents. A document with nothing to
        // predict stays.
        let dishonest = PathScores { path: PathId(1), nats: vec![0.0; 20] };
        let honest = PathScores { path: PathId(0), nats: vec![5.0; 20] };
        let (after, why) = before.next(&[honest, dishonest], &atlas, 1);
        assert_eq!((after.fits, why, after.sizes), (1, None, vec![40, 40]));
        let same = PathScores { path: PathId(0), nats: vec![3.0; 20] };
        let (after, _) = before.next(&[same.clone(), PathScores { path: PathId(1), ..same }], &atlas, 1);
        assert_eq!(after.documents_of(PathId(1), &atlas.train, 2, 1), (20..40).collect::<Vec<_>>());

        let (kept, why) = before.next(&[silent], &atlas, 1);
        assert_eq!((kept.rounds, kept.fits, why), (1, 0, Some(NotShared::NoScores)));
    }

    #[test]
    fn a_state_comes_back_in_as_many_bytes_as_any_other_and_nothing_else_does() {
        let (atlas, before) = (two_by_two(), created());
        let (after, _) = before.next(&scores(&atlas), &atlas, 1);
        let (bytes, other) = (before.encode(2), after.encode(2));
        assert_eq!((bytes.len(), bytes.len() as u64), (other.len(), RouterState::size_bytes(2, 2)));
        assert_eq!(RouterState::decode(&bytes, 2, 2, 4).unwrap(), before);
        assert_eq!(RouterState::decode(&other, 2, 2, 4).unwrap(), after);
        assert!(RouterState::decode(&bytes, 3, 2, 4).is_err() && RouterState::decode(&bytes, 2, 2, 5).is_err());
        for (at, value) in [(0, 0), (4, 9), (24, 0), (12, 255), (bytes.len() - 1, 1)] {
            let mut broken = bytes.clone();
            broken[at] = value;
            assert!(RouterState::decode(&broken, 2, 2, 4).is_err(), "byte {at}");
        }
    }
}
