//! Centroids to which a document's features are compared: of all features (k-means), or of each half (product k-means;
//! Jégou et al. 2011, DiPaCo section 7.3), where a path is a pair of clusters.
//!
//! The halves of a text's features are strongly correlated, which leaves most pairs empty. So the second half is
//! compared after subtraction of its mean over the documents with the same first cluster.

use std::collections::BTreeMap;
use std::ops::Range;

use super::kmeans::{KmeansError, kmeans, nearest, squared_distance};
use crate::seed::Seed;

/// Centroids are fitted on at most this many documents, spread evenly. All documents are then routed by them.
const MAX_FIT_ROWS: usize = 50_000;

/// The standardisation of each feature to mean 0 and variance 1, and the centroids in standardised features.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    pub(super) mean: Vec<f32>,
    pub(super) scale: Vec<f32>,
    pub(super) books: Vec<Book>,
    /// For each cluster of the first half, what is subtracted from the second half, row-major `[clusters, width]`.
    /// Empty with a single book.
    pub(super) shifts: Vec<f32>,
}

/// The centroids of a range of features.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Book {
    pub(super) width: usize,
    /// Row-major `[clusters, width]`.
    pub(super) centroids: Vec<f32>,
}

impl Book {
    fn clusters(&self) -> usize {
        self.centroids.len() / self.width.max(1)
    }
}

impl Clusters {
    /// Fits one book for each entry of `counts`, with so many clusters. `features` is row-major `[documents, width]`.
    pub fn fit(
        features: &[f32],
        width: usize,
        counts: &[usize],
        rounds: usize,
        seed: Seed,
    ) -> Result<Self, KmeansError> {
        if width < counts.len() || !features.len().is_multiple_of(width) {
            return Err(KmeansError::Shape { values: features.len(), width });
        }
        let every = (features.len() / width).div_ceil(MAX_FIT_ROWS).max(1);
        let mut found = Self::standardising(features, width);
        let mut rows: Vec<f32> =
            features.chunks(width).step_by(every).flat_map(|row| found.standardise(row).collect::<Vec<_>>()).collect();
        for (number, clusters) in counts.iter().enumerate() {
            let place = columns(width, counts.len(), number);
            if number == 1 {
                found.shift(&mut rows, width, place.clone());
            }
            let rows: Vec<f32> = rows.chunks(width).flat_map(|row| &row[place.clone()]).copied().collect();
            // Kept from before product k-means, so that a single book has the same seed.
            let seed = seed.child("k-means");
            let seed = if number == 0 { seed } else { seed.number(number as u64) };
            let centroids = kmeans(&rows, place.len(), *clusters, rounds, seed)?.centroids;
            found.books.push(Book { width: place.len(), centroids });
        }
        Ok(found)
    }

    /// Without clusters: the standardisation of these features.
    fn standardising(features: &[f32], width: usize) -> Self {
        let (mean, scale) = moments(features, width);
        let [mean, scale] = [mean, scale].map(|values| values.into_iter().map(|value| value as f32).collect());
        Self { mean, scale, books: Vec::new(), shifts: Vec::new() }
    }

    /// Fits clusters within each group of rows, all in one book. `groups` names the group of each row, `parents` the group
    /// that each cluster divides.
    pub fn fit_within(
        (features, width): (&[f32], usize),
        groups: &[u32],
        parents: &[u32],
        rounds: usize,
        seed: Seed,
    ) -> Result<Self, KmeansError> {
        if width == 0 || features.len() != width * groups.len() {
            return Err(KmeansError::Shape { values: features.len(), width });
        }
        let every = groups.len().div_ceil(MAX_FIT_ROWS).max(1);
        let mut found = Self::standardising(features, width);
        let (mut rows, mut clusters) = (BTreeMap::<u32, Vec<f32>>::new(), BTreeMap::<u32, Vec<usize>>::new());
        for (row, group) in features.chunks(width).zip(groups).step_by(every) {
            rows.entry(*group).or_default().extend(found.standardise(row));
        }
        for (child, parent) in parents.iter().enumerate() {
            clusters.entry(*parent).or_default().push(child);
        }
        let mut centroids = vec![0f32; parents.len() * width];
        for (parent, children) in clusters {
            let rows = rows.remove(&parent).unwrap_or_default();
            let seed = seed.child("k-means within").number(u64::from(parent));
            let fitted = kmeans(&rows, width, children.len(), rounds, seed)?.centroids;
            for (child, centroid) in children.into_iter().zip(fitted.chunks(width)) {
                centroids[child * width..][..width].copy_from_slice(centroid);
            }
        }
        found.books.push(Book { width, centroids });
        Ok(found)
    }

