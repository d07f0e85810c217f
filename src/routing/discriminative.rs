//! The router that sends documents to the paths that predicted similar documents of a slice best (DiPaCo, section
//! 2.4.2).

use super::logistic::{Logistic, LogisticError};
use super::router::{Router, Rule};
use crate::names::BlobHash;

/// Weight of the L2 penalty.
const PENALTY: f64 = 1e-3;

/// Features of the ancestor, row-major `[documents, width]`.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Features of the slice.
    pub slice: &'a [f32],
    /// Features of the training documents.
    pub train: &'a [f32],
    /// Features per row.
    pub width: usize,
    /// BLAKE3 of the ancestor's parameters.
    pub ancestor: BlobHash,
}

/// The present routes are learnt from at most this many documents, as many of each path.
const MOST_ROWS: usize = 4096;

impl Router {
    /// Fits the successor of `current`. `best` is the best path of each document of the slice.
    ///
    /// If the present router also uses features, the new one stays as close to it as the slice allows: documents unlike
    /// any in the slice keep their route, and a path's share of the training documents changes as its share of the
    /// slice does. Otherwise each path gets its share of the slice. Shares are evened out a little so that each path
    /// has documents.
    pub fn by_best(rows: Rows<'_>, best: &[u32], current: &Self) -> Result<Self, LogisticError> {
        let Rows { slice, train, width, ancestor } = rows;
        let paths = current.paths();
        let (mut logistic, shares) = if current.needs_features() {
            let now = current.by_features(train);
            let before = match &current.rule {
                Rule::Logistic { logistic, .. } => logistic.clone(),
                _ => learnt((train, width), &now, paths)?,
            };
            let counted = counts(&now, paths).into_iter().zip(counts(&current.by_features(slice), paths));
            let share = |((now, before), after): ((f64, f64), f64)| (now * after / before).max(1.0);
            let shares = counted.zip(counts(best, paths)).map(share).collect();
            (before.refit(slice, best, train, PENALTY)?, shares)
        } else {
            (Logistic::fit(slice, width, best, paths, PENALTY)?, counts(best, paths))
        };
        let all: f64 = shares.iter().sum();
        let target: Vec<f64> = shares.into_iter().map(|share| share / all).collect();
        logistic.calibrate(train, &target)?;
        Ok(Self::discriminative(logistic, current.prefix_tokens(), ancestor))
    }

    /// The path of each row of features, by a router that uses only features.
    pub(super) fn by_features(&self, features: &[f32]) -> Vec<u32> {
        features.chunks_exact(self.width()).map(|row| self.route(row, &[]).0).collect()
    }
}

/// A logistic fit of another router's routes, from every nth document of each path.
fn learnt((features, width): (&[f32], usize), routes: &[u32], paths: u32) -> Result<Logistic, LogisticError> {
    let of_each = (MOST_ROWS / paths as usize).max(1);
    let (mut few, mut labels) = (Vec::new(), Vec::new());
    for path in 0..paths {
        let own: Vec<usize> = (0..routes.len()).filter(|row| routes[*row] == path).collect();
        for row in own.iter().step_by(own.len().div_ceil(of_each).max(1)) {
            few.extend_from_slice(&features[row * width..][..width]);
            labels.push(path);
        }
    }
    Logistic::fit(&few, width, &labels, paths, PENALTY)
}

/// Documents of each path, plus one.
fn counts(routes: &[u32], paths: u32) -> Vec<f64> {
    let mut counts = vec![1.0; paths as usize];
    for path in routes {
        if let Some(count) = counts.get_mut(*path as usize) {
            *count += 1.0;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    /// Documents in four clusters in the plane. Half of them are in the first.
    fn heaps(documents: usize) -> Vec<f32> {
        let centres = [(0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (9.0, 0.0), (0.0, 9.0), (9.0, 9.0)];
        let row = |i: usize| {
            let (x, y) = centres[i % 6];
            [x + ((i * 37) % 19) as f32 * 0.2, y + ((i * 53) % 23) as f32 * 0.2]
        };
        (0..documents).flat_map(row).collect()
    }

    fn rows<'a>(slice: &'a [f32], train: &'a [f32]) -> Rows<'a> {
        Rows { slice, train, width: 2, ancestor: BlobHash::of(b"ancestor") }
    }

    #[test]
    fn where_each_path_is_best_at_what_it_has_nothing_moves() {
        let (train, slice) = (heaps(600), heaps(50));
        let current = Router::fit((&train, 2), (4, false), 4, BlobHash::of(b"ancestor"), 50, Seed::root(1)).unwrap();
        let next = Router::by_best(rows(&slice, &train), &current.by_features(&slice), &current).unwrap();
        let (before, after) = (current.by_features(&train), next.by_features(&train));
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        assert!(moved <= 2, "{moved}: shares come within two documents of what they were");
    }

    #[test]
    fn a_path_that_is_best_at_what_another_has_gets_it() {
        let (train, slice) = (heaps(600), heaps(60));
        let current = Router::fit((&train, 2), (4, false), 4, BlobHash::of(b"ancestor"), 50, Seed::root(1)).unwrap();
        let (loser, winner) = (current.by_features(&slice)[3], current.by_features(&slice)[4]);
        assert_ne!(loser, winner);
        let moved = |path: u32| if path == loser { winner } else { path };
        let best: Vec<u32> = current.by_features(&slice).into_iter().map(moved).collect();
        let next = Router::by_best(rows(&slice, &train), &best, &current).unwrap();
        let (before, after) = (current.by_features(&train), next.by_features(&train));
        let wrong = before.iter().zip(&after).filter(|(before, after)| moved(**before) != **after).count();
        assert!(wrong < 30, "{wrong} of 600; the loser keeps a few, so that it goes on");
        assert!(after.contains(&loser));
        let unknown = Router::by_best(rows(&slice, &train), &vec![4; best.len()], &current);
        assert_eq!(unknown.unwrap_err(), LogisticError::Label { document: 0, label: 4, paths: 4 });
    }

    #[test]
    fn what_was_fitted_before_is_where_the_next_fit_begins_and_all_peers_come_to_the_same_bytes() {
        let (train, slice) = (heaps(600), heaps(60));
        let first = Router::fit((&train, 2), (4, false), 4, BlobHash::of(b"ancestor"), 50, Seed::root(1)).unwrap();
        let threads = |count| rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap();
        let fitted = |count: usize, current: &Router| {
            threads(count).install(|| {
                let best = current.by_features(&slice);
                Router::by_best(rows(&slice, &train), &best, current).unwrap()
            })
        };
        let (second, third) = (fitted(1, &first), fitted(1, &fitted(1, &first)));
        assert_eq!((second.encode(), third.encode()), (fitted(7, &first).encode(), fitted(7, &second).encode()));
        let moved = second.by_features(&train).iter().zip(third.by_features(&train)).filter(|(a, b)| **a != *b).count();
        assert!(moved <= 2, "{moved}");
    }
}
