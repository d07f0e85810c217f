//! The speed of tokenization, and of computing the routing features of documents, on one core each: `cargo bench
//! --bench text`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group};
use pathswarm::config::{LevelConfig, ModelConfig, Precision};
use pathswarm::grid::Sharing;
use pathswarm::model::{PathModel, initial_levels, set_threads};
use pathswarm::seed::Seed;
use pathswarm::text::Tokenizer;

/// Documents of about 2 kB from this project's own pages, which are always available.
fn documents() -> Vec<String> {
    let pages = [
        include_str!("../README.md"),
        include_str!("../CHANGELOG.md"),
        include_str!("../docs/architecture.md"),
        include_str!("../docs/reference/configuration.md"),
        include_str!("../docs/reference/formats/messages.md"),
        include_str!("../docs/reference/protocol/network.md"),
    ];
    let characters: Vec<char> = pages.concat().chars().collect();
    characters.chunks(2000).map(|characters| characters.iter().collect()).collect()
}

const VOCABULARY: usize = 4096;
const WIDTH: usize = 128;
const PREFIX: usize = 32;
const DOCUMENTS: usize = 64;

fn text(criterion: &mut Criterion) {
    let documents = documents();
    let tokenizer = Tokenizer::train(&documents, VOCABULARY).unwrap();
    let bytes: usize = documents.iter().map(String::len).sum();
    let mut group = criterion.benchmark_group("text");
    group.throughput(Throughput::Bytes(bytes as u64)).sample_size(20);
    group.bench_function("tokenise, one core", |bencher| {
        bencher.iter(|| documents.iter().map(|text| tokenizer.encode(black_box(text)).unwrap().len()).sum::<usize>());
    });

    set_threads(1);
    let model = ModelConfig::of([4, WIDTH, 4], VOCABULARY, 256);
    let parts = model.parts().iter().map(ToString::to_string).collect();
    let levels = [LevelConfig { parts, sharing: Sharing::Shared }];
    let mut ancestor = PathModel::new(&model, &levels, tch::Device::Cpu, Precision::F32).unwrap();
    let initial = initial_levels(&model, &levels, Seed::root(1));
    ancestor.set_level(0, &initial[0]).unwrap();
    let prefixes: Vec<Vec<u32>> =
        (0..DOCUMENTS as u32).map(|i| (0..PREFIX as u32).map(|j| i * 31 + j).collect()).collect();
    let prefixes: Vec<&[u32]> = prefixes.iter().map(Vec::as_slice).collect();
    group.throughput(Throughput::Elements(DOCUMENTS as u64));
    group.bench_function("features of documents, one core", |bencher| {
        bencher.iter(|| ancestor.prefix_features(black_box(&prefixes)).unwrap());
    });
    group.finish();
}

criterion_group!(benches, text);
fn main() {
    pathswarm::model::spin_briefly();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
