//! A model without a run: a folder that `export` or `transformers` has written.

use std::path::Path;

use serde_json::{Value, json};

use crate::client::{NAME, Served, collected, project};
use crate::run::{World, mistake, pathswarm};

/// A folder of transformers with a tokenizer for its 258 tokens: a tied Llama with grouped queries.
fn llama(world: &World) -> String {
    let reference = project().join("tests/reference/hugging_face/llama-tied");
    let tokenizer = pathswarm::text::Tokenizer::train(&["path swarm module".to_owned()], 258).unwrap();
    for name in ["config.json", "model.safetensors"] {
        world.write(&format!("tiny-llama/{name}"), std::fs::read(reference.join(name)).unwrap());
    }
    world.write("tiny-llama/chat_template.jinja", "{% for message in messages %}<{{ message.content }}>{% endfor %}");
    world.write("tiny-llama/tokenizer.json", tokenizer.json());
    world.write("tiny-llama/tokenizer_config.json", json!({ "eos_token": tokenizer.end_name() }).to_string());
    world.name("tiny-llama")
}

/// The logarithms of the probabilities of tokens after the first, by the logits that `transformers` computed.
fn known() -> (Vec<u32>, Vec<f64>) {
    let file = project().join("tests/reference/hugging_face/llama-tied/logits.json");
    let known: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let tokens: Vec<u32> = serde_json::from_value(known["tokens"][0].clone()).unwrap();
    let logits: Vec<Vec<f64>> = serde_json::from_value(known["logits"][0].clone()).unwrap();
    let logprob = |(logits, token): (&Vec<f64>, &u32)| {
        logits[*token as usize] - logits.iter().map(|logit| logit.exp()).sum::<f64>().ln()
    };
    let all = logits.iter().zip(&tokens[1..]).map(logprob).collect();
    (tokens, all)
}

#[test]
fn a_folder_of_transformers_is_served_with_what_transformers_computes() {
    let world = World::new();
    let served = Served::start(&llama(&world), &[]);
    let models = served.get("/v1/models").ok();
    let (first, more) = models["data"].as_array().unwrap().split_first().unwrap();
    assert_eq!((&first["id"], more.len()), (&json!("tiny-llama"), 0));
    let own = &first["x_pathswarm"];
    assert_eq!((&own["kind"], &own["context"], &own["chat_template"]), (&json!("model"), &json!(16), &json!("model")));

    let (tokens, expected) = known();
    let echo = json!({ "model": "tiny-llama", "prompt": tokens, "max_tokens": 0, "echo": true, "logprobs": 0 });
    let found = served.post("/v1/completions", &echo).ok();
    let found = found["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().clone();
    assert_eq!(found.len(), expected.len() + 1);
    for (found, expected) in found[1..].iter().zip(&expected) {
        assert!((found.as_f64().unwrap() - expected).abs() < 1e-4, "{found} {expected}");
    }

    // Past its context of 16 tokens.
    let chat = json!({ "model": "tiny-llama", "messages": [{ "role": "user", "content": "path" }], "max_tokens": 30,
        "logit_bias": { "2": -100 } });
    let answer = served.post("/v1/chat/completions", &chat).ok();
    assert_eq!(answer["usage"]["prompt_tokens"], 6, "a template of one's own: <path>");
    let refused = served.post("/v1/embeddings", &json!({ "model": "tiny-llama", "input": "path" }));
    assert_eq!((refused.status, &refused.error()["code"]), (400, &json!("unsupported_parameter")));
    let run = json!({ "model": "tiny-llama/ancestor", "prompt": "path" });
    assert_eq!(served.post("/v1/completions", &run).status, 404);

    let short = Served::start(&world.name("tiny-llama"), &["--context", "8"]);
    assert_eq!(short.get("/v1/models").ok()["data"][0]["x_pathswarm"]["context"], 8);
}

#[test]
fn an_exported_path_says_what_the_path_says_in_its_run() {
    let world = World::new();
    let (folder, exported) = (collected(&world), world.name("exported"));
    assert!(pathswarm(&["export", &folder, &exported, "--path", "2"]).status.success());
    let (run, path) = (Served::start(&folder, &[]), Served::start(&exported, &[]));
    let ask = |served: &Served, model: &str| {
        let fields = json!({ "model": model, "prompt": "ba ke li", "max_tokens": 60, "temperature": 0.8, "seed": 5 });
        served.post("/v1/completions", &fields).ok()["choices"][0]["text"].clone()
    };
    assert_eq!(ask(&path, "exported"), ask(&run, &format!("{NAME}/path-2")));
}

#[test]
fn what_cannot_be_served_is_told_by_its_files() {
    let world = World::new();
    let model = llama(&world);
    let told = |arguments: &[&str], said: &str| {
        let message = mistake(&[&["serve"][..], arguments].concat());
        assert!(message.contains(said), "{message}");
    };
    told(&[&model, "--context", "17"], "the model takes 16 tokens");
    // The names of what import writes; no run can be created from a model of so few tokens.
    world.write("imported/run.toml", "");
    world.write("imported/ancestor.safetensors", "");
    told(&[&world.name("imported")], "is what import made of a model");
    std::fs::write(Path::new(&model).join("model.safetensors"), "none").unwrap();
    told(&[&model], "not a safetensors file");
    std::fs::remove_file(Path::new(&model).join("tokenizer.json")).unwrap();
    told(&[&model], "tokenizer.json");
    world.write("tiny-llama/config.json", r#"{"model_type": "t5"}"#);
    told(&[&model], "t5");
    told(&[&world.corpus, "--context", "8"], "--context");
}
