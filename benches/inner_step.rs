//! One inner step in f32 and bfloat16, on one thread and on all: `cargo bench --bench inner_step`.

mod shape;

use criterion::{Criterion, Throughput, criterion_group};
use pathswarm::config::{Positions, Precision};

fn inner_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("inner step");
    group.throughput(Throughput::Elements(shape::TOKENS as u64)).sample_size(20);
    for (name, precision, threads) in [
        ("f32, all threads", Precision::F32, 0),
        ("f32, one thread", Precision::F32, 1),
        ("bf16, all threads", Precision::Bf16, 0),
    ] {
        let mut bench = shape::Bench::new(Positions::Rotary, precision, threads);
        group.bench_function(name, |bencher| bencher.iter(|| bench.step()));
    }
    group.finish();
}

criterion_group!(benches, inner_step);
fn main() {
    pathswarm::model::spin_briefly();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
