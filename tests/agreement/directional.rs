//! Directional routing computes what PyTorch does, sees no token before its time unless it is told to, and has the paper's
//! numbers of parameters. Values and script are in tests/reference.
#![cfg(feature = "learning")]

use std::collections::BTreeMap;
use std::process::Command;

use pathswarm::config::{DirectionalConfig, LevelConfig, ModelConfig, Pooling, Precision, RouterReads, RunConfig};
use pathswarm::grid::Sharing;
use pathswarm::model::layers::block::{Block, Reading};
use pathswarm::model::layers::linear::{Kernel, Products};
use pathswarm::model::layers::rotary::rotation;
use pathswarm::model::layers::watch::{Unwatched, Watch};
use pathswarm::model::weights::Weights;
use pathswarm::model::{Memory, PathModel, initial_levels};
use pathswarm::seed::Seed;
use serde::Deserialize;
use tch::{Device, Kind, TchError, Tensor};

const POOLINGS: [Pooling; 3] = [Pooling::Prefix, Pooling::Sequence, Pooling::Token];

#[derive(Deserialize)]
struct Reference {
    lengths: Vec<i64>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    pooling: Pooling,
    reads: RouterReads,
    router_layers: usize,
    outputs: BTreeMap<String, Vec<f64>>,
    input_gradient: Vec<f64>,
    gradients: BTreeMap<String, Vec<f64>>,
}

fn sines(count: usize, pace: f64, phase: f64, scale: f64) -> Vec<f32> {
    (0..count).map(|index| (scale * (pace * index as f64 + phase).sin()) as f32).collect()
}

/// One directional block in a level of its own.
fn model(directional: DirectionalConfig) -> (ModelConfig, Vec<LevelConfig>) {
    let run = RunConfig::from_toml(
        r#"
        name = "reference"
        model = { blocks = 1, width = 8, heads = 2, feed_forward = 16, vocabulary = 258, context = 40 }
        levels = [
            { parts = ["block.0"], sharing = "shared" },
            { parts = ["embedding", "final-norm", "head"], sharing = "shared" },
        ]
        training = { batch_sequences = 5, inner_steps = 1, phases = 1, ancestor_steps = 0, learning_rate = 1e-2 }
        "#,
    )
    .unwrap();
    let mut levels = run.levels;
    levels[0].parts = vec!["layer.0".to_owned()];
    (ModelConfig { directional: Some(directional), ..run.model }, levels)
}

/// Puts something in the place of what the routers say.
struct Intervention<'a>(&'a str);

impl Watch for Intervention<'_> {
    fn routing(&self, _: usize, routing: Tensor) -> Result<Tensor, TchError> {
        // Two heads of three directions.
        let apart = routing.f_unflatten(-1, [2, 3])?;
        let _ = match self.0 {
            "none" => apart.shallow_clone(),
            "off" => apart.shallow_clone().f_fill_(0.0)?,
            "neutral" => apart.shallow_clone().f_fill_(0.5)?,
            "full" => apart.shallow_clone().f_fill_(1.0)?,
            "head 1 off" => apart.f_select(-2, 1)?.f_fill_(0.0)?,
            "head 0 direction 2 full" => apart.f_select(-2, 0)?.f_select(-1, 2)?.f_fill_(1.0)?,
            other => panic!("{other}"),
        };
        apart.f_flatten(-2, -1)
    }
}

#[track_caller]
fn assert_close(found: &Tensor, expected: &[f64], what: &str) {
    let expected = Tensor::from_slice(expected);
    let off = (found.detach().flatten(0, -1).to_kind(Kind::Double) - &expected).abs();
    let worst = (off / (expected.abs().clamp_min(1.0) * 1e-5)).max().double_value(&[]);
    assert!(worst <= 1.0, "{what} is {worst} times as far off as 1e-5 allows");
}

