//! k-means agrees with scikit-learn's. The values and the script that made them are in tests/reference.

use pathswarm::routing::kmeans;
use pathswarm::seed::Seed;
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    width: usize,
    clusters: usize,
    fits: Vec<Fit>,
}

#[derive(Deserialize)]
struct Fit {
    name: String,
    rows: Vec<f32>,
    centroids: Vec<f64>,
    inertia: f64,
}

/// How far the farthest of these centroids is from its nearest among the others.
fn farthest(found: &[f32], expected: &[f64], width: usize) -> f64 {
    let distance =
        |a: &[f32], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt() };
    let nearest = |own: &[f32]| expected.chunks(width).map(|other| distance(own, other)).fold(f64::INFINITY, f64::min);
    found.chunks(width).map(nearest).fold(0.0, f64::max)
}

#[test]
fn clouds_that_lie_apart_have_the_same_centroids() {
    let reference: Reference = serde_json::from_str(include_str!("../reference/kmeans.json")).unwrap();
    let fit = &reference.fits[0];
    assert_eq!(fit.name, "apart");
    for seed in 0..10 {
        let found = kmeans(&fit.rows, reference.width, reference.clusters, 1000, Seed::root(seed)).unwrap();
        let away = farthest(&found.centroids, &fit.centroids, reference.width);
        assert!(away < 1e-4, "seed {seed}: a centroid is {away} away");
        assert!((found.inertia / fit.inertia - 1.0).abs() < 1e-6, "seed {seed}: {} {}", found.inertia, fit.inertia);
    }
}

#[test]
fn where_clouds_overlap_the_best_of_five_starts_is_as_good_as_the_best_of_twenty_to_a_percent_in_the_mean() {
    let reference: Reference = serde_json::from_str(include_str!("../reference/kmeans.json")).unwrap();
    let fit = &reference.fits[1];
    assert_eq!(fit.name, "overlapping");
    let mut ratios = Vec::new();
    for seed in 0..10 {
        let found = kmeans(&fit.rows, reference.width, reference.clusters, 1000, Seed::root(seed)).unwrap();
        ratios.push(found.inertia / fit.inertia);
    }
    // Theirs is no lower bound: one of ten of ours may be better.
    assert!(ratios.iter().all(|ratio| (0.99..1.03).contains(ratio)), "{ratios:?}");
    assert!(ratios.iter().sum::<f64>() / 10.0 < 1.01, "{ratios:?}");
}
