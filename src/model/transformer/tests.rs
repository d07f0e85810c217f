//! Tests of a path's network.

use super::*;
use crate::config::{DirectionalConfig, Positions};
use crate::model::Memory;
use crate::model::samples::{dna_levels, dna_model, modern_models, small_levels, small_model, small_path};

fn tokens(rows: &[&[i64]]) -> Tensor {
    Tensor::from_slice(&rows.concat()).view([rows.len() as i64, -1])
}

/// Small networks with all kinds of blocks: plain, directional, and routed modules of them.
fn networks() -> Vec<(String, PathModel)> {
    let learned = ModelConfig { positions: Positions::Learned, ..small_model() };
    let mut found = vec![
        ("plain".to_owned(), small_path(&small_model(), &small_levels())),
        ("learned, plain".to_owned(), small_path(&learned, &small_levels())),
    ];
    let mut layers = small_levels();
    (layers[0].parts[1], layers[1].parts[0]) = ("layer.0".to_owned(), "layer.1".to_owned());
    for (name, model) in modern_models() {
        found.push((name.to_owned(), small_path(&model, &small_levels())));
        let plain = dna_model();
        let routed = ModelConfig { architecture: plain.architecture, blocks: 1, dna: plain.dna, ..model.clone() };
        found.push((format!("{name}, routed"), small_path(&routed, &dna_levels())));
        let directional = ModelConfig { directional: Some(DirectionalConfig::of(2)), ..model };
        match directional.check() {
            Ok(()) => found.push((format!("{name}, directional"), small_path(&directional, &layers))),
            Err(error) => assert!(name == "olmo2" && error.to_string().contains("[model.directional]"), "{error}"),
        }
    }
    found
}

#[test]
fn what_is_read_in_pieces_is_as_if_it_were_read_at_once() {
    for (name, path) in networks() {
        let all: Vec<u32> = (5..17).collect();
        let whole = path.hidden(&tokens(&[&[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]])).unwrap();
        let mut memory = Memory::default();
        let pieces: Vec<Tensor> =
            [0..3, 3..4, 4..9, 9..12].map(|piece| path.read(&mut memory, &all[piece]).unwrap()).into_iter().collect();
        let differs = (Tensor::cat(&pieces, 1) - whole).abs().max().double_value(&[]);
        assert!(differs < 1e-4 && memory.read == 12, "{name}: {differs}");
        let refused = path.read(&mut memory, &[1; 13]).unwrap_err();
        assert!(matches!(refused, ForwardError::TooLong { found: 25, context: 24 }), "{refused}");
        assert!(path.read(&mut memory, &[300]).is_err() && path.read(&mut memory, &[]).is_err());
        assert_eq!(memory.read, 12, "what is refused was not read");
    }
}

#[test]
fn a_later_token_changes_no_earlier_score() {
    for (name, path) in networks() {
        let a = path.logits(&tokens(&[&[5, 6, 7, 8]])).unwrap();
        let b = path.logits(&tokens(&[&[5, 6, 7, 99]])).unwrap();
        assert!(a.narrow(1, 0, 3).allclose(&b.narrow(1, 0, 3), 1e-5, 1e-4, false), "{name}");
        assert!(!a.narrow(1, 3, 1).allclose(&b.narrow(1, 3, 1), 1e-5, 1e-3, false), "{name}");
    }
}

#[test]
fn order_matters_because_positions_do() {
    for (name, path) in networks() {
        let a = path.hidden(&tokens(&[&[5, 6, 7, 8]])).unwrap().narrow(1, 3, 1);
        let b = path.hidden(&tokens(&[&[6, 5, 7, 8]])).unwrap().narrow(1, 3, 1);
        assert!(!a.allclose(&b, 1e-5, 1e-4, false), "{name}");
    }
}

#[test]
fn every_weight_of_every_block_learns() {
    for (name, path) in networks().into_iter().filter(|(name, _)| !name.contains("routed")) {
        let read = tokens(&[&[5, 6, 7, 8, 9], &[20, 21, 22, 23, 24]]);
        let loss = path.trunk(&read, None, &path.exact()).unwrap().sin().sum(Kind::Float);
        let in_trunk = |leaf: &&crate::model::weights::Leaf| !leaf.name.starts_with("head");
        let leaves: Vec<_> = path.weights.leaves().flatten().filter(in_trunk).collect();
        let tensors: Vec<&Tensor> = leaves.iter().map(|leaf| &leaf.tensor).collect();
        let gradients = Tensor::run_backward(&[loss], &tensors, false, false);
        for (leaf, gradient) in leaves.iter().zip(&gradients) {
            let (own, all) = (gradient.abs().max().double_value(&[]), gradient.isfinite().all().int64_value(&[]));
            assert!(own > 0.0 && all == 1, "{name}: {} has a gradient of {own}", leaf.name);
        }
    }
}

#[test]
fn a_tied_head_scores_with_the_embedding() {
    let model = ModelConfig { tied_head: true, ..small_model() };
    let mut levels = small_levels();
    levels[1].parts.pop();
    let path = small_path(&model, &levels);
    let hidden = path.hidden(&tokens(&[&[1, 2]])).unwrap();
    let expected = hidden.matmul(&path.weights.tensor("embedding.tokens.weight").unwrap().transpose(0, 1));
    assert!(path.logits(&tokens(&[&[1, 2]])).unwrap().allclose(&expected, 1e-5, 1e-5, false));
}

#[test]
fn features_are_means_over_real_tokens() {
    let path = small_path(&small_model(), &small_levels());
    let together = path.prefix_features(&[&[1, 2, 3], &[4], &[5, 6]]).unwrap();
    let alone = path.prefix_features(&[&[5, 6]]).unwrap();
    assert_eq!(together.len(), 3 * 16);
    assert!(together[32..].iter().zip(&alone).all(|(a, b)| (a - b).abs() < 1e-5));
    let hidden = path.hidden(&tokens(&[&[5, 6]])).unwrap();
    let mean = hidden.mean_dim([1i64].as_slice(), false, Kind::Float);
    assert!((f64::from(alone[0]) - mean.double_value(&[0, 0])).abs() < 1e-5);
}

#[test]
fn invalid_tokens_are_errors() {
    let path = small_path(&small_model(), &small_levels());
    assert!(matches!(path.logits(&tokens(&[&[300]])), Err(ForwardError::Token { token: 300, .. })));
    assert!(matches!(path.logits(&tokens(&[&[-1]])), Err(ForwardError::Token { token: -1, .. })));
    assert!(matches!(path.logits(&tokens(&[&[1; 25]])), Err(ForwardError::TooLong { found: 25, .. })));
    assert!(matches!(path.logits(&Tensor::from_slice(&[1i64])), Err(ForwardError::Shape { .. })));
    assert!(matches!(path.prefix_features(&[&[1], &[]]), Err(ForwardError::Empty(1))));
    assert!(path.prefix_features(&[]).unwrap().is_empty());
}