    /// Subtracts from the second half of each row its mean over the rows with the same first cluster.
    fn shift(&mut self, rows: &mut [f32], width: usize, second: Range<usize>) {
        let [first] = &self.books[..] else { return };
        let of: Vec<usize> =
            rows.chunks(width).map(|row| nearest(&row[..first.width], &first.centroids).0 as usize).collect();
        let (mut counts, mut sums) = (vec![0f64; first.clusters()], vec![0f64; first.clusters() * second.len()]);
        for (row, cluster) in rows.chunks(width).zip(&of) {
            counts[*cluster] += 1.0;
            let sums = &mut sums[cluster * second.len()..][..second.len()];
            sums.iter_mut().zip(&row[second.clone()]).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        let mean = |(place, sum): (usize, &f64)| (sum / counts[place / second.len()].max(1.0)) as f32;
        self.shifts = sums.iter().enumerate().map(mean).collect();
        for (row, cluster) in rows.chunks_mut(width).zip(of) {
            let shift = &self.shifts[cluster * second.len()..];
            row[second.clone()].iter_mut().zip(shift).for_each(|(value, shift)| *value -= shift);
        }
    }

    /// The features that a book compares, for a document with this cluster in the books before it.
    fn shifted(&self, own: &[f32], before: usize) -> Vec<f32> {
        let shift = self.shifts.get(before * own.len()..).unwrap_or_default();
        let shift = shift.iter().chain(std::iter::repeat(&0.0));
        own.iter().zip(shift).map(|(value, shift)| value - shift).collect()
    }

    /// Number of features of a document.
    pub fn width(&self) -> usize {
        self.mean.len()
    }

    /// The path of a document: the nearest centroid of each book, the first of equals. The last book's index varies
    /// fastest.
    pub fn path_of(&self, features: &[f32]) -> u32 {
        let row: Vec<f32> = self.standardise(features).collect();
        let mut rest = row.as_slice();
        let mut path = 0;
        for (number, book) in self.books.iter().enumerate() {
            let (own, others) = rest.split_at(book.width.min(rest.len()));
            rest = others;
            let cluster = match number {
                0 => nearest(own, &book.centroids).0,
                _ => nearest(&self.shifted(own, path as usize), &book.centroids).0,
            };
            path = path * book.clusters() as u32 + cluster;
        }
        path
    }

    /// The `n` paths whose centroids, over all books, are nearest to these features, or all if there are fewer; the
    /// first of equals first. The first of them is [`Clusters::path_of`].
    pub fn nearest_paths(&self, features: &[f32], n: usize) -> Vec<u32> {
        let first = self.path_of(features);
        if n < 2 {
            return vec![first];
        }
        let row: Vec<f32> = self.standardise(features).collect();
        let mut rest = row.as_slice();
        let mut distances = vec![0f32];
        for (number, book) in self.books.iter().enumerate() {
            let (own, others) = rest.split_at(book.width.min(rest.len()));
            rest = others;
            let mut longer = Vec::with_capacity(distances.len() * book.clusters());
            for (before, so_far) in distances.iter().enumerate() {
                let own = if number == 0 { own.to_vec() } else { self.shifted(own, before) };
                let centroids = book.centroids.chunks_exact(book.width);
                longer.extend(centroids.map(|centroid| so_far + squared_distance(&own, centroid)));
            }
            distances = longer;
        }
        let mut order: Vec<u32> = (0..distances.len() as u32).collect();
        order.sort_by(|a, b| distances[*a as usize].total_cmp(&distances[*b as usize]));
        // Rounding could reorder them, so the nearest of every book is put first.
        order.retain(|path| *path != first);
        order.insert(0, first);
        order.truncate(n);
        order
    }

    fn standardise<'a>(&'a self, row: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        row.iter().zip(&self.mean).zip(&self.scale).map(|((value, mean), scale)| (value - mean) * scale)
    }
}

/// The features of a book: equal consecutive parts.
pub(super) fn columns(width: usize, books: usize, number: usize) -> Range<usize> {
    number * width / books..(number + 1) * width / books
}