#[test]
fn blocks_agree_with_pytorch_forward_and_backward_and_under_interventions() {
    let reference: Reference = serde_json::from_str(include_str!("../reference/directional.json")).unwrap();
    let lengths = Tensor::from_slice(&reference.lengths);
    let counted = |output: &Tensor| {
        let rows = output.unbind(0).into_iter().zip(&reference.lengths);
        Tensor::cat(&rows.map(|(row, length)| row.narrow(0, 0, *length)).collect::<Vec<_>>(), 0)
    };
    for case in reference.cases {
        let (model, levels) = model(DirectionalConfig {
            pooling: case.pooling,
            reads: case.reads,
            router_layers: case.router_layers,
            router_width: Some(5),
            ..DirectionalConfig::of(3)
        });
        let mut weights = Weights::new(&model, &levels, Device::Cpu).unwrap();
        let count = weights.sizes()[0];
        weights.set(0, &sines(count, 0.7, 0.1, 0.3)).unwrap();
        let block = Block::new(&weights, 0, &model).unwrap();
        let turns = rotation(&model, Device::Cpu).unwrap().map(|turns| turns.narrow(0, 0, 6));
        for kernel in [Kernel::Default, Kernel::OneDnn] {
            let products = Products { kernel, precision: Precision::F32 };
            let what = format!("{:?} of {:?}, {} layers, {kernel:?}", case.pooling, case.reads, case.router_layers);
            let input = Tensor::from_slice(&sines(2 * 6 * 8, 0.9, 0.2, 1.0)).view([2, 6, 8]).set_requires_grad(true);
            let forward = |watch: &dyn Watch| {
                let reading = Reading {
                    products: &products,
                    rotation: turns.as_ref(),
                    lengths: Some(&lengths),
                    packed: None,
                    watch,
                };
                counted(&block.forward(&input, &reading, None).unwrap())
            };
            for (name, expected) in &case.outputs {
                let output = tch::no_grad(|| forward(&Intervention(name)));
                assert_close(&output, expected, &format!("{name}, {what}"));
            }
            let leaves: Vec<_> = weights.leaves().next().unwrap().iter().collect();
            let mut inputs = vec![&input];
            inputs.extend(leaves.iter().map(|leaf| &leaf.tensor));
            let found = Tensor::run_backward(&[forward(&Unwatched).square().sum(Kind::Float)], &inputs, false, false);
            assert_close(&found[0], &case.input_gradient, &what);
            assert_eq!(leaves.len(), case.gradients.len());
            for (leaf, gradient) in leaves.iter().zip(&found[1..]) {
                assert_close(gradient, &case.gradients[&leaf.name], &format!("{}, {what}", leaf.name));
            }
        }
    }
}

