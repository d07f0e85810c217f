//! A path and the same model in `transformers` compute the same logits, whichever of the two was there first. The models
//! and logits of `transformers`, and the script that made them, are in tests/reference.
#![cfg(feature = "learning")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pathswarm::config::{
    Activation, Biases, LevelConfig, ModelConfig, NormKind, NormPlacement, Positions, Precision, QkNorm, RotaryConfig,
    RotaryScaling,
};
use pathswarm::grid::Sharing;
use pathswarm::model::hugging_face::{WeightFiles, levels, settings, weights};
use pathswarm::model::{PathModel, initial_levels};
use pathswarm::seed::Seed;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tch::{Device, Tensor};

/// A folder of tests/reference/hugging_face for each architecture and each option.
const MODELS: [&str; 16] = [
    "gpt2",
    "gpt_neox",
    "pythia",
    "llama",
    "llama-tied",
    "llama-biases",
    "llama-head",
    "llama-linear",
    "llama-dynamic",
    "llama-llama3",
    "llama-yarn",
    "llama-yarn-scales",
    "mistral",
    "qwen2",
    "qwen3",
    "olmo2",
];

#[derive(Deserialize, Serialize)]
struct Known {
    tokens: Vec<Vec<i64>>,
    logits: Vec<Vec<Vec<f32>>>,
}

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/hugging_face").join(name)
}

fn known(name: &str) -> Known {
    serde_json::from_slice(&fs::read(reference(name).join("logits.json")).unwrap()).unwrap()
}

/// The blocks in two levels.
fn cut(model: &ModelConfig) -> Vec<LevelConfig> {
    let parts: Vec<String> = model.parts().iter().map(ToString::to_string).collect();
    let (below, above) = parts.split_at(2);
    [below, above].map(|parts| LevelConfig { parts: parts.to_vec(), sharing: Sharing::Shared }).to_vec()
}

fn logits(model: &ModelConfig, values: &[Vec<f32>], tokens: &[Vec<i64>]) -> Vec<Vec<Vec<f32>>> {
    let mut path = PathModel::new(model, &cut(model), Device::Cpu, Precision::F32).unwrap();
    values.iter().enumerate().for_each(|(level, values)| path.set_level(level, values).unwrap());
    let of = |tokens: &Vec<i64>| {
        let logits = path.logits(&Tensor::from_slice(tokens).unsqueeze(0)).unwrap();
        Vec::<Vec<f32>>::try_from(logits.squeeze_dim(0)).unwrap()
    };
    tokens.iter().map(of).collect()
}

/// The model of a folder, and its levels.
fn imported(name: &str) -> (ModelConfig, Vec<Vec<f32>>) {
    let (model, _) = settings::read(&fs::read(reference(name).join("config.json")).unwrap(), None).unwrap();
    let files = WeightFiles::in_folder(&reference(name)).unwrap();
    let values = levels(&model, &cut(&model), &files).unwrap();
    (model, values)
}

fn most_apart(ours: &[Vec<Vec<f32>>], theirs: &[Vec<Vec<f32>>]) -> f32 {
    let (ours, theirs) = (ours.concat().concat(), theirs.concat().concat());
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(&theirs).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn a_model_of_transformers_computes_the_same_here() {
    for name in MODELS {
        let (model, values) = imported(name);
        let known = known(name);
        let differs = most_apart(&logits(&model, &values, &known.tokens), &known.logits);
        let largest =
            known.logits.concat().concat().into_iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
        println!("{name}: {differs:.1e}");
        assert!(differs < 1e-4 && largest > 1.0, "{name}: {differs} of {largest}");
    }
}

/// Every option changes what is computed: a model that ignored one would agree with the plain one.
#[test]
fn no_option_is_without_effect() {
    let plain = imported("llama").0;
    for name in ["llama-tied", "llama-biases", "llama-linear", "llama-llama3", "llama-yarn", "llama-yarn-scales"] {
        let (model, values) = imported(name);
        let with_none = ModelConfig {
            rotary: plain.rotary.clone(),
            activation: plain.activation,
            norm_epsilon: 1e-5,
            ..model.clone()
        };
        let known = known(name);
        let differs = most_apart(&logits(&with_none, &values, &known.tokens), &known.logits);
        assert!(differs > 1e-3, "{name}: {differs}");
    }
}

/// The tensors of a folder's only file, widened to f32.
fn tensors(file: &[u8]) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let file = safetensors::SafeTensors::deserialize(file).unwrap();
    let wide = |view: safetensors::tensor::TensorView<'_>| -> Vec<f32> {
        let halves = || view.data().as_chunks::<2>().0.iter();
        match view.dtype() {
            safetensors::Dtype::F16 => halves().map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect(),
            safetensors::Dtype::BF16 => halves().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect(),
            _ => view.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        }
    };
    file.tensors().into_iter().map(|(name, view)| (name, (view.shape().to_vec(), wide(view)))).collect()
}

