//! Documents per second to which routers are fitted, and which they route.
//!
//! `cargo bench --no-default-features --bench routing --profile release`

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::RngExt;

use pathswarm::routing::{Logistic, kmeans};
use pathswarm::seed::Seed;

const DOCUMENTS: usize = 20_000;
const WIDTH: usize = 128;
const PATHS: u32 = 16;
const L2: f64 = 1e-3;

/// Iterations of k-means from each start.
const ROUNDS: usize = 20;

/// Overlapping clusters, one for each path, with the path of each document.
fn made_up() -> (Vec<f32>, Vec<u32>) {
    let mut rng = Seed::root(6).generator();
    let mut even = || 2.0 * rng.random::<f32>() - 1.0;
    let centres: Vec<f32> = (0..PATHS as usize * WIDTH).map(|_| 0.3 * even()).collect();
    let labels: Vec<u32> = (0..DOCUMENTS as u32).map(|document| document % PATHS).collect();
    let features = labels.iter().flat_map(|label| &centres[*label as usize * WIDTH..][..WIDTH]);
    let features = features.map(|centre| centre + even()).collect();
    (features, labels)
}

fn routing(criterion: &mut Criterion) {
    let (features, labels) = made_up();
    let mut group = criterion.benchmark_group("routing");
    group.throughput(Throughput::Elements(DOCUMENTS as u64)).sample_size(10);
    group.bench_function("k-means", |bencher| {
        bencher.iter(|| kmeans(black_box(&features), WIDTH, PATHS as usize, ROUNDS, Seed::root(1)).unwrap());
    });
    group.bench_function("logistic: fit", |bencher| {
        bencher.iter(|| Logistic::fit(black_box(&features), WIDTH, &labels, PATHS, L2).unwrap());
    });
    let fitted = Logistic::fit(&features, WIDTH, &labels, PATHS, L2).unwrap();
    // A target far from the documents.
    let sum = f64::from(PATHS * (PATHS + 1) / 2);
    let target: Vec<f64> = (1..=PATHS).map(|share| f64::from(share) / sum).collect();
    group.bench_function("logistic: calibrate", |bencher| {
        bencher.iter(|| fitted.clone().calibrate(black_box(&features), &target).unwrap());
    });
    group.bench_function("logistic: route", |bencher| bencher.iter(|| fitted.route(black_box(&features))));
    group.finish();
}

criterion_group!(benches, routing);
criterion_main!(benches);
