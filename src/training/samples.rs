//! A run small enough for tests, and text for it.

use rand::RngExt;

use crate::config::RunConfig;
use crate::config::run::tests::SMALL;
use crate::seed::Seed;

/// Four ragged sequences a step.
pub(crate) fn small_run() -> RunConfig {
    let mut run = RunConfig::from_toml(SMALL).unwrap();
    run.model.context = 48;
    let training = &mut run.training;
    (training.batch_sequences, training.phases, training.learning_rate) = (4, 9, 1e-2);
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
