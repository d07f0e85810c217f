//! Chats: by the model's own template, or by a plain one, and what of OpenAI's API is refused.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{NAME, Served, collected};
use crate::run::{Peer, World, pathswarm};

fn hello() -> Value {
    json!([{ "role": "system", "content": "ba ke" }, { "role": "user", "content": "li mo nu" }])
}

#[test]
fn a_run_without_a_template_gets_a_plain_one() {
    let world = World::new();
    let served = Served::start(&collected(&world), &[]);
    let fields =
        json!({ "messages": hello(), "temperature": 0, "max_tokens": 12, "logprobs": true, "top_logprobs": 2 });
    let whole = served.chat(fields.clone()).ok();
    let choice = &whole["choices"][0];
    let prompt = "System: ba ke\n\nUser: li mo nu\n\nAssistant:";
    let plain = json!({ "prompt": prompt, "temperature": 0, "max_tokens": 12, "stop": "\nUser:" });
    assert_eq!(choice["message"]["content"], served.complete(plain).ok()["choices"][0]["text"]);
    assert_eq!((&whole["object"], &choice["message"]["role"]), (&json!("chat.completion"), &json!("assistant")));
    let content = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!((content.len(), content[0]["top_logprobs"].as_array().unwrap().len()), (12, 2));
    assert_eq!(content[0]["top_logprobs"][0]["logprob"], content[0]["logprob"], "greedy");
    let bytes: Vec<u8> = content
        .iter()
        .flat_map(|token| token["bytes"].as_array().unwrap())
        .map(|byte| byte.as_u64().unwrap() as u8)
        .collect();
    assert_eq!(String::from_utf8_lossy(&bytes), choice["message"]["content"].as_str().unwrap());

    let mut streamed = fields;
    (streamed["stream"], streamed["n"]) = (json!(true), json!(2));
    let events = served.chat(streamed).events();
    for index in 0..2 {
        let own = || events.iter().map(|event| &event["choices"][0]).filter(|choice| choice["index"] == index);
        assert_eq!(own().next().unwrap()["delta"], json!({ "role": "assistant", "content": "" }));
        let text: String = own().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
        assert_eq!(text, choice["message"]["content"].as_str().unwrap());
        assert_eq!(own().next_back().unwrap()["finish_reason"], choice["finish_reason"]);
    }
}

#[test]
fn what_a_path_cannot_do_is_refused_in_words_and_what_changes_nothing_is_not() {
    let world = World::new();
    let served = Served::start(&collected(&world), &[]);
    let refused = |field: &str, value: Value, said: &str| {
        let mut fields = json!({ "messages": hello(), "max_tokens": 2 });
        fields[field] = value;
        let response = served.chat(fields);
        let error = response.error();
        assert_eq!((response.status, error["type"].as_str()), (400, Some("invalid_request_error")), "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(said) && message.contains(field), "{message}");
        assert!(error["param"].as_str().unwrap().starts_with(field), "{error}");
    };
    refused("tools", json!([{ "type": "function" }]), "calls no tools");
    refused("response_format", json!({ "type": "json_object" }), "not supported");
    refused("temperature", json!(3), "from 0 to 2");
    refused("temperature", json!("hot"), "not a string");
    refused("n", json!(0), "from 1 to");
    refused("n", json!(1.5), "whole number");
    refused("max_tokens", json!(5_000), "from 1 to 4096");
    refused("top_logprobs", json!(2), "\"logprobs\": true");
    refused("path", json!(4), "from 0 to 3");
    refused("without_paths", json!([0, 1, 2, 3]), "at least one");
    refused("stop", json!([1]), "a list of strings");
    refused("logit_bias", json!({ "999999": 1 }), "token ids from 0 to");
    refused("messages", json!([]), "role");
    refused("messages", json!([{ "role": "tool", "content": "" }]), "calls no tools");
    refused("messages", json!([{ "role": "user", "content": [{ "type": "image_url" }] }]), "reads text alone");
    refused("tmeperature", json!(1), "Unrecognized request argument supplied");
    let ignored = json!({
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "li" }, { "type": "text", "text": "mo" }] }],
        "max_tokens": 2, "user": "me", "metadata": { "a": "b" }, "store": false, "tools": null, "tool_choice": "none",
        "response_format": { "type": "text" }, "service_tier": "auto", "parallel_tool_calls": true,
    });
    served.chat(ignored).ok();
    let no_model = served.post("/v1/chat/completions", &json!({ "messages": hello() }));
    assert_eq!((no_model.status, &no_model.error()["param"]), (400, &json!("model")));
    let other = served.chat(json!({ "model": "gpt-4o", "messages": hello() }));
    assert_eq!((other.status, &other.error()["code"]), (404, &json!("model_not_found")));
    let suffix = served.complete(json!({ "prompt": "ba", "suffix": "ke" }));
    assert!(suffix.error()["message"].as_str().unwrap().contains("from left to right"));
    for (head, status) in
        [("GET /v1/completions", 405), ("POST /v1/models", 405), ("GET /v2", 404), ("GET /v1/models/x", 404)]
    {
        let response = served.ask(head, &[], b"");
        assert_eq!(response.status, status, "{head}");
        response.error();
    }
}

