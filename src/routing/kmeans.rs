//! k-means on rows of numbers, with k-means++ starts; the best of several starts is returned.
//!
//! The same rows and seed give the same clusters on any machine: sums have a fixed order for any number of threads, and
//! the random numbers depend only on the seed.

use rand::RngExt;
use rayon::prelude::*;

use crate::seed::Seed;

/// Starts that are tried. A single start often ends in a poor local minimum; the best of five is good.
pub const RESTARTS: u64 = 5;

/// Rows per rayon task.
const ROWS_A_TASK: usize = 256;

/// The result of k-means.
#[derive(Clone, Debug, PartialEq)]
pub struct Clustering {
    /// Row-major `[clusters, width]`.
    pub centroids: Vec<f32>,
    /// The cluster of each row.
    pub assignments: Vec<u32>,
    /// Sum over rows of the squared distance to their centroid.
    pub inertia: f64,
    /// Rounds of the best start.
    pub rounds: usize,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KmeansError {
    #[error("{rows} documents cannot make {clusters} shards; give more text or use fewer paths")]
    TooFew { rows: usize, clusters: usize },
    #[error("{values} values cannot be divided into rows of width {width}")]
    Shape { values: usize, width: usize },
    #[error("row {0} has a value that is not finite")]
    NotFinite(usize),
}

/// Clusters rows (row-major `[n, width]`) with at most `rounds` rounds of moving centroids to the mean of their rows.
/// An empty cluster takes the row that is farthest from its centroid.
pub fn kmeans(
    rows: &[f32],
    width: usize,
    clusters: usize,
    rounds: usize,
    seed: Seed,
) -> Result<Clustering, KmeansError> {
    if width == 0 || !rows.len().is_multiple_of(width) {
        return Err(KmeansError::Shape { values: rows.len(), width });
    }
    let count = rows.len() / width;
    if clusters == 0 || count < clusters {
        return Err(KmeansError::TooFew { rows: count, clusters });
    }
    if let Some(at) = rows.iter().position(|value| !value.is_finite()) {
        return Err(KmeansError::NotFinite(at / width));
    }
    let mut best = run(rows, width, clusters, rounds, seed.number(0));
    for restart in 1..RESTARTS {
        let next = run(rows, width, clusters, rounds, seed.number(restart));
        if next.inertia < best.inertia {
            best = next;
        }
    }
    Ok(best)
}

fn run(rows: &[f32], width: usize, clusters: usize, rounds: usize, seed: Seed) -> Clustering {
    let mut centroids = start(rows, width, clusters, seed);
    let mut nearest = assign(rows, width, &centroids);
    let mut done = 0;
    while done < rounds {
        centroids = move_centroids(rows, width, clusters, &centroids, &nearest);
        let next = assign(rows, width, &centroids);
        done += 1;
        let settled = next.iter().zip(&nearest).all(|(new, old)| new.0 == old.0);
        nearest = next;
        if settled {
            break;
        }
    }
    let inertia = nearest.iter().map(|(_, distance)| f64::from(*distance)).sum();
    Clustering { centroids, assignments: nearest.iter().map(|(cluster, _)| *cluster).collect(), inertia, rounds: done }
}

/// k-means++ (Arthur and Vassilvitskii): each further centroid is a row, drawn with a probability proportional to its
/// squared distance from the nearest centroid so far.
fn start(rows: &[f32], width: usize, clusters: usize, seed: Seed) -> Vec<f32> {
    let mut rng = seed.generator();
    let count = rows.len() / width;
    let row = |i: usize| &rows[i * width..(i + 1) * width];
    let mut centroids = row(rng.random_range(0..count)).to_vec();
    let mut distances = vec![f32::INFINITY; count];
    while centroids.len() < clusters * width {
        let newest = &centroids[centroids.len() - width..];
        distances.par_iter_mut().zip(rows.par_chunks(width)).for_each(|(distance, row)| {
            *distance = distance.min(squared_distance(row, newest));
        });
        let total: f64 = distances.iter().map(|distance| f64::from(*distance)).sum();
        let mut left = rng.random::<f64>() * total;
        let chosen = distances.iter().position(|distance| {
            left -= f64::from(*distance);
            left < 0.0
        });
        // Happens only if all rows lie on centroids already, or by rounding.
        let chosen = chosen.unwrap_or_else(|| rng.random_range(0..count));
        centroids.extend_from_slice(row(chosen));
    }
    centroids
}

/// The nearest centroid of each row, and its squared distance.
fn assign(rows: &[f32], width: usize, centroids: &[f32]) -> Vec<(u32, f32)> {
    rows.par_chunks(width).with_min_len(ROWS_A_TASK).map(|row| nearest(row, centroids)).collect()
}

/// The nearest of `centroids` (row-major) to a row, the first of equals, and its squared distance.
pub(super) fn nearest(row: &[f32], centroids: &[f32]) -> (u32, f32) {
    let mut best = (0, f32::INFINITY);
    for (cluster, centroid) in centroids.chunks_exact(row.len().max(1)).enumerate() {
        let distance = squared_distance(row, centroid);
        if distance < best.1 {
            best = (cluster as u32, distance);
        }
    }
    best
}

/// In eight sums, for SIMD, added in a fixed order.
pub(super) fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (a_eights, b_eights) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a_eights.remainder().iter().zip(b_eights.remainder()).map(|(x, y)| (x - y) * (x - y)).sum();
    for (x, y) in a_eights.zip(b_eights) {
        for lane in 0..8 {
            sums[lane] += (x[lane] - y[lane]) * (x[lane] - y[lane]);
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// The means of the rows of each cluster. An empty cluster takes the row farthest from its centroid that no other has
/// taken, unless all rows lie on their centroids.
fn move_centroids(rows: &[f32], width: usize, clusters: usize, old: &[f32], nearest: &[(u32, f32)]) -> Vec<f32> {
    let mut sums = vec![0f64; clusters * width];
    let mut counts = vec![0u64; clusters];
    for (row, (cluster, _)) in rows.chunks_exact(width).zip(nearest) {
        let cluster = *cluster as usize;
        counts[cluster] += 1;
        sums[cluster * width..][..width].iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    let mut taken = vec![false; nearest.len()];
    let mut centroids = Vec::with_capacity(clusters * width);
    for (cluster, count) in counts.into_iter().enumerate() {
        let place = cluster * width..(cluster + 1) * width;
        if count > 0 {
            centroids.extend(sums[place].iter().map(|sum| (sum / count as f64) as f32));
            continue;
        }
        let mut worst: Option<usize> = None;
        for (i, (_, distance)) in nearest.iter().enumerate() {
            if !taken[i] && *distance > worst.map_or(0.0, |worst| nearest[worst].1) {
                worst = Some(i);
            }
        }
        match worst {
            Some(i) => {
                taken[i] = true;
                centroids.extend_from_slice(&rows[i * width..(i + 1) * width]);
            }
            None => centroids.extend_from_slice(&old[place]),
        }
    }
    centroids
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `each` points around each corner of a square, in turn.
    fn corners(each: usize) -> Vec<f32> {
        let mut rng = Seed::root(5).generator();
        let mut rows = Vec::new();
        for _ in 0..each {
            for (x, y) in [(0.0, 0.0), (10.0, 0.0), (0.0, 10.0), (10.0, 10.0)] {
                rows.extend([x + rng.random::<f32>(), y + rng.random::<f32>()]);
            }
        }
        rows
    }

    #[test]
    fn clusters_that_are_plain_to_see_are_found() {
        let found = kmeans(&corners(50), 2, 4, 50, Seed::root(1)).unwrap();
        let clusters: std::collections::BTreeSet<u32> = found.assignments.iter().copied().collect();
        assert_eq!(clusters.len(), 4);
        assert!((0..200).all(|i| found.assignments[i] == found.assignments[i % 4]));
        assert!(found.inertia < 200.0, "{}", found.inertia);
        assert_eq!(found.assignments.len(), 200);
    }

    #[test]
    fn the_same_seed_gives_the_same_clusters_whatever_the_threads() {
        let rows = corners(300);
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let many = rayon::ThreadPoolBuilder::new().num_threads(7).build().unwrap();
        let found = || kmeans(&rows, 2, 6, 20, Seed::root(3)).unwrap();
        assert_eq!(alone.install(found), many.install(found));
    }

    #[test]
    fn an_empty_cluster_takes_the_row_that_is_furthest() {
        let rows = [0.0, 1.0, 2.0, 50.0];
        let nearest = [(0, 1.0), (0, 0.0), (0, 1.0), (0, 2401.0)];
        assert_eq!(move_centroids(&rows, 1, 2, &[1.0, 999.0], &nearest), [13.25, 50.0]);
    }

    #[test]
    fn rows_that_are_all_the_same_leave_clusters_empty_but_end() {
        let found = kmeans(&[1.0; 10], 1, 3, 1000, Seed::root(1)).unwrap();
        assert_eq!(found.inertia, 0.0);
        assert_eq!(found.assignments, [0; 10]);
    }

    #[test]
    fn rows_that_cannot_be_clustered_are_refused() {
        let cluster = |rows: &[f32], width, clusters| kmeans(rows, width, clusters, 9, Seed::root(1)).unwrap_err();
        assert_eq!(cluster(&[1.0, 2.0], 1, 3), KmeansError::TooFew { rows: 2, clusters: 3 });
        assert_eq!(cluster(&[1.0, 2.0, 3.0], 2, 1), KmeansError::Shape { values: 3, width: 2 });
        assert_eq!(cluster(&[1.0, 2.0, 3.0, f32::NAN], 2, 1), KmeansError::NotFinite(1));
    }
}
