//! Tests of what is written of a whole run.

use safetensors::tensor::SafeTensors;

use super::*;
use crate::config::{Activation, NormKind, RotaryConfig};
use crate::grid::Sharing;
use crate::model::samples::{dna_model, small_model};

/// Two levels with two experts each, and a shared one between them.
fn levels() -> Vec<LevelConfig> {
    let level =
        |parts: &[&str], sharing| LevelConfig { parts: parts.iter().map(|part| (*part).to_owned()).collect(), sharing };
    vec![
        level(&["embedding", "block.0"], Sharing::Experts(2)),
        level(&["block.1", "final-norm"], Sharing::Shared),
        level(&["head"], Sharing::Experts(2)),
    ]
}

fn llama() -> ModelConfig {
    let rotary = Some(RotaryConfig { base: 100.0, ..RotaryConfig::default() });
    ModelConfig { norm: NormKind::Rms, gated: true, activation: Activation::Silu, rotary, ..small_model() }
}

/// Something with the model, levels and router of these tests.
fn with_run<T>(model: &ModelConfig, own: &BTreeMap<PathId, Vec<usize>>, function: impl Fn(&WholeRun<'_>) -> T) -> T {
    let levels = levels();
    let grid = Grid::new(levels.iter().map(|level| level.sharing).collect()).unwrap();
    function(&WholeRun {
        model,
        levels: &levels,
        grid: &grid,
        prefix_tokens: 8,
        router: b"router",
        own_levels: own,
        end_of_document: 7,
    })
}

fn count(run: &WholeRun<'_>, level: usize) -> usize {
    level_tensors(run.model, &run.levels[level]).iter().map(TensorSpec::count).sum()
}

/// All files of tensors, module (l, e) being filled with the number l · 10 + e.
fn written(run: &WholeRun<'_>) -> Vec<(String, Vec<u8>)> {
    let mut weights = Weights::default();
    let mut files = Vec::new();
    for module in run.grid.modules() {
        let value = f32::from(module.level) * 10.0 + module.expert as f32;
        let values = vec![value; count(run, module.level.into())];
        files.push(weights.module(run, module, &values).unwrap());
    }
    for (path, levels) in run.own_levels {
        let values: Vec<(usize, Vec<f32>)> =
            levels.iter().map(|level| (*level, vec![-1.0; count(run, *level)])).collect();
        let values: Vec<(usize, &[f32])> = values.iter().map(|(level, values)| (*level, &values[..])).collect();
        files.push(weights.own(run, *path, &values).unwrap());
    }
    let ancestor: Vec<Vec<f32>> = (0..run.levels.len()).map(|level| vec![0.5; count(run, level)]).collect();
    files.push(weights.ancestor(run, &ancestor).unwrap());
    files.push(weights.router(run).unwrap());
    files.push(weights.index().unwrap());
    files
}

#[test]
fn each_module_is_written_once_and_the_files_are_as_long_as_their_parameters() {
    with_run(&llama(), &BTreeMap::new(), |run| {
        let files = written(run);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let modules = ["module-0.0", "module-0.1", "module-1.0", "module-2.0", "module-2.1", "ancestor", "router"];
        assert_eq!(names[..7], modules.map(|name| format!("{name}.safetensors")));
        assert_eq!(names[7..], ["model.safetensors.index.json"]);
        let parameters = 2 * count(run, 0) + count(run, 1) + 2 * count(run, 2);
        let tensors = 4 * (parameters + (0..3).map(|level| count(run, level)).sum::<usize>()) + b"router".len();
        let index: Value = serde_json::from_slice(&files[7].1).unwrap();
        assert_eq!(index["metadata"]["total_size"], tensors);
        let on_disk: usize = files[..7].iter().map(|(_, bytes)| bytes.len()).sum();
        // Headers name about a dozen tensors in each file.
        assert!(on_disk > tensors && on_disk < tensors + 7 * 2048, "{on_disk} {tensors}");

        for (name, bytes) in &files[..7] {
            for (tensor, view) in SafeTensors::deserialize(bytes).unwrap().iter() {
                assert_eq!(&index["weight_map"][tensor], name);
                let first = || f32::from_le_bytes(view.data()[..4].try_into().unwrap());
                match tensor.split('.').collect::<Vec<_>>()[..] {
                    ["levels", level, expert, ..] => {
                        assert_eq!(first(), format!("{level}{expert}").parse::<f32>().unwrap(), "{tensor}");
                    }
                    ["ancestor", ..] => assert_eq!(first(), 0.5),
                    _ => assert_eq!((tensor, view.data()), ("router", &b"router"[..])),
                }
            }
        }
    });
}

#[test]
fn own_parameters_of_a_path_are_written_for_the_levels_that_differ() {
    let own = BTreeMap::from([(PathId(3), vec![0, 2])]);
    with_run(&llama(), &own, |run| {
        let files = written(run);
        let (_, bytes) = files.iter().find(|(name, _)| name == "path-3.safetensors").unwrap();
        let tensors = SafeTensors::deserialize(bytes).unwrap();
        assert!(tensors.names().iter().all(|name| name.starts_with("own.3.0.") || name.starts_with("own.3.2.")));
        assert_eq!(tensors.tensor("own.3.2.head.weight").unwrap().shape(), [300, 16]);
        let config: Value = serde_json::from_slice(&run.config(None).unwrap()).unwrap();
        assert_eq!(config["own_levels"], json!({ "3": [0, 2] }));
    });
}

#[test]
fn config_json_has_the_network_the_grid_and_the_shapes() {
    with_run(&llama(), &BTreeMap::new(), |run| {
        let origin: Map<String, Value> =
            serde_json::from_str(r#"{"eos_token_id": [2, 7], "hidden_size": 9, "tie_word_embeddings": true}"#).unwrap();
        let config: Value = serde_json::from_slice(&run.config(Some(&origin)).unwrap()).unwrap();
        let map = &config["auto_map"];
        assert_eq!(map["AutoModelForCausalLM"], "modeling_pathswarm.PathswarmForCausalLM");
        assert_eq!(map["AutoConfig"], "configuration_pathswarm.PathswarmConfig");
        let expected = json!({ "model_type": "pathswarm", "hidden_size": 16, "vocab_size": 300, "head_dim": 8,
            "max_position_embeddings": 24, "num_hidden_layers": 2, "num_key_value_heads": 2, "norm": "rms",
            "activation": "silu", "gated": true, "prefix_tokens": 8, "router_bytes": 6, "eos_token_id": [2, 7],
            "bos_token_id": 7, "tie_word_embeddings": false, "paths": [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]],
            "own_levels": {}, "directional": null });
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&config[key], value, "{key}");
        }
        // 100^(-2i/8) of four pairs.
        let frequencies: Vec<f64> = serde_json::from_value(config["rotary"]["frequencies"].clone()).unwrap();
        let expected = [1.0, 0.316_227_766_016_837_94, 0.1, 0.031_622_776_601_683_79];
        assert!(frequencies.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-15));
        let first = &config["levels"][0];
        assert_eq!((&first["experts"], &first["parts"]), (&json!(2), &json!(["embedding", "block.0"])));
        assert_eq!(first["tensors"]["embedding.tokens.weight"], json!([300, 16]));
        assert_eq!(first["tensors"]["block.0.feed-forward.in.weight"], json!([128, 16]));
        assert_eq!(config["levels"][1]["parts"], json!(["block.1", "final-norm"]));
    });
}

