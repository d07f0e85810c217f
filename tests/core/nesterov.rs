//! The outer optimizer agrees with PyTorch's SGD with Nesterov momentum. The values and the script that made them are
//! in tests/reference.

use std::collections::BTreeMap;

use pathswarm::outer::nesterov;
use serde::Deserialize;

#[derive(Deserialize)]
struct Nesterov {
    count: usize,
    learning_rate: f32,
    momentum: f32,
    steps: BTreeMap<u64, After>,
}

#[derive(Deserialize)]
struct After {
    parameters: Vec<f32>,
    momentum: Vec<f32>,
}

fn sines(count: usize, pace: f64, phase: f64, scale: f64) -> Vec<f32> {
    (0..count).map(|index| (scale * (pace * index as f64 + phase).sin()) as f32).collect()
}

fn furthest(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn fifty_outer_steps_agree_with_pytorch() {
    let reference: Nesterov = serde_json::from_str(include_str!("../reference/optimizers/nesterov.json")).unwrap();
    let mut parameters = sines(reference.count, 0.7, 0.1, 0.3);
    let mut momentum = vec![0.0; reference.count];
    for step in 0..50u64 {
        let average = sines(reference.count, 0.37, 1.3 * step as f64, 0.02);
        nesterov::step(&mut parameters, &mut momentum, &average, reference.learning_rate, reference.momentum);
        if let Some(expected) = reference.steps.get(&(step + 1)) {
            assert!(furthest(&parameters, &expected.parameters) < 1e-6, "parameters after {} steps", step + 1);
            assert!(furthest(&momentum, &expected.momentum) < 1e-6, "momentum after {} steps", step + 1);
        }
    }
}
