//! Runs small enough for tests, networks of all kinds, and text for them.

use rand::RngExt;

use crate::config::run::tests::SMALL;
use crate::config::{
    AdapterConfig, Biases, DirectionalConfig, LevelConfig, ModelConfig, Pooling, Positions, RouterReads, RunConfig,
};
use crate::grid::Sharing;
use crate::model::samples::{dna_model, modern_models, small_model};
use crate::seed::Seed;

/// Four ragged sequences a step.
pub(crate) fn small_run() -> RunConfig {
    let mut run = RunConfig::from_toml(SMALL).unwrap();
    run.model.context = 48;
    let training = &mut run.training;
    (training.batch_sequences, training.phases, training.learning_rate) = (4, 9, 1e-2);
    run
}

/// A network of each kind, with its name.
pub(crate) fn networks() -> Vec<(String, ModelConfig)> {
    let gpt =
        ModelConfig { positions: Positions::Learned, biases: Biases::All, tied_head: true, blocks: 3, ..small_model() };
    let mut all = vec![("gpt-2".to_owned(), gpt.clone()), ("dna".to_owned(), dna_model())];
    all.extend(modern_models().into_iter().map(|(name, model)| (name.to_owned(), model)));
    all.push((
        "adapters".to_owned(),
        ModelConfig { adapter: Some(AdapterConfig { rank: 2, alpha: None }), ..gpt.clone() },
    ));
    let pooled = [Pooling::Token, Pooling::Prefix, Pooling::Sequence].into_iter();
    for (pooling, reads) in pooled.zip([RouterReads::Stream, RouterReads::Normed, RouterReads::Stream]) {
        let directional = Some(DirectionalConfig { pooling, reads, ..DirectionalConfig::of(2) });
        all.push((format!("directional {pooling:?}"), ModelConfig { directional, ..gpt.clone() }));
    }
    all.into_iter().map(|(name, model)| (name, ModelConfig { context: 48, ..model })).collect()
}

/// A run of one path of a network, with a level for what is trained.
pub(crate) fn run_of(model: ModelConfig) -> RunConfig {
    // Beside adapters, all else is frozen.
    let is_trained = |name: &String| model.adapter.is_none() || name.starts_with("adapter.");
    let names = model.parts().iter().map(ToString::to_string).filter(is_trained).collect::<Vec<_>>();
    let (balance, parts): (Vec<_>, Vec<_>) = names.into_iter().partition(|part| part == "balance");
    let level = |parts| LevelConfig { parts, sharing: Sharing::Shared };
    let levels = [parts, balance].into_iter().filter(|parts| !parts.is_empty()).map(level).collect();
    let mut run = RunConfig { model, levels, ..small_run() };
    // More rows than take a kernel for few.
    run.training.batch_sequences = 12;
    run
}

/// Ragged sequences of few distinct tokens.
pub(crate) fn small_set(sequences: usize) -> Vec<Vec<u32>> {
    let mut generator = Seed::root(3).generator();
    (0..sequences)
        .map(|_| {
            let length = generator.random_range(2..=48);
            (0..length).map(|_| generator.random_range(0..9) * 31).collect()
        })
        .collect()
}

/// Sequences as web text gives: documents of 200 tokens in the mean, most of them shorter, cut for training where the
/// context is too short for them.
pub(crate) fn web_like_set(documents: usize, context: usize) -> Vec<Vec<u32>> {
    let mut generator = Seed::root(4).generator();
    let mut length = || {
        let [radius, angle] = [(); 2].map(|()| generator.random_range(f64::EPSILON..1.0));
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        // The logarithm of a length has a deviation of 1.
        (200.0 * (normal - 0.5).exp()).max(2.0) as usize
    };
    let cut = |length: usize| match (length - 1).div_ceil(context) {
        1 => vec![length],
        sequences => vec![context + 1; sequences],
    };
    let all = (0..documents).flat_map(|_| cut(length()));
    all.map(|length| (0..length as u32).map(|at| at % 300).collect()).collect()
}