/// Mean and inverse standard deviation of each feature. The latter is 0 for a nearly constant feature, which leaves it
/// out.
pub(super) fn moments(features: &[f32], width: usize) -> (Vec<f64>, Vec<f64>) {
    let count = (features.len() / width).max(1) as f64;
    let mut mean = vec![0f64; width];
    for row in features.chunks_exact(width) {
        mean.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value) / count);
    }
    let mut variance = vec![0f64; width];
    for row in features.chunks_exact(width) {
        for ((sum, value), mean) in variance.iter_mut().zip(row).zip(&mean) {
            let away = f64::from(*value) - mean;
            *sum += away * away / count;
        }
    }
    let scale = variance.iter().zip(&mean).map(|(variance, mean)| {
        let varies = variance.sqrt() > 1e-6 * (mean.abs() + 1e-6);
        if varies { 1.0 / variance.sqrt() } else { 0.0 }
    });
    let scale = scale.collect();
    (mean, scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_of_a_document_choose_a_path_together() {
        // Two features distinguish four kinds, one bit each. The others are noise.
        let row =
            |i: usize| [(i % 2) as f32, ((i * 37) % 11) as f32 * 1e-3, ((i / 2) % 2) as f32, (i % 7) as f32 * 1e-3];
        let features: Vec<f32> = (0..400).flat_map(row).collect();
        let found = Clusters::fit(&features, 4, &[2, 2], 50, Seed::root(2)).unwrap();
        let paths: Vec<u32> = features.chunks(4).map(|row| found.path_of(row)).collect();
        let mut kinds: Vec<u32> = paths[..4].to_vec();
        assert!((0..400).all(|i| paths[i] == kinds[i % 4]), "{paths:?}");
        kinds.sort_unstable();
        assert_eq!(kinds, [0, 1, 2, 3]);
    }

    #[test]
    fn halves_that_say_the_same_still_make_pairs_of_which_each_has_documents() {
        // The second half repeats the first, plus a much smaller bit of its own.
        let row = |i: usize| {
            let (kind, bit) = ((i % 2) as f32, (i / 2 % 2) as f32 * 0.2);
            [kind, kind + ((i * 37) % 11) as f32 * 1e-3, kind + bit, kind + bit + (i % 7) as f32 * 1e-3]
        };
        let features: Vec<f32> = (0..400).flat_map(row).collect();
        let found = Clusters::fit(&features, 4, &[2, 2], 50, Seed::root(2)).unwrap();
        let paths: Vec<u32> = features.chunks(4).map(|row| found.path_of(row)).collect();
        let mut kinds: Vec<u32> = paths[..4].to_vec();
        assert!((0..400).all(|i| paths[i] == kinds[i % 4]), "{paths:?}");
        for row in features.chunks(4) {
            let nearest = found.nearest_paths(row, 4);
            assert_eq!(nearest[0], found.path_of(row));
            assert_eq!(nearest[1] / 2, nearest[0] / 2, "the halves' difference counts less");
        }
        kinds.sort_unstable();
        assert_eq!(kinds, [0, 1, 2, 3]);
    }

    #[test]
    fn fitting_and_routing_agree() {
        let features: Vec<f32> = (0..80).flat_map(|i| [(i % 2) as f32 * 0.01, ((i * 37) % 80) as f32, 5.0]).collect();
        let found = Clusters::fit(&features, 3, &[5], 50, Seed::root(9)).unwrap();
        let rows: Vec<f32> = features.chunks(3).flat_map(|row| found.standardise(row).collect::<Vec<_>>()).collect();
        let clustering = kmeans(&rows, 3, 5, 50, Seed::root(9).child("k-means")).unwrap();
        let routed: Vec<u32> = features.chunks(3).map(|row| found.path_of(row)).collect();
        assert_eq!(routed, clustering.assignments);
    }

    #[test]
    fn features_that_do_not_divide_evenly_are_all_used_once() {
        let all: Vec<usize> = (0..3).flat_map(|number| columns(7, 3, number)).collect();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn fewer_documents_than_clusters_or_features_than_books_are_refused() {
        let fit = |rows: &[f32], width, counts: &[usize]| Clusters::fit(rows, width, counts, 9, Seed::root(1));
        assert_eq!(fit(&[1.0; 8], 4, &[2, 3]).unwrap_err(), KmeansError::TooFew { rows: 2, clusters: 3 });
        assert_eq!(fit(&[1.0; 8], 1, &[2, 2]).unwrap_err(), KmeansError::Shape { values: 8, width: 1 });
    }
}
