//! The router that sends documents where those of a slice were predicted best (DiPaCo, section 2.4.2).

use super::logistic::{Logistic, LogisticError};
use super::router::Router;
use crate::names::BlobHash;

/// Strength of the fit's penalty.
const PENALTY: f64 = 1e-3;

/// Features of the ancestor, row-major `[documents, width]`.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Of the slice's documents.
    pub slice: &'a [f32],
    /// Of the training documents.
    pub train: &'a [f32],
    /// Values of a row.
    pub width: usize,
    /// BLAKE3 of the ancestor's parameters.
    pub ancestor: BlobHash,
}

/// What documents have now is learnt from so many of them at the most, evenly taken.
const MOST_ROWS: usize = 4096;

impl Router {
    /// Fits one that follows `current`; `best` is the best path of each document of the slice.
    ///
    /// Where the present router goes by features, too, the new one is as near to it as the slice allows: what no document
    /// of the slice speaks against stays, and a path's share of the training documents changes as its share of the slice
    /// does. Otherwise each path has its share of the slice. Shares are a little evened out so that no path goes without.
    ///
    /// # Errors
    /// If there is no fit.
    pub fn by_best(rows: Rows<'_>, best: &[u32], current: &Self) -> Result<Self, LogisticError> {
        let Rows { slice, train, width, ancestor } = rows;
        let paths = current.paths();
        let counted = counts(best, paths);
        let (mut logistic, shares) = if current.needs_features() {
            let (now, of_slice) = (current.by_features(train), current.by_features(slice));
            let changed = counted.iter().zip(counts(&of_slice, paths)).map(|(after, before)| after / before);
            let shares = counts(&now, paths).into_iter().zip(changed).map(|(now, changed)| now * changed).collect();
            let step = now.len().div_ceil(MOST_ROWS).max(1);
            let few: Vec<u32> = now.iter().step_by(step).copied().collect();
            let few_rows: Vec<f32> = train.chunks_exact(width).step_by(step).flatten().copied().collect();
            (Logistic::fit(&few_rows, width, &few, paths, PENALTY)?.refit(slice, best, PENALTY)?, shares)
        } else {
            (Logistic::fit(slice, width, best, paths, PENALTY)?, counted)
        };
        let all: f64 = shares.iter().sum();
        let target: Vec<f64> = shares.into_iter().map(|share| share / all).collect();
        logistic.calibrate(train, &target)?;
        Ok(Self::discriminative(logistic, current.prefix_tokens(), ancestor))
    }

    /// The path of each row of features, of a router that needs nothing else.
    fn by_features(&self, features: &[f32]) -> Vec<u32> {
        features.chunks_exact(self.width()).map(|row| self.route(row, &[]).0).collect()
    }
}

/// How many documents each path has, and one more.
fn counts(routes: &[u32], paths: u32) -> Vec<f64> {
    let mut counts = vec![1.0; paths as usize];
    routes.iter().for_each(|path| counts[*path as usize] += 1.0);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    /// Documents in four heaps in the plane, the first of half of them.
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
        let moved = |path: u32| if path == loser { winner } else { path };
        let best: Vec<u32> = current.by_features(&slice).into_iter().map(moved).collect();
        let next = Router::by_best(rows(&slice, &train), &best, &current).unwrap();
        let (before, after) = (current.by_features(&train), next.by_features(&train));
        let wrong = before.iter().zip(&after).filter(|(before, after)| moved(**before) != **after).count();
        assert!(wrong < 30, "{wrong} of 600; the loser keeps a few, so that it goes on");
        assert!(after.contains(&loser));
    }
}
