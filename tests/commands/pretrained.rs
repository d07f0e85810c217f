//! A model of `transformers` is imported, trained in a swarm, collected and exported, with all that belongs to it.
#![cfg(all(feature = "learning", feature = "network"))]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use safetensors::tensor::{SafeTensors, TensorView, serialize};
use serde_json::{Value, json};

use crate::run::{Peer, World, mistake, pathswarm};

/// The folder of a small Llama for contexts of 64 tokens, in two shards, with the files that a hub has.
fn model_in(folder: &Path) {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/hugging_face/llama");
    fs::create_dir_all(folder).unwrap();
    let mut config: Value = serde_json::from_slice(&fs::read(reference.join("config.json")).unwrap()).unwrap();
    config["max_position_embeddings"] = 64.into();
    config["eos_token_id"] = json!([2, 7]);
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    write("config.json", config.to_string().as_bytes());
    write("generation_config.json", br#"{"temperature": 0.6}"#);
    write("chat_template.jinja", b"{% for message in messages %}{{ message.content }}{% endfor %}");
    let tokenizer = pathswarm::text::Tokenizer::train(&["path swarm module".to_owned()], 258).unwrap();
    write("tokenizer.json", tokenizer.json());
    let settings = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": tokenizer.end_name() });
    write("tokenizer_config.json", settings.to_string().as_bytes());

    let whole = fs::read(reference.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&whole).unwrap();
    let (first, second): (Vec<_>, Vec<_>) = tensors.iter().partition(|(name, _)| name.contains("layers.0"));
    let mut places = BTreeMap::new();
    for (shard, tensors) in [("model-00001-of-00002.safetensors", first), ("model-00002-of-00002.safetensors", second)]
    {
        places.extend(tensors.iter().map(|(name, _)| ((*name).to_owned(), shard)));
        let views: Vec<(&str, TensorView<'_>)> = tensors;
        write(shard, &serialize(views, None).unwrap());
    }
    write("model.safetensors.index.json", json!({ "weight_map": places }).to_string().as_bytes());
    // Of a model that was here before.
    write("model-00003-of-00003.safetensors", &whole);
}

fn result(arguments: &[&str]) -> Value {
    let output = pathswarm(&[arguments, &["--format", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    let lines = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(lines.lines().last().unwrap()).unwrap()
}

fn read_json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn a_model_comes_back_with_its_weights_and_all_that_belongs_to_it() {
    let world = World::new();
    let (model, imported, exported) = (world.path("llama"), world.name("imported"), world.name("exported"));
    model_in(&model);
    let told = result(&["import", model.to_str().unwrap(), &imported]);
    assert_eq!((&told["layout"], &told["unread"]), (&json!("Llama"), &json!(["model-00003-of-00003.safetensors"])));
    let run: toml::Table = fs::read_to_string(told["run"].as_str().unwrap()).unwrap().parse().unwrap();
    let (training, outer) = (&run["training"], &run["outer"]);
    assert_eq!(training["learning_rate"].as_float(), Some(2e-5), "a pretrained model is trained gently");
    assert_eq!((training["ancestor_steps"].as_integer(), training["warmup_steps"].as_integer()), (Some(0), Some(20)));
    assert_eq!((outer["learning_rate"].as_float(), outer["momentum"].as_float()), (Some(0.5), Some(0.5)));
    assert_eq!(outer["rescale"].as_str(), Some("none"));

    let short = ["training.phases=1", "training.inner_steps=1", "training.warmup_steps=1"];
    let sets: Vec<&str> = short.iter().flat_map(|set| ["--set", set]).collect();
    let create = ["create", told["run"].as_str().unwrap(), "--ancestor", &imported, "--corpus", &world.corpus];
    let mut creator = Peer::start(&world.path("creator"), &[&create, &sets[..]].concat());
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    assert_eq!(creator.wait_for("result")["event"], "result");
    let collected = world.name("collected");
    result(&["collect", &collected, "--from", &address]);
    let told = result(&["export", &collected, &exported, "--ancestor"]);
    assert_eq!(told["layout"], "Llama");

    let exported = Path::new(&exported);
    for name in ["generation_config.json", "tokenizer_config.json", "chat_template.jinja"] {
        assert_eq!(fs::read(exported.join(name)).unwrap(), fs::read(model.join(name)).unwrap(), "{name}");
    }
    let (before, after) = (read_json(&model.join("config.json")), read_json(&exported.join("config.json")));
    for key in ["model_type", "eos_token_id", "bos_token_id", "max_position_embeddings", "rms_norm_eps", "head_dim"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    let (ours, theirs) = (
        fs::read(exported.join("model.safetensors")).unwrap(),
        fs::read(model.join("model-00003-of-00003.safetensors")).unwrap(),
    );
    let (ours, theirs) = (SafeTensors::deserialize(&ours).unwrap(), SafeTensors::deserialize(&theirs).unwrap());
    assert_eq!(ours.len(), theirs.len());
    for (name, view) in theirs.iter() {
        assert!(ours.tensor(name).unwrap().data() == view.data(), "{name}");
    }
    let path = world.name("path");
    result(&["export", &collected, &path, "--path", "0"]);
}

/// A tensor of a safetensors file, and its shape.
fn tensor(file: &[u8], name: &str) -> (Vec<f32>, Vec<usize>) {
    let file = SafeTensors::deserialize(file).unwrap();
    let view = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let values = view.data().as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    (values, view.shape().to_vec())
}

#[test]
fn adapters_are_trained_beside_a_model_that_stays_as_it_was_and_come_back_merged_or_alone() {
    let world = World::new();
    let (model, imported) = (world.path("llama"), world.name("imported"));
    model_in(&model);
    let told = result(&["import", model.to_str().unwrap(), &imported, "--adapter", "3"]);
    let run = told["run"].as_str().unwrap();
    let alone = mistake(&["create", run, "--corpus", &world.corpus, "--dir", &world.name("alone")]);
    assert!(alone.contains("[model.adapter]") && alone.contains("--ancestor"), "{alone}");

    let short =
        ["phases=2", "inner_steps=3", "warmup_steps=1", "learning_rate=1e-2"].map(|set| format!("training.{set}"));
    let sets: Vec<&str> = short.iter().flat_map(|set| ["--set", set]).collect();
    let create = ["create", run, "--ancestor", &imported, "--corpus", &world.corpus];
    let mut creator = Peer::start(&world.path("creator"), &[&create, &sets[..]].concat());
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    assert_eq!(creator.wait_for("result")["event"], "result");
    let (collected, path, adapter) = (world.name("collected"), world.name("path"), world.name("adapter"));
    result(&["collect", &collected, "--from", &address]);
    assert_eq!(result(&["export", &collected, &path, "--path", "0"])["layout"], "Llama");
    result(&["export", &collected, &adapter, "--path", "0", "--adapter"]);

    let read = |folder: &str, name: &str| fs::read(Path::new(folder).join(name)).unwrap();
    let before = fs::read(model.join("model-00003-of-00003.safetensors")).unwrap();
    let (after, narrow) = (read(&path, "model.safetensors"), read(&adapter, "adapter_model.safetensors"));
    let settings = read_json(&Path::new(&adapter).join("adapter_config.json"));
    let (rank, scale) = (3, settings["lora_alpha"].as_f64().unwrap() as f32 / 3.0);
    for (name, changes) in [
        ("model.embed_tokens", false),
        ("model.norm", false),
        ("model.layers.0.self_attn.q_proj", true),
        ("model.layers.1.self_attn.v_proj", true),
        ("model.layers.1.mlp.up_proj", true),
    ] {
        let of = |file: &[u8]| tensor(file, &format!("{name}.weight"));
        let ((old, shape), (new, _)) = (of(&before), of(&after));
        assert_eq!(old != new, changes, "{name}");
        if changes {
            let of = |kind: &str| tensor(&narrow, &format!("base_model.model.{name}.{kind}.weight")).0;
            let (a, b) = (of("lora_A"), of("lora_B"));
            for (at, (old, new)) in old.iter().zip(&new).enumerate() {
                let (row, column) = (at / shape[1], at % shape[1]);
                let product: f32 = (0..rank).map(|k| b[row * rank + k] * a[k * shape[1] + column]).sum();
                assert!((old + scale * product - new).abs() < 1e-6, "{name} {row} {column}");
            }
        }
    }
    let whole = mistake(&["export", &collected, &world.name("whole"), "--whole"]);
    assert!(whole.contains("adapters") && whole.contains("--path"), "{whole}");
    let without = ["create", "configs/smollm2-2x2.toml", "--ancestor", &collected, "--corpus", &world.corpus];
    let lost = mistake(&[&without[..], &["--dir", &world.name("lost")]].concat());
    assert!(lost.contains("adapter.0.") && lost.contains("export"), "{lost}");
}

#[test]
fn a_folder_of_which_something_is_missing_or_too_much_is_refused_by_name() {
    let world = World::new();
    let (model, new) = (world.path("llama"), world.name("new"));
    model_in(&model);
    let import = || mistake(&["import", model.to_str().unwrap(), &new, "--grid", "1"]);
    let config = fs::read_to_string(model.join("config.json")).unwrap();
    let with = |from: &str, to: &str| {
        assert!(config.contains(from), "{config}");
        fs::write(model.join("config.json"), config.replace(from, to)).unwrap();
        import()
    };
    let layer = with("\"num_hidden_layers\":2", "\"num_hidden_layers\":1");
    assert!(layer.contains("model.layers.1.") && layer.contains("1 blocks"), "{layer}");
    assert!(with("\"num_hidden_layers\":2", "\"num_hidden_layers\":3").contains("model.layers.2."));
    let head = with("\"tie_word_embeddings\":false", "\"tie_word_embeddings\":true");
    assert!(head.contains("lm_head.weight") && head.contains("tie_word_embeddings"), "{head}");
    let window = with("\"model_type\":\"llama\"", "\"model_type\":\"mistral\",\"sliding_window\":32");
    assert!(window.contains("config.json: sliding_window = 32") && window.contains("--context"), "{window}");
    fs::write(model.join("config.json"), &config).unwrap();
    fs::remove_file(model.join("model-00002-of-00002.safetensors")).unwrap();
    assert!(import().contains("model-00002-of-00002.safetensors: No such file"));
    assert!(!Path::new(&new).exists());
}
