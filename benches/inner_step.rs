//! One inner step in f32 and bfloat16, with AdamW and with Muon, on one thread and on all: `cargo bench --bench inner_step`.

mod shape;

use criterion::{Criterion, Throughput, criterion_group};
use pathswarm::config::{Optimizer, Precision};
use pathswarm::training::device::SIZES;

fn inner_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("inner step");
    let size = SIZES[0];
    group.throughput(Throughput::Elements((size.sequences * size.context) as u64)).sample_size(20);
    for (name, precision, threads, optimizer) in [
        ("f32, all threads", Precision::F32, 0, Optimizer::AdamW),
        ("f32, all threads, Muon", Precision::F32, 0, Optimizer::Muon),
        ("f32, one thread", Precision::F32, 1, Optimizer::AdamW),
        ("f32, one thread, Muon", Precision::F32, 1, Optimizer::Muon),
        ("bf16, all threads", Precision::Bf16, 0, Optimizer::AdamW),
    ] {
        let mut run = size.run(size.sequences);
        run.training.optimizer = optimizer;
        let mut bench = shape::Bench::new(&run, precision, threads);
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