/// Two blocks whose routers say something: initial values, tenfold.
fn network(pooling: Pooling) -> PathModel {
    let (model, mut levels) = model(DirectionalConfig { pooling, ..DirectionalConfig::of(2) });
    let model = ModelConfig { blocks: 2, ..model };
    levels[0].parts = vec!["layers.0-1".to_owned()];
    let mut path = PathModel::new(&model, &levels, Device::Cpu, Precision::F32).unwrap();
    for (level, values) in initial_levels(&model, &levels, Seed::root(4)).iter().enumerate() {
        let wide: Vec<f32> = values.iter().map(|value| if *value == 1.0 { 1.0 } else { value * 10.0 }).collect();
        path.set_level(level, &wide).unwrap();
    }
    path
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    let values: Vec<f32> = Vec::try_from(tensor.flatten(0, -1)).unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

#[test]
fn no_score_changes_by_a_bit_when_a_later_token_does_unless_routing_sees_the_whole_sequence() {
    let text: Vec<i64> = (0..40).map(|place| place * 37 % 258).collect();
    for pooling in POOLINGS {
        let path = network(pooling);
        let whole = path.logits(&Tensor::from_slice(&text).unsqueeze(0)).unwrap();
        for place in 4..39 {
            let mut other = text.clone();
            other[place + 1..].iter_mut().for_each(|token| *token = (*token + 101) % 258);
            let changed = path.logits(&Tensor::from_slice(&other).unsqueeze(0)).unwrap();
            let up_to = |logits: &Tensor| bits(&logits.narrow(1, 3, place as i64 - 2));
            assert_eq!(up_to(&whole) == up_to(&changed), pooling != Pooling::Sequence, "{pooling:?}, {place}");
            assert_ne!(bits(&whole.narrow(1, 39, 1)), bits(&changed.narrow(1, 39, 1)));
        }
    }
}

#[test]
fn what_is_read_in_pieces_is_in_its_end_as_if_it_were_read_at_once() {
    let text: Vec<u32> = (0..40).map(|place| place * 37 % 258).collect();
    for pooling in POOLINGS {
        let path = network(pooling);
        let mut memory = Memory::default();
        for (begin, end) in [(0, 2), (2, 3), (3, 9), (9, 10), (10, 24), (24, 40)] {
            let piece = path.read(&mut memory, &text[begin..end]).unwrap();
            let so_far: Vec<i64> = text[..end].iter().map(|token| i64::from(*token)).collect();
            let whole = path.hidden(&Tensor::from_slice(&so_far).unsqueeze(0)).unwrap();
            let own = whole.narrow(1, begin as i64, (end - begin) as i64);
            let differs = (piece - own).abs().max().double_value(&[]);
            assert!(differs < 1e-4 && memory.read == end, "{pooling:?} {begin}..{end}: {differs}");
        }
    }
}

#[test]
fn padding_is_nobodys_business() {
    for pooling in POOLINGS {
        let path = network(pooling);
        let short: Vec<u32> = vec![7, 8, 9];
        let alone = path.prefix_features(&[&short]).unwrap();
        let beside = path.prefix_features(&[&short, &[1; 20]]).unwrap();
        assert!(alone.iter().zip(&beside).all(|(a, b)| (a - b).abs() < 1e-5), "{pooling:?}");
    }
}

#[test]
fn the_papers_network_has_the_papers_parameters() {
    let file = format!("{}/configs/directional-433m.toml", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(env!("CARGO_BIN_EXE_pathswarm")).args(["config", "parameters", &file]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let numbers = [
        ("embeddings", "77,194,752"),
        ("attention", "113,246,208"),
        ("feed-forward", "226,492,416"),
        ("routers", "16,079,424"),
        ("directions", "73,728"),
        ("norms", "38,400"),
        ("a path", "433,124,928"),
    ];
    for (purpose, count) in numbers {
        let line = said.lines().find(|line| line.trim_start().starts_with(purpose));
        assert!(line.is_some_and(|line| line.contains(&format!(" {count} "))), "{purpose}: {said}");
    }
    let mut plain = RunConfig::from_toml(&std::fs::read_to_string(&file).unwrap()).unwrap().model;
    plain.directional = None;
    assert_eq!(plain.parts().into_iter().map(|part| plain.parameters(part)).sum::<usize>(), 416_971_776);
}

#[test]
fn settings_that_make_no_sense_are_refused_where_they_stand() {
    let refused = |directional: &str| {
        let text = format!(
            r#"
            name = "refused"
            model = {{ blocks = 1, width = 8, heads = 2, vocabulary = 258, context = 40, directional = {directional} }}
            levels = [{{ parts = ["embedding", "layer.0", "final-norm", "head"], sharing = "shared" }}]
            training = {{ batch_sequences = 5, inner_steps = 1, phases = 1, ancestor_steps = 0, learning_rate = 1e-2 }}
            "#
        );
        let run = RunConfig::from_toml(&text);
        run.map_err(|error| error.to_string()).and_then(|run| run.check().map_err(|error| error.to_string()))
    };
    assert_eq!(refused("{ directions = 4 }"), Ok(()));
    assert!(refused("{ directions = 5 }").unwrap_err().contains("directional.directions = 5: 1 to 4"));
    assert!(refused("{ directions = 1, temperature = 0.0 }").unwrap_err().contains("directional.temperature = 0"));
    let (model, levels) = model(DirectionalConfig::of(2));
    let values = initial_levels(&model, &levels, Seed::root(1));
    let refusal = pathswarm::model::hugging_face::weights(&model, &levels, &values).unwrap_err().to_string();
    assert!(refusal.contains("[model.directional] has no counterpart"), "{refusal}");
    let plain = LevelConfig { parts: vec!["router.0".to_owned()], sharing: Sharing::Shared };
    let known = pathswarm::config::model::levels::check_levels(&ModelConfig { directional: None, ..model }, &[plain]);
    assert!(known.unwrap_err().to_string().contains("which this model does not have"));
}
