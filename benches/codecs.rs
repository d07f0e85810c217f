//! How fast outer gradients are encoded, decoded, summed and applied, in bytes of f32 per second, on one core.
//!
//! `cargo bench --no-default-features --bench codecs --profile release`

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand::RngExt;
use std::hint::black_box;

use pathswarm::compress::{compress_with_feedback, decode, encode};
use pathswarm::config::{Codec, OuterMode};
use pathswarm::names::ModuleId;
use pathswarm::outer::{ExactSum, ModuleState, nesterov};
use pathswarm::seed::Seed;

/// 16 MiB of f32: more than a core's caches hold, as with real modules.
const COUNT: usize = 1 << 22;

/// Gaussian noise, which is what an outer gradient looks like to an entropy coder.
fn noise() -> Vec<f32> {
    let mut dice = Seed::root(5).generator();
    let mut normal = || {
        let radius = (-2.0 * (1.0 - dice.random::<f64>()).ln()).sqrt();
        (1.0e-3 * radius * (std::f64::consts::TAU * dice.random::<f64>()).cos()) as f32
    };
    (0..COUNT).map(|_| normal()).collect()
}

fn codecs(criterion: &mut Criterion) {
    let values = noise();
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Bytes(4 * COUNT as u64)).sample_size(20);
    for (name, codec) in [("int4", Codec::Int4), ("int8", Codec::Int8), ("fp32", Codec::Fp32)] {
        let frame = encode(codec, &values).unwrap();
        println!("{name}: {:.3} bits a value", frame.len() as f64 * 8.0 / COUNT as f64);
        group.bench_function(BenchmarkId::new("encode", name), |bencher| {
            bencher.iter(|| encode(codec, black_box(&values)).unwrap());
        });
        group.bench_function(BenchmarkId::new("encode with residual", name), |bencher| {
            bencher.iter(|| compress_with_feedback(codec, black_box(&values)).unwrap());
        });
        group.bench_function(BenchmarkId::new("decode", name), |bencher| {
            bencher.iter(|| decode(black_box(&frame), COUNT).unwrap());
        });
        let mut sum = ExactSum::new(COUNT);
        group.bench_function(BenchmarkId::new("decode into the sum", name), |bencher| {
            bencher.iter(|| {
                if sum.add(&decode(black_box(&frame), COUNT).unwrap(), 1000).is_err() {
                    sum = ExactSum::new(COUNT);
                }
            });
        });
    }
}

fn outer_step(criterion: &mut Criterion) {
    let values = noise();
    let mut group = criterion.benchmark_group("outer");
    group.throughput(Throughput::Bytes(4 * COUNT as u64)).sample_size(20);
    let mut sum = ExactSum::new(COUNT);
    group.bench_function("exact sum: add", |bencher| {
        bencher.iter(|| {
            if sum.add(black_box(&values), 1).is_err() {
                sum = ExactSum::new(COUNT);
            }
        });
    });
    group.bench_function("exact sum: average", |bencher| bencher.iter(|| black_box(&sum).average(1.4)));
    let mut state = ModuleState::initial(ModuleId { level: 0, expert: 0 }, values.clone(), OuterMode::Synchronous);
    group.bench_function("nesterov", |bencher| {
        bencher.iter(|| nesterov::step(&mut state.parameters, &mut state.momentum, black_box(&values), 1.0e-6, 0.9));
    });
    group.bench_function("state: hash", |bencher| bencher.iter(|| black_box(&state).hash()));
}

fn on_one_core(criterion: &mut Criterion) {
    rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().unwrap();
    codecs(criterion);
    outer_step(criterion);
}

criterion_group!(benches, on_one_core);
criterion_main!(benches);
