//! A run small enough for tests, and text for it.

use rand::RngExt;

use crate::config::RunConfig;
use crate::seed::Seed;

/// Two blocks of width 16 in two levels, four ragged sequences a step.
pub(crate) fn small_run() -> RunConfig {
    RunConfig::from_toml(
        r#"
        name = "small"
        [model]
        blocks = 2
        width = 16
        heads = 2
        vocabulary = 300
        context = 48
        [[levels]]
        parts = ["embedding", "block.0"]
        sharing = { experts = 2 }
        [[levels]]
        parts = ["block.1", "final-norm", "head"]
        sharing = "shared"
        [training]
        batch_sequences = 4
        inner_steps = 5
        phases = 9
        ancestor_steps = 4
        learning_rate = 1e-2
        "#,
    )
    .unwrap()
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