#[test]
fn what_is_exported_is_what_transformers_writes_itself() {
    for name in MODELS {
        let config = fs::read(reference(name).join("config.json")).unwrap();
        let (model, values) = imported(name);
        let exported = weights(&model, &cut(&model), &values).unwrap();
        let own = fs::read(reference(name).join("model.safetensors")).unwrap();
        assert!(tensors(&exported) == tensors(&own), "{name}");
        let theirs: Map<String, Value> = serde_json::from_slice(&config).unwrap();
        let written: Map<String, Value> =
            serde_json::from_slice(&settings::write(&model, 0, Some(&theirs)).unwrap()).unwrap();
        // Whatever is computed with; what is inferred of YaRN is written out.
        let other = ["dtype", "transformers_version", "initializer_range", "rope_parameters", "n_inner"];
        for (key, value) in theirs.iter().filter(|(key, _)| !other.contains(&key.as_str())) {
            if let Some(ours) = written.get(key) {
                assert_eq!(ours, value, "{name}: {key}");
            }
        }
        for key in ["model_type", "architectures", "tie_word_embeddings", "eos_token_id", "vocab_size"] {
            assert!(written.contains_key(key), "{name}: {key}");
        }
        let (again, _) = settings::read(&serde_json::to_vec(&written).unwrap(), None).unwrap();
        assert_eq!(again, model, "{name}");
    }
}

/// The models that are exported for tests/reference/hugging_face.py --check: each layout, and options that
/// `transformers` has under another name.
pub fn to_export() -> Vec<(&'static str, ModelConfig)> {
    let small = ModelConfig { feed_forward: Some(20), ..ModelConfig::of([2, 8, 2], 258, 16) };
    let tied = ModelConfig { tied_head: true, biases: Biases::All, activation: Activation::GeluTanh, ..small.clone() };
    let learned = |model: &ModelConfig| ModelConfig { positions: Positions::Learned, ..model.clone() };
    let rotary = |share, scaling| Some(RotaryConfig { base: 50_000.0, share, scaling });
    let pythia = ModelConfig { parallel_residual: true, rotary: rotary(0.5, None), ..tied.clone() };
    let llama = ModelConfig {
        norm: NormKind::Rms,
        norm_epsilon: 1e-6,
        activation: Activation::Silu,
        gated: true,
        heads: 4,
        kv_heads: Some(2),
        head_width: Some(6),
        ..small.clone()
    };
    let scaled = |scaling| ModelConfig { rotary: rotary(1.0, Some(scaling)), ..llama.clone() };
    let yarn = RotaryScaling::Yarn {
        factor: 4.0,
        original_context: 16,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: 1.2,
        truncate: true,
    };
    let llama3 = RotaryScaling::Llama3 {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_context: 32,
    };
    vec![
        ("learned", learned(&small)),
        ("learned-tied", learned(&tied)),
        ("rotary", small.clone()),
        ("rotary-tied", tied),
        ("pythia", pythia),
        ("llama", llama.clone()),
        ("llama-tied", ModelConfig { tied_head: true, ..llama.clone() }),
        ("llama-biases", ModelConfig { biases: Biases::All, ..llama.clone() }),
        ("llama-attention-biases", ModelConfig { biases: Biases::Attention, ..llama.clone() }),
        ("llama-linear", scaled(RotaryScaling::Linear { factor: 2.0 })),
        ("llama-dynamic", scaled(RotaryScaling::Dynamic { factor: 2.0, original_context: 32 })),
        ("llama-llama3", scaled(llama3)),
        ("llama-yarn", scaled(yarn)),
        ("mistral", ModelConfig { heads: 3, kv_heads: None, ..llama.clone() }),
        ("qwen2", ModelConfig { biases: Biases::Qkv, ..llama.clone() }),
        ("qwen3", ModelConfig { qk_norm: Some(QkNorm::Head), ..llama.clone() }),
        ("qwen3-biases", ModelConfig { qk_norm: Some(QkNorm::Head), biases: Biases::Qkv, ..llama.clone() }),
        ("olmo2", ModelConfig { qk_norm: Some(QkNorm::Whole), norm_placement: NormPlacement::After, ..llama }),
    ]
}

/// Leaves what it exports for tests/reference/hugging_face.py --check.
#[test]
fn what_was_trained_here_is_exported_in_each_layout_and_comes_back() {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hugging_face");
    for (name, model) in to_export() {
        // Biases and norms that are not as they begin.
        let initial = initial_levels(&model, &cut(&model), Seed::root(5));
        let moved = |(at, value): (usize, &f32)| value + 0.1 * (at as f32).sin();
        let values: Vec<Vec<f32>> = initial.iter().map(|level| level.iter().enumerate().map(moved).collect()).collect();
        let file = weights(&model, &cut(&model), &values).unwrap();
        let config = settings::write(&model, 0, None).unwrap();
        let (back, _) = settings::read(&config, None).unwrap();
        let tokens = known("gpt2").tokens;
        let ours = logits(&model, &values, &tokens);
        let again = levels(&back, &cut(&back), &WeightFiles::single(file.clone())).unwrap();
        assert_eq!(logits(&back, &again, &tokens), ours, "{name}");

        let folder = home.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.json"), config).unwrap();
        fs::write(folder.join("model.safetensors"), file).unwrap();
        fs::write(folder.join("logits.json"), serde_json::to_vec(&Known { tokens, logits: ours }).unwrap()).unwrap();
    }
}
