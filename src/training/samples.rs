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