#[test]
fn what_the_code_does_not_compute_is_refused_and_a_wrong_length_is_told() {
    let refused = |model: &ModelConfig, needs_features| WholeRun::check(model, needs_features).unwrap_err().to_string();
    assert!(refused(&dna_model(), true).contains("architecture = \"dna\""));
    assert!(refused(&llama(), false).contains("routes at random"));
    assert!(WholeRun::check(&llama(), true).is_ok());
    with_run(&llama(), &BTreeMap::new(), |run| {
        let module = run.grid.modules()[0];
        let short = Weights::default().module(run, module, &[1.0]).unwrap_err().to_string();
        assert!(short.contains("level 0 has 1 values"), "{short}");
    });
}

#[test]
fn the_card_says_how_the_run_is_loaded_and_how_old_its_modules_are() {
    with_run(&llama(), &BTreeMap::new(), |run| {
        let card = card(run, "tales", "abc", &BTreeMap::from([("0.1".to_owned(), 12)]));
        assert!(card.starts_with("---\nlibrary_name: transformers\n"), "{card}");
        for said in ["# tales", "4 paths through 5 modules", "first 8 tokens", "trust_remote_code=True", "| 0.1 | 12 |"]
        {
            assert!(card.contains(said), "{said} in {card}");
        }
    });
}
