//! A whole run in a folder for `transformers` is routed as here, and its paths compute the same logits and texts. What loads
//! the folder is tests/agreement/whole_run.py.
#![cfg(all(feature = "learning", feature = "network"))]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use pathswarm::config::{DirectionalConfig, LevelConfig, ModelConfig, Pooling, Precision, RouterReads};
use pathswarm::grid::{Grid, Sharing};
use pathswarm::model::hugging_face::whole_run::{CODE, Weights, WholeRun};
use pathswarm::model::{PathModel, initial_levels};
use pathswarm::names::{BlobHash, ModuleId, PathId};
use pathswarm::peer::Collected;
use pathswarm::routing::{Logistic, Router};
use pathswarm::seed::Seed;
use serde_json::{Value, json};
use tch::{Device, Tensor};

use crate::hugging_face::to_export;
use crate::reference::transformers;
use crate::run::{RUN, World, pathswarm};

/// Compares folders with the files beside them of what is expected. Says so where what it needs is not installed.
fn compare(pairs: &[(String, String)]) {
    let arguments: Vec<String> = pairs.iter().flat_map(|(folder, expected)| [folder, expected]).cloned().collect();
    transformers("tests/agreement/whole_run.py", None, &arguments);
}

fn logits(network: &PathModel, tokens: &[Vec<u32>]) -> Vec<Vec<Vec<f32>>> {
    let of = |tokens: &Vec<u32>| {
        let tokens: Vec<i64> = tokens.iter().map(|token| i64::from(*token)).collect();
        let logits = network.logits(&Tensor::from_slice(&tokens).unsqueeze(0)).unwrap();
        Vec::<Vec<f32>>::try_from(logits.squeeze_dim(0)).unwrap()
    };
    tokens.iter().map(of).collect()
}

fn network(model: &ModelConfig, levels: &[LevelConfig], values: &[Vec<f32>]) -> PathModel {
    let mut network = PathModel::new(model, levels, Device::Cpu, Precision::F32).unwrap();
    values.iter().enumerate().for_each(|(level, values)| network.set_level(level, values).unwrap());
    network
}

/// Each layout that one path can be exported in, and directional attention with each way of pooling.
fn networks() -> Vec<(String, ModelConfig)> {
    let mut all: Vec<(String, ModelConfig)> =
        to_export().into_iter().map(|(name, model)| (name.to_owned(), model)).collect();
    for pooling in [Pooling::Prefix, Pooling::Sequence, Pooling::Token] {
        let reads = if pooling == Pooling::Sequence { RouterReads::Stream } else { RouterReads::Normed };
        let directional = Some(DirectionalConfig { pooling, reads, router_layers: 2, ..DirectionalConfig::of(2) });
        all.push((
            format!("directional-{pooling:?}"),
            ModelConfig { directional, ..ModelConfig::of([2, 8, 2], 258, 16) },
        ));
    }
    all
}

/// A number below `below` that looks random.
fn drawn(number: u32, below: u32) -> u32 {
    (number.wrapping_mul(2_654_435_761) >> 7) % below
}

const PREFIX: usize = 6;

/// Parameters that are not as they begin, so that each bias and norm matters.
fn values(model: &ModelConfig, levels: &[LevelConfig], seed: u64) -> Vec<Vec<f32>> {
    let moved = |(at, value): (usize, &f32)| value + 0.1 * (at as f32 + seed as f32).sin();
    let initial = initial_levels(model, levels, Seed::root(seed));
    initial.iter().map(|level| level.iter().enumerate().map(moved).collect()).collect()
}