/// The folder of a small Llama with a chat template and special tokens.
fn chat_model(folder: &Path) {
    let reference = crate::client::project().join("tests/reference/hugging_face/llama");
    fs::create_dir_all(folder).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    let mut config: Value = serde_json::from_slice(&fs::read(reference.join("config.json")).unwrap()).unwrap();
    config["max_position_embeddings"] = 64.into();
    write("config.json", config.to_string().as_bytes());
    write("model.safetensors", &fs::read(reference.join("model.safetensors")).unwrap());
    let tokenizer = pathswarm::text::Tokenizer::train(&["path swarm module".to_owned()], 257).unwrap();
    let mut file: Value = serde_json::from_slice(tokenizer.json()).unwrap();
    let added = file["added_tokens"].as_array_mut().unwrap();
    let mut special = added[0].clone();
    (special["id"], special["content"]) = (json!(257), json!("<|turn|>"));
    added.push(special);
    write("tokenizer.json", file.to_string().as_bytes());
    let end = tokenizer.end_name();
    let template = "{% for message in messages %}<|turn|>{{ message['role'] }}: {{ message.content.strip() }}{{ eos_token }}\
        {% endfor %}{% if add_generation_prompt %}<|turn|>assistant:{% endif %}";
    let settings = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "chat_template": template });
    write("tokenizer_config.json", settings.to_string().as_bytes());
}

#[test]
fn a_pretrained_model_is_talked_to_by_its_own_template() {
    let world = World::new();
    let (model, imported, folder) = (world.path("llama"), world.name("imported"), world.name("collected"));
    chat_model(&model);
    let output = pathswarm(&["import", model.to_str().unwrap(), &imported]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = format!("{imported}/run.toml");
    let sets = ["training.phases=1", "training.inner_steps=1", "training.warmup_steps=1", "name=llama"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let create = ["create", &run, "--ancestor", &imported, "--corpus", &world.corpus];
    let mut creator = Peer::start(&world.path("creator"), &[&create, &sets[..]].concat());
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    creator.wait_for("result");
    assert!(pathswarm(&["collect", &folder, "--from", &address]).status.success());

    let served = Served::start(&folder, &[]);
    let fields = |prompt: Value| json!({ "model": "llama", "prompt": prompt, "temperature": 0, "max_tokens": 8 });
    let chat = json!({ "model": "llama", "messages": [{ "role": "user", "content": " path <|turn|> " }], "temperature": 0,
        "max_tokens": 8 });
    let answer = served.chat(chat).ok();
    let json = fs::read(format!("{folder}/tokenizer.json")).unwrap();
    let tokenizer = pathswarm::text::Tokenizer::from_json(&json).unwrap();
    let said = format!("<|turn|>user: path <|turn|>{}<|turn|>assistant:", tokenizer.end_name());
    let ids = tokenizer.encode_with_specials(&said).unwrap();
    assert_eq!(ids.iter().filter(|id| **id == 257).count(), 3);
    assert_eq!(answer["usage"]["prompt_tokens"], ids.len());
    let plain = served.post("/v1/completions", &fields(json!(ids))).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], plain["choices"][0]["text"]);
    assert_eq!(served.get("/v1/models").ok()["data"][0]["x_pathswarm"]["chat_template"], "model");
    assert_ne!(NAME, "llama");
}
