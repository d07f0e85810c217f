//! A path and the same model in `transformers` compute the same logits, whichever of the two was there first. The models
//! and logits of `transformers`, and the script that made them, are in tests/reference.
#![cfg(feature = "learning")]

use std::fs;
use std::path::{Path, PathBuf};

use pathswarm::config::{Activation, Architecture, LevelConfig, ModelConfig, Positions, Precision};
use pathswarm::grid::Sharing;
use pathswarm::model::hugging_face::{levels, settings, weights};
use pathswarm::model::{PathModel, initial_levels};
use pathswarm::seed::Seed;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tch::{Device, Tensor};

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

#[test]
fn a_model_of_transformers_computes_the_same_here() {
    for name in ["gpt2", "gpt_neox"] {
        let model = settings::read(&fs::read(reference(name).join("config.json")).unwrap()).unwrap();
        let file = fs::read(reference(name).join("model.safetensors")).unwrap();
        let values = levels(&model, &cut(&model), &[file]).unwrap();
        let known = known(name);
        let ours = logits(&model, &values, &known.tokens).concat().concat();
        let theirs = known.logits.concat().concat();
        let largest = theirs.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
        let differs = ours.iter().zip(&theirs).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(ours.len() == theirs.len() && differs < 1e-4 && largest > 1.0, "{name}: {differs} of {largest}");
    }
}

#[test]
fn what_is_exported_is_what_transformers_writes_itself() {
    for name in ["gpt2", "gpt_neox"] {
        let config = fs::read(reference(name).join("config.json")).unwrap();
        let file = fs::read(reference(name).join("model.safetensors")).unwrap();
        let model = settings::read(&config).unwrap();
        let values = levels(&model, &cut(&model), std::slice::from_ref(&file)).unwrap();
        let exported = weights(&model, &cut(&model), &values).unwrap();
        let tensors = |file: &[u8]| {
            let file = safetensors::SafeTensors::deserialize(file).unwrap();
            let mut all: Vec<_> = file
                .tensors()
                .into_iter()
                .map(|(name, view)| (name, view.shape().to_vec(), view.data().to_vec()))
                .collect();
            all.sort();
            all
        };
        assert!(tensors(&exported) == tensors(&file), "{name}");
        let written: Value = serde_json::from_slice(&settings::write(&model, 0).unwrap()).unwrap();
        let theirs: Value = serde_json::from_slice(&config).unwrap();
        let meant =
            ["model_type", "architectures", "vocab_size", "tie_word_embeddings", "n_inner", "activation_function"];
        let more = ["hidden_act", "intermediate_size", "use_parallel_residual", "attention_bias", "rope_parameters"];
        for key in meant.iter().chain(&more) {
            assert_eq!(written[key], theirs[key], "{name}: {key}");
        }
    }
}

/// Leaves what it exports for tests/reference/hugging_face.py --check.
#[test]
fn a_path_without_biases_and_one_with_a_tied_head_are_exported_too() {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hugging_face");
    for (name, positions, tied_head) in [
        ("rotary", Positions::Rotary, false),
        ("rotary-tied", Positions::Rotary, true),
        ("learned", Positions::Learned, false),
        ("learned-tied", Positions::Learned, true),
    ] {
        let (biases, activation) = (tied_head, if tied_head { Activation::GeluTanh } else { Activation::Gelu });
        let (feed_forward, head_width) = (Some(20), None);
        let (blocks, width, heads, vocabulary, context) = (2, 8, 2, 258, 16);
        let model = ModelConfig {
            blocks,
            width,
            heads,
            head_width,
            feed_forward,
            vocabulary,
            context,
            positions,
            tied_head,
            biases,
            activation,
            initial_deviation: None,
            directional: None,
            dna: None,
            images: None,
            architecture: Architecture::Transformer,
        };
        let values = initial_levels(&model, &cut(&model), Seed::root(5));
        let (file, config) = (weights(&model, &cut(&model), &values).unwrap(), settings::write(&model, 0).unwrap());
        let back = settings::read(&config).unwrap();
        let tokens = known("gpt2").tokens;
        let ours = logits(&model, &values, &tokens);
        let again = levels(&back, &cut(&back), std::slice::from_ref(&file)).unwrap();
        assert_eq!(logits(&back, &again, &tokens), ours, "{name}");

        let folder = home.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.json"), config).unwrap();
        fs::write(folder.join("model.safetensors"), file).unwrap();
        fs::write(folder.join("logits.json"), serde_json::to_vec(&Known { tokens, logits: ours }).unwrap()).unwrap();
    }
}
