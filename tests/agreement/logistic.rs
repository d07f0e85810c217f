//! The discriminative router's fit agrees with scikit-learn's, finds what made the documents, gives paths their shares,
//! and has the same bits everywhere. The values and the script that made them are in tests/reference.

use pathswarm::routing::Logistic;
use pathswarm::seed::Seed;
use rand::RngExt;
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    width: usize,
    paths: u32,
    features: Vec<f32>,
    labels: Vec<u32>,
    fits: Vec<Fit>,
}

#[derive(Deserialize)]
struct Fit {
    l2: f64,
    weights: Vec<f64>,
    bias: Vec<f64>,
    probabilities: Vec<f64>,
}

fn furthest(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn probabilities(scores: &[f64]) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let odds: Vec<f64> = scores.iter().map(|score| libm::exp(score - most)).collect();
    odds.iter().map(|own| own / odds.iter().sum::<f64>()).collect()
}

#[test]
fn it_agrees_with_scikit_learn() {
    let reference: Reference = serde_json::from_str(include_str!("../reference/logistic.json")).unwrap();
    let Reference { width, paths, features, labels, fits } = reference;
    for expected in fits {
        let found = Logistic::fit(&features, width, &labels, paths, expected.l2).unwrap();
        for (path, (found, expected)) in found.weights().iter().zip(&expected.weights).enumerate() {
            // Features differ in size, and weights with them.
            assert!((found - expected).abs() <= 1e-5 * expected.abs().max(0.01), "weight {path}: {found} {expected}");
        }
        let mean = found.bias().iter().sum::<f64>() / f64::from(paths);
        let bias: Vec<f64> = found.bias().iter().map(|bias| bias - mean).collect();
        assert!(furthest(&bias, &expected.bias) < 1e-4, "{bias:?} {:?}", expected.bias);
        let chances: Vec<f64> = features.chunks(width).flat_map(|row| probabilities(&found.scores(row))).collect();
        assert!(furthest(&chances, &expected.probabilities) < 1e-6, "probabilities at {}", expected.l2);
    }
}

/// Documents and the paths that a known model drew for them.
fn drawn(documents: usize, weights: &[f64], width: usize) -> (Vec<f32>, Vec<u32>) {
    let mut rng = Seed::root(11).generator();
    let features: Vec<f32> = (0..documents * width).map(|_| 4.0 * rng.random::<f32>() - 2.0).collect();
    let mut draw = |row: &[f32]| {
        let score = |weights: &[f64]| weights.iter().zip(row).map(|(weight, value)| weight * f64::from(*value)).sum();
        let chances = probabilities(&weights.chunks(width).map(score).collect::<Vec<f64>>());
        let mut left = rng.random::<f64>();
        let drawn = chances.iter().position(|chance| {
            left -= chance;
            left < 0.0
        });
        drawn.unwrap_or(0) as u32
    };
    let labels = features.chunks(width).map(&mut draw).collect();
    (features, labels)
}

/// Weights of 5 paths for 3 features, which add up to 0 for each feature, as those of a fit do.
const WEIGHTS: [f64; 15] = [1.0, 0.0, -1.0, -1.0, 0.5, 0.0, 0.0, -1.5, 1.0, 0.5, 1.0, 0.5, -0.5, 0.0, -0.5];

#[test]
fn the_model_that_made_the_labels_is_found() {
    let (features, labels) = drawn(40_000, &WEIGHTS, 3);
    let found = Logistic::fit(&features, 3, &labels, 5, 1e-6).unwrap();
    // Three standard errors of a weight from so many documents.
    assert!(furthest(found.weights(), &WEIGHTS) < 0.05, "{:?}", found.weights());
    assert!(furthest(found.bias(), &[0.0; 5]) < 0.05, "{:?}", found.bias());
}

#[test]
fn calibration_gives_each_path_its_share_within_two_documents() {
    let (features, labels) = drawn(3_000, &WEIGHTS, 3);
    let mut found = Logistic::fit(&features, 3, &labels, 5, 1e-3).unwrap();
    for target in [[0.2; 5], [0.6, 0.1, 0.1, 0.15, 0.05], [0.0, 0.25, 0.25, 0.25, 0.25]] {
        let off = found.calibrate(&features, &target).unwrap();
        let routed = found.route(&features);
        let shares: Vec<f64> =
            (0..5).map(|path| routed.iter().filter(|routed| **routed == path).count() as f64 / 3_000.0).collect();
        assert_eq!(off, furthest(&shares, &target));
        assert!(off <= 2.0 / 3_000.0, "{shares:?} for {target:?}");
    }
}

/// All bits of a fit that was calibrated, and where it sends documents.
fn bits() -> String {
    let (features, labels) = drawn(3_001, &WEIGHTS, 3);
    let mut found = Logistic::fit(&features, 3, &labels, 6, 1e-4).unwrap();
    let off = found.calibrate(&features, &[0.2, 0.2, 0.15, 0.15, 0.1, 0.2]).unwrap();
    let mut hasher = blake3::Hasher::new();
    for value in found.weights().iter().chain(found.bias()).chain([&off]) {
        hasher.update(&value.to_le_bytes());
    }
    for path in found.top(&features, 2) {
        hasher.update(&path.to_le_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

#[test]
fn the_bits_are_the_same_whatever_the_threads_and_the_machine() {
    for threads in [1, 2, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(pool.install(bits), "ebdda221ca0b3a42106ab2507fa58faf", "{threads} threads");
    }
}
