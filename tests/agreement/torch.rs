//! The network, its gradients, AdamW and Muon agree with PyTorch. The values and the scripts that made them are in
//! tests/reference.
#![cfg(feature = "learning")]

use std::collections::BTreeMap;

use pathswarm::config::{
    Biases, LevelConfig, MachineConfig, ModelConfig, MomentFormat, Optimizer, Positions, Precision, RunConfig,
};
use pathswarm::grid::Sharing;
use pathswarm::model::layers::attention::Attention;
use pathswarm::model::layers::block::{Block, Reading};
use pathswarm::model::layers::linear::{Kernel, Products};
use pathswarm::model::layers::rotary::rotation;
use pathswarm::model::layers::watch::Unwatched;
use pathswarm::model::weights::Weights;
use pathswarm::seed::Seed;
use pathswarm::training::inner::adamw::norm;
use pathswarm::training::inner::optimizer::{InnerOptimizer, StepNow};
use pathswarm::training::{BatchOrder, InnerTrainer, learning_rate};
use serde::Deserialize;
use tch::{Device, Kind, Tensor};

#[derive(Deserialize)]
struct Steps {
    count: usize,
    norms: Vec<f64>,
    parameters: BTreeMap<u64, Vec<f32>>,
}

#[derive(Deserialize)]
struct Network {
    sequences: Vec<Vec<u32>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    positions: Positions,
    biases: bool,
    attention: Piece,
    block: Piece,
    training: BTreeMap<String, Vec<Step>>,
}

#[derive(Deserialize)]
struct Piece {
    output: Vec<f64>,
    input_gradient: Vec<f64>,
    gradients: BTreeMap<String, Vec<f64>>,
}

#[derive(Deserialize)]
struct Step {
    loss: f64,
    gradient_norm: f64,
    squares: f64,
}

fn sines(count: usize, pace: f64, phase: f64, scale: f64) -> Vec<f32> {
    (0..count).map(|index| (scale * (pace * index as f64 + phase).sin()) as f32).collect()
}

fn network() -> Network {
    serde_json::from_str(include_str!("../reference/network.json")).unwrap()
}

/// The run of tests/reference/network.py: all tensors in one level, in the order of its specification.
fn run(positions: Positions, biases: bool, tied: bool) -> RunConfig {
    let mut run = RunConfig::from_toml(
        r#"
        name = "reference"
        [model]
        blocks = 2
        width = 8
        heads = 2
        feed_forward = 16
        vocabulary = 258
        context = 40
        [[levels]]
        parts = ["embedding", "blocks.0-1", "final-norm", "head"]
        sharing = "shared"
        [routing]
        prefix_tokens = 4
        [training]
        batch_sequences = 5
        inner_steps = 1000
        phases = 1000
        ancestor_steps = 0
        learning_rate = 1e-2
        "#,
    )
    .unwrap();
    run.model.biases = if biases { Biases::All } else { Biases::None };
    (run.model.positions, run.model.tied_head) = (positions, tied);
    if tied {
        run.levels[0].parts.pop();
    }
    run.check().unwrap();
    run
}

fn weights(run: &RunConfig) -> Weights {
    let mut weights = Weights::new(&run.model, &run.levels, Device::Cpu).unwrap();
    let count = weights.sizes()[0];
    weights.set(0, &sines(count, 0.7, 0.1, 0.3)).unwrap();
    weights
}

fn assert_close(found: &Tensor, expected: &[f64], what: &str) {
    let expected = Tensor::from_slice(expected);
    let off = (found.detach().flatten(0, -1).to_kind(Kind::Double) - &expected).abs();
    let bound = expected.abs().clamp_min(1.0) * 1e-5;
    let worst = (off / bound).max().double_value(&[]);
    assert!(worst <= 1.0, "{what} is {worst} times as far off as 1e-5 allows");
}

fn assert_piece(weights: &Weights, prefix: &str, expected: &Piece, what: &str, forward: impl Fn(&Tensor) -> Tensor) {
    let input = Tensor::from_slice(&sines(2 * 6 * 8, 0.9, 0.2, 1.0)).view([2, 6, 8]).set_requires_grad(true);
    let output = forward(&input);
    assert_close(&output, &expected.output, what);
    let leaves: Vec<_> = weights.leaves().flatten().filter(|leaf| leaf.name.starts_with(prefix)).collect();
    assert_eq!(leaves.len(), expected.gradients.len(), "{what}");
    let mut inputs = vec![&input];
    inputs.extend(leaves.iter().map(|leaf| &leaf.tensor));
    let gradients = Tensor::run_backward(&[output.square().sum(Kind::Float)], &inputs, false, false);
    assert_close(&gradients[0], &expected.input_gradient, what);
    for (leaf, gradient) in leaves.iter().zip(&gradients[1..]) {
        assert_close(gradient, &expected.gradients[&leaf.name], &format!("{what}: {}", leaf.name));
    }
}