/// A run of four paths with this network, and a router of a kind; writes its folder and what is expected of it.
fn written(home: &Path, name: &str, kind: usize, model: &ModelConfig) -> (String, String) {
    let parts: Vec<String> = model.parts().iter().map(ToString::to_string).collect();
    let (below, above) = parts.split_at(2);
    let levels =
        [below, above].map(|parts| LevelConfig { parts: parts.to_vec(), sharing: Sharing::Experts(2) }).to_vec();
    let grid = Grid::new(levels.iter().map(|level| level.sharing).collect()).unwrap();
    let of_module =
        |module: ModuleId| values(model, &levels, 1 + u64::from(module.expert))[usize::from(module.level)].clone();

    let ancestor = values(model, &levels, 3);
    let texts: Vec<Vec<u32>> = (0..24u32)
        .map(|text| (0..3 + drawn(text, 13)).map(|token| drawn(97 * text + token, model.vocabulary as u32)).collect())
        .collect();
    let prefixes: Vec<&[u32]> = texts.iter().map(|text| &text[..text.len().min(PREFIX)]).collect();
    let features = network(model, &levels, &ancestor).prefix_features(&prefixes).unwrap();
    let router = match kind {
        0 | 1 => {
            let paths = (4, kind == 1);
            Router::fit((&features, model.width), paths, PREFIX, BlobHash([1; 32]), 50, Seed::root(1)).unwrap()
        }
        _ => {
            let best: Vec<u32> = (0..24).map(|text| drawn(text, 4)).collect();
            let logistic = Logistic::fit(&features, model.width, &best, 4, 1e-3).unwrap();
            Router::discriminative(logistic, PREFIX, BlobHash([1; 32]))
        }
    };
    let routes: Vec<u32> = router.route_all(&features, &prefixes).iter().map(|path| path.0).collect();
    assert!(routes.iter().collect::<BTreeSet<_>>().len() > 2, "{name}: {routes:?}");

    // Path 3 has parameters of its own in level 1.
    let own = BTreeMap::from([(PathId(3), vec![1])]);
    let own_values = values(model, &levels, 9)[1].clone();
    let encoded = router.encode();
    let run = WholeRun {
        model,
        levels: &levels,
        grid: &grid,
        prefix_tokens: PREFIX,
        router: &encoded,
        own_levels: &own,
        end_of_document: 0,
    };
    let folder = home.join(name);
    fs::create_dir_all(&folder).unwrap();
    let mut weights = Weights::default();
    let mut files: Vec<(String, Vec<u8>)> =
        grid.modules().into_iter().map(|module| weights.module(&run, module, &of_module(module)).unwrap()).collect();
    files.push(weights.own(&run, PathId(3), &[(1, &own_values)]).unwrap());
    files.push(weights.ancestor(&run, &ancestor).unwrap());
    files.push(weights.router(&run).unwrap());
    files.push(weights.index().unwrap());
    files.push(("config.json".to_owned(), run.config(None).unwrap()));
    files.extend(CODE.map(|(name, code)| (name.to_owned(), code.as_bytes().to_vec())));
    files.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).unwrap());

    let tokens = [texts[0].clone(), texts[1].clone()].map(|text| [text, vec![7; 16]].concat()[..16].to_vec());
    let of_path = |path: PathId| {
        let mut values: Vec<Vec<f32>> = grid.modules_of(path).into_iter().map(of_module).collect();
        if path == PathId(3) {
            values[1].clone_from(&own_values);
        }
        logits(&network(model, &levels, &values), &tokens)
    };
    let all: Vec<_> = grid.paths().map(of_path).collect();
    let expected = json!({ "texts": texts, "routes": routes, "tokens": tokens, "logits": all, "prompts": [] });
    let file = home.join(format!("{name}.json"));
    fs::write(&file, expected.to_string()).unwrap();
    (folder.to_str().unwrap().to_owned(), file.to_str().unwrap().to_owned())
}

#[test]
fn every_network_and_router_that_is_exported_whole_computes_the_same_in_transformers() {
    let home = tempfile::tempdir().unwrap();
    let networks = networks();
    let written =
        |(number, (name, model)): (usize, &(String, ModelConfig))| written(home.path(), name, number % 3, model);
    compare(&networks.iter().enumerate().map(written).collect::<Vec<_>>());
}

/// What the program says after a prompt when it always takes the likeliest token.
fn continued(run: &str, prompt: &str) -> Value {
    let asked = ["generate", "--local", run, "--prompt", prompt, "--temperature", "0", "--tokens", "30"];
    let output = pathswarm(&[&asked[..], &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    json!({ "prompt": prompt, "prompt_tokens": told["prompt_tokens"], "path": told["path"], "text": told["text"],
        "tokens": 30 })
}

#[test]
fn a_trained_run_is_routed_and_continues_in_transformers_as_here() {
    let shorter = RUN
        .replace("test_share = 0.05", "test_share = 0.2")
        .replace("inner_steps = 400", "inner_steps = 30")
        .replace("phases = 12", "phases = 2")
        .replace("warmup_steps = 10", "warmup_steps = 1");
    let world = World::of(&shorter, 4);
    let (run, folder) = (format!("{}/model", world.simulated()), world.name("whole"));
    let output = pathswarm(&["export", &run, &folder, "--whole", "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["layout"], &told["origin"]["paths"]), (&json!("pathswarm"), &json!(4)));

    let collected = Collected::open(Path::new(&run)).unwrap();
    let (config, prefix) = (&collected.manifest.config, collected.manifest.config.routing.prefix_tokens);
    let (mut texts, mut routes, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    for path in collected.grid.paths() {
        let test = collected.test_text(path).unwrap().unwrap();
        for document in test.documents() {
            texts.push(test.prefix(document.start, prefix).to_vec());
            routes.push(path.0);
            tokens.push(test.sequence(document.start)[..config.model.context].to_vec());
        }
    }
    assert!(texts.len() >= 40 && routes.iter().collect::<BTreeSet<_>>().len() > 1, "{routes:?}");
    tokens.truncate(4);
    let of_path = |path| logits(&network(&config.model, &config.levels, &collected.levels_of(path).unwrap()), &tokens);
    let logits: Vec<_> = collected.grid.paths().map(of_path).collect();
    // Shorter than what is routed by, and longer.
    let lengths = [3, 8, 20, 33];
    let starts = texts.iter().zip(&routes).step_by(texts.len() / 6);
    let beginnings = starts.zip(lengths.iter().cycle()).map(|((text, _), length)| {
        let text: Vec<u32> = text.iter().cycle().take(*length).copied().collect();
        collected.tokenizer.decode(&text)
    });
    let prompts: Vec<Value> = beginnings.map(|prompt| continued(&run, &prompt)).collect();
    let expected = json!({ "texts": texts, "routes": routes, "tokens": tokens, "logits": logits, "prompts": prompts });
    compare(&[(folder, world.write("expected.json", expected.to_string()))]);
}
