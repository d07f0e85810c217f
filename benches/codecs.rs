//! The speed of encoding, decoding, summing and applying outer gradients on one core, in bytes of f32 per second.
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

/// 16 MiB of f32, more than a core's caches hold, as with real modules.
const COUNT: usize = 1 << 22;

/// Gaussian noise, which is how an outer gradient looks to an entropy coder.
fn noise() -> Vec<f32> {
    let mut rng = Seed::root(5).generator();
    let mut normal = || {
        let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
        (1.0e-3 * radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()) as f32
    };
    (0..COUNT).map(|_| normal()).collect()
}

fn codecs(criterion: &mut Criterion) {
    let values = noise();
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Bytes(4 * COUNT as u64)).sample_size(20);
    let codecs = [
        ("top-k 64", Codec::TopK(64)),
        ("int2", Codec::Int2),
        ("int4", Codec::Int4),
        ("int8", Codec::Int8),
        ("fp16", Codec::Fp16),
        ("fp32", Codec::Fp32),
    ];
    for (name, codec) in codecs {
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

/// The size of the 64 largest of each 4096 values in other encodings: as SparseLoCo packs them, and with zstd.
fn other_ways() {
    let decoded = decode(&encode(Codec::TopK(64), &noise()).unwrap(), COUNT).unwrap();
    let (mut packed, mut bytes, mut before) = (Vec::new(), Vec::new(), 0);
    for (place, value) in decoded.iter().enumerate().filter(|(_, value)| **value != 0.0) {
        // 12 bits of an index and 2 of a value, in 16 bits. The unused bits are zero.
        packed.extend(((place % 4096) as u16 | u16::from(*value < 0.0) << 12).to_le_bytes());
        let distance = place - before;
        bytes.push((distance % 128) as u8 | if distance < 128 { 0 } else { 128 });
        (distance >= 128).then(|| bytes.push((distance / 128) as u8));
        before = place;
    }
    let bits = |bytes: usize| 8.0 * bytes as f64 / COUNT as f64;
    println!("packed bits: {:.3} bits a value", 14.0 * (packed.len() / 2) as f64 / COUNT as f64);
    for level in [1, 19] {
        let signs = bits(packed.len() / 16);
        let by_zstd = |bytes: &[u8]| bits(zstd::bulk::compress(bytes, level).unwrap().len());
        println!("zstd {level} of packed places: {:.3} bits a value", by_zstd(&packed));
        println!("zstd {level} of distances, signs as they are: {:.3} bits a value", by_zstd(&bytes) + signs);
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
}

fn on_one_core(criterion: &mut Criterion) {
    rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().unwrap();
    other_ways();
    codecs(criterion);
    outer_step(criterion);
}

criterion_group!(benches, on_one_core);
criterion_main!(benches);