#[test]
fn attention_and_blocks_agree_forward_and_backward() {
    for case in network().cases {
        let run = run(case.positions, case.biases, false);
        let weights = weights(&run);
        let turns = rotation(&run.model, Device::Cpu).unwrap().map(|turns| turns.narrow(0, 0, 6));
        let attention = Attention::new(&weights, "block.0.attention", &run.model).unwrap();
        let block = Block::new(&weights, 1, &run.model).unwrap();
        for kernel in [Kernel::Default, Kernel::OneDnn] {
            let products = Products { kernel, precision: Precision::F32 };
            let what = format!("{:?}, biases {}, {kernel:?}", case.positions, case.biases);
            assert_piece(&weights, "block.0.attention.", &case.attention, &format!("attention, {what}"), |input| {
                let heads = attention.heads(input, &products, turns.as_ref(), None).unwrap();
                attention.project(&heads, &products).unwrap()
            });
            assert_piece(&weights, "block.1.", &case.block, &format!("block, {what}"), |input| {
                let reading = Reading {
                    products: &products,
                    rotation: turns.as_ref(),
                    lengths: None,
                    packed: None,
                    watch: &Unwatched,
                };
                block.forward(input, &reading, None).unwrap()
            });
        }
    }
}

#[test]
fn whole_steps_on_ragged_sequences_agree() {
    let network = network();
    for case in &network.cases {
        for (head, steps) in &case.training {
            for micro_batch_sequences in [0, 2] {
                let mut run = run(case.positions, case.biases, head == "tied");
                run.training.final_learning_rate_share = 1.0;
                let machine = MachineConfig { threads: 2, micro_batch_sequences, ..MachineConfig::default() };
                let mut trainer = InnerTrainer::new(&run, &machine, Device::Cpu).unwrap();
                let count = trainer.model().level_sizes()[0];
                trainer.load(&[&sines(count, 0.7, 0.1, 0.3)]).unwrap();
                let order = BatchOrder { seed: Seed::root(1), sequences: network.sequences.len() };
                for (number, expected) in steps.iter().enumerate() {
                    let found = trainer.step(&network.sequences[..], &order, number as u64).unwrap();
                    let level = &trainer.levels().unwrap()[0];
                    let squares: f64 = level.iter().map(|value| f64::from(*value).powi(2)).sum();
                    let what = format!("{:?}, biases {}, {head}, step {number}", case.positions, case.biases);
                    assert!((found.loss - expected.loss).abs() < 1e-5, "{what}: loss {}", found.loss);
                    assert!((found.gradient_norm - expected.gradient_norm).abs() < 1e-5, "{what}: norm");
                    assert!((squares / expected.squares - 1.0).abs() < 1e-5, "{what}: squares {squares}");
                }
            }
        }
    }
}

/// A model with as many parameters as the reference, whose tensors cut its gradient in pieces.
fn small_weights(count: usize) -> Weights {
    let model = ModelConfig { feed_forward: Some(23), tied_head: true, ..ModelConfig::of([1, 2, 1], 258, 8) };
    let parts = ["embedding", "block.0", "final-norm"].map(str::to_owned).to_vec();
    let weights = Weights::new(&model, &[LevelConfig { parts, sharing: Sharing::Shared }], Device::Cpu).unwrap();
    assert_eq!(weights.sizes(), [count]);
    weights
}

#[test]
fn fifty_steps_of_adamw_with_schedule_and_clipping_agree() {
    follow(include_str!("../reference/optimizers/adamw.json"), Optimizer::AdamW, 1e-6);
}

#[test]
fn fifty_steps_of_muon_agree() {
    follow(include_str!("../reference/optimizers/muon.json"), Optimizer::Muon, 1e-5);
}

/// Takes the steps of the reference, and compares the parameters.
fn follow(reference: &str, optimizer: Optimizer, tolerance: f32) {
    let reference: Steps = serde_json::from_str(reference).unwrap();
    let mut weights = small_weights(reference.count);
    weights.set(0, &sines(reference.count, 0.7, 0.1, 0.3)).unwrap();
    let mut training = run(Positions::Rotary, false, false).training;
    (training.inner_steps, training.phases, training.warmup_steps) = (50, 1, 10);
    training.optimizer = optimizer;
    let rule = InnerOptimizer::new(&training, &weights);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let mut moments = rule.moments(MomentFormat::F32, Device::Cpu).unwrap();
    for step in 0..50u64 {
        let scale = 0.02 * (1 + step % 5) as f64;
        let flat = Tensor::from_slice(&sines(reference.count, 0.37, 1.3 * step as f64, scale));
        let leaves = weights.leaves().next().unwrap();
        let sizes: Vec<i64> = leaves.iter().map(|leaf| leaf.tensor.numel() as i64).collect();
        let parts = flat.split_with_sizes(&sizes[..], 0);
        let gradients: Vec<Tensor> =
            leaves.iter().zip(parts).map(|(leaf, part)| part.view(leaf.tensor.size().as_slice())).collect();
        let gradients = vec![gradients];
        let length = norm(&pool, &gradients).unwrap();
        assert!((length - reference.norms[step as usize]).abs() < 1e-6);
        let now = StepNow { number: step + 1, norm: length, learning_rate: learning_rate(&training, step) };
        rule.update(&pool, &mut weights, &mut moments, &gradients, now).unwrap();
        if let Some(expected) = reference.parameters.get(&(step + 1)) {
            let found = weights.get(0).unwrap();
            let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < tolerance, "after {} steps: {off}", step + 1);
        }
    }
}
