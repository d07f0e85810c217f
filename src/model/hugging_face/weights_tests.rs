//! Tests of the conversion of weights.

use super::*;
use crate::config::{Activation, Biases, NormKind, NormPlacement, Positions, QkNorm, RotaryConfig};
use crate::model::hugging_face::settings;
use crate::model::samples::{small_levels, small_model};

fn numbered(model: &ModelConfig) -> Vec<Vec<f32>> {
    let mut number = 0.0;
    let mut next = || {
        number += 1.0;
        number
    };
    let count = |level| level_tensors(model, level).iter().map(TensorSpec::count).sum::<usize>();
    small_levels().iter().map(|level| (0..count(level)).map(|_| next()).collect()).collect()
}

fn llama() -> ModelConfig {
    ModelConfig {
        gated: true,
        norm: NormKind::Rms,
        activation: Activation::Silu,
        heads: 4,
        kv_heads: Some(2),
        head_width: Some(6),
        feed_forward: Some(20),
        rotary: Some(RotaryConfig { base: 5000.0, ..RotaryConfig::default() }),
        ..small_model()
    }
}

/// One model of each layout.
fn all() -> Vec<ModelConfig> {
    let learned = ModelConfig { positions: Positions::Learned, activation: Activation::GeluTanh, ..small_model() };
    vec![
        learned.clone(),
        ModelConfig { biases: Biases::All, ..learned },
        small_model(),
        ModelConfig { biases: Biases::All, parallel_residual: true, ..small_model() },
        llama(),
        ModelConfig { biases: Biases::All, ..llama() },
        ModelConfig { biases: Biases::Qkv, ..llama() },
        ModelConfig { qk_norm: Some(QkNorm::Head), ..llama() },
        ModelConfig { qk_norm: Some(QkNorm::Head), biases: Biases::Qkv, ..llama() },
        ModelConfig { qk_norm: Some(QkNorm::Whole), norm_placement: NormPlacement::After, ..llama() },
    ]
}

#[test]
fn a_path_comes_back_as_it_went_in_every_layout() {
    for model in all() {
        let values = numbered(&model);
        let file = WeightFiles::single(weights(&model, &small_levels(), &values).unwrap());
        assert_eq!(levels(&model, &small_levels(), &file).unwrap(), values, "{model:?}");
        let (again, layout) = settings::read(&settings::write(&model, 0, None).unwrap(), None).unwrap();
        assert_eq!((again, layout), (model.clone(), Layout::of(&model).unwrap()));
    }
}

fn of_bf16(name: &str, shape: Vec<usize>) -> Vec<u8> {
    let count = shape.iter().product();
    let ones: Vec<u8> = (0..count).flat_map(|_| half::bf16::ONE.to_le_bytes()).collect();
    serialize([(name, TensorView::new(Dtype::BF16, shape, &ones).unwrap())], None).unwrap()
}

fn files(files: Vec<Vec<u8>>) -> WeightFiles {
    let named = files.into_iter().enumerate().map(|(number, bytes)| (format!("{number}.safetensors"), bytes));
    WeightFiles { files: named.collect(), unread: Vec::new() }
}

/// The file of a model without one of its tensors.
fn without(file: &[u8], name: &str) -> Vec<u8> {
    let tensors = SafeTensors::deserialize(file).unwrap();
    serialize(tensors.iter().filter(|(own, _)| *own != name), None).unwrap()
}

#[test]
fn halves_are_read_and_what_does_not_fit_is_refused_by_name() {
    let model = ModelConfig { positions: Positions::Learned, ..small_model() };
    let file = weights(&model, &small_levels(), &numbered(&model)).unwrap();
    let wider = ModelConfig { feed_forward: Some(12), ..model.clone() };
    let unfit = levels(&wider, &small_levels(), &WeightFiles::single(file.clone())).unwrap_err().to_string();
    assert!(unfit.contains("model.safetensors: tensor transformer.h.0.mlp.c_fc.weight"), "{unfit}");
    assert!(unfit.contains("[16, 12]"), "{unfit}");
    let none = levels(&model, &small_levels(), &files(Vec::new())).unwrap_err().to_string();
    assert!(none.contains("no file has tensor transformer.wte.weight"), "{none}");
    let short = weights(&model, &small_levels(), &[vec![0.0], vec![]]).unwrap_err().to_string();
    assert!(short.contains("level 0 has 1 values"), "{short}");

    // OpenAI's own file has names without the prefix of the model.
    let halves = of_bf16("wte.weight", vec![model.vocabulary, model.width]);
    let rest = without(&file, "transformer.wte.weight");
    let read = levels(&model, &small_levels(), &files(vec![halves, rest])).unwrap();
    let count = model.vocabulary * model.width;
    assert_eq!(read[0][..count], vec![1.0; count]);
}

#[test]
fn what_the_model_does_not_read_is_refused_by_name() {
    let model = llama();
    let file = weights(&model, &small_levels(), &numbered(&model)).unwrap();
    let refused = |more: Vec<u8>| {
        levels(&model, &small_levels(), &files(vec![file.clone(), more])).map(|_| ()).map_err(|error| error.to_string())
    };
    let layer = refused(of_bf16("model.layers.2.input_layernorm.weight", vec![16])).unwrap_err();
    assert!(layer.contains("1.safetensors: tensor model.layers.2.input_layernorm.weight"), "{layer}");
    assert!(layer.contains("2 blocks"), "{layer}");
    assert!(refused(of_bf16("model.layers.0.self_attn.q_proj.bias", vec![24])).is_err());
    assert_eq!(refused(of_bf16("model.layers.0.self_attn.rotary_emb.inv_freq", vec![3])), Ok(()));
}

#[test]
fn a_tied_head_may_be_missing_or_alike_but_not_differ() {
    let tied = ModelConfig { tied_head: true, ..llama() };
    let mut parts = small_levels();
    parts[1].parts.pop();
    let count = |level| level_tensors(&tied, level).iter().map(TensorSpec::count).sum::<usize>();
    let values: Vec<Vec<f32>> = parts.iter().map(|level| vec![1.0; count(level)]).collect();
    let file = weights(&tied, &parts, &values).unwrap();
    let shape = vec![tied.vocabulary, tied.width];
    let head = of_bf16("lm_head.weight", shape);
    assert_eq!(levels(&tied, &parts, &WeightFiles::single(file.clone())).unwrap(), values);
    assert_eq!(levels(&tied, &parts, &files(vec![file.clone(), head.clone()])).unwrap(), values);
    let without = without(&file, "model.embed_tokens.weight");
    assert_eq!(levels(&tied, &parts, &files(vec![without, head.clone()])).unwrap(), values);
    let other: Vec<Vec<f32>> = values.iter().map(|level| level.iter().map(|value| value * 2.0).collect()).collect();
    let other = weights(&tied, &parts, &other).unwrap();
    let differs = levels(&tied, &parts, &files(vec![other, head])).unwrap_err().to_string();
    assert!(differs.contains("lm_head.weight differs") && differs.contains("tie_word_embeddings"), "{differs}");
    let untied = levels(&llama(), &small_levels(), &WeightFiles::single(file)).unwrap_err().to_string();
    assert!(untied.contains("lm_head.weight") && untied.contains("tie_word_embeddings = true"), "{untied}");
}
