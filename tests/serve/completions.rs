//! Completions say what `generate` and `evaluate` say, however they are asked for.

use serde_json::{Value, json};

use crate::client::{NAME, Served, collected};
use crate::run::{World, pathswarm};

const PROMPT: &str = "ba ke li mo nu ra se ti vo zu pla gre";

/// The last line that a command says to programs.
fn told(arguments: &[&str]) -> Value {
    let output = pathswarm(&[arguments, &["--format", "json", "--set", "threads=1"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(lines.lines().last().unwrap()).unwrap()
}

fn text(response: &Value) -> &str {
    response["choices"][0]["text"].as_str().unwrap()
}

fn list(choice: &Value, name: &str) -> Vec<f64> {
    choice["logprobs"][name].as_array().unwrap().iter().map(|value| value.as_f64().unwrap_or(0.0)).collect()
}

/// The same text as `generate`, greedy and drawn, routed once and again and again, whole and in pieces.
fn as_generate(served: &Served, folder: &str) {
    let cases: [(Value, &[&str]); 4] = [
        (json!({ "temperature": 0 }), &["--temperature", "0"]),
        (json!({ "temperature": 0, "route_every": 8 }), &["--temperature", "0", "--route-every", "8"]),
        (json!({ "temperature": 0.9, "seed": 7 }), &["--temperature", "0.9", "--seed", "7", "--top-k", "0"]),
        (
            json!({ "temperature": 1.2, "seed": 8, "top_k": 20 }),
            &["--temperature", "1.2", "--seed", "8", "--top-k", "20"],
        ),
    ];
    for (mut fields, flags) in cases {
        let more = ["--tokens", "90", "--prompt", PROMPT];
        let expected = told(&[&["generate", "--local", folder][..], flags, &more].concat());
        (fields["prompt"], fields["max_tokens"]) = (json!(PROMPT), json!(90));
        let whole = served.complete(fields.clone()).ok();
        let choice = &whole["choices"][0];
        assert_eq!(choice["text"], expected["text"], "{fields}");
        assert_eq!(choice["x_pathswarm"]["path"], expected["path"]);
        assert_eq!(choice["x_pathswarm"]["paths"], expected["paths"]);
        assert_eq!(choice["x_pathswarm"]["modules"], expected["modules"]);
        assert_eq!(choice["finish_reason"], if expected["ended"] == true { "stop" } else { "length" });
        assert_eq!(whole["usage"]["prompt_tokens"], expected["prompt_tokens"]);
        assert_eq!(whole["usage"]["completion_tokens"], expected["tokens"]);

        (fields["stream"], fields["stream_options"]) = (json!(true), json!({ "include_usage": true }));
        let events = served.complete(fields).events();
        let pieces: Vec<&str> = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
        assert_eq!(pieces.concat(), text(&whole));
        assert!(pieces.len() > 20, "the text flows");
        let (last, before) = (events.last().unwrap(), &events[events.len() - 2]);
        assert_eq!((&last["usage"], &last["choices"]), (&whole["usage"], &json!([])));
        assert_eq!(before["choices"][0]["finish_reason"], choice["finish_reason"]);
        assert_eq!(before["choices"][0]["x_pathswarm"]["paths"], expected["paths"]);
    }
}

/// The log-probabilities of a document that is echoed are what `evaluate` makes of it.
fn as_evaluate(served: &Served, world: &World, folder: &str) {
    let corpus = std::fs::read_to_string(format!("{}/1.jsonl", world.corpus)).unwrap();
    let document: Value = serde_json::from_str(corpus.lines().next().unwrap()).unwrap();
    let file = world.write("one.jsonl", format!("{document}\n"));
    let expected = told(&["evaluate", "--local", folder, "--text", &file]);
    let tokens = expected["tokens"].as_u64().unwrap() as usize;
    let json = std::fs::read(format!("{folder}/tokenizer.json")).unwrap();
    let tokenizer = pathswarm::text::Tokenizer::from_json(&json).unwrap();
    let mut ids = tokenizer.encode(document["text"].as_str().unwrap()).unwrap();
    ids.push(tokenizer.end_of_document());
    assert!(ids.len() > 200, "longer than the context of 64: {}", ids.len());
    let fields = json!({ "prompt": ids, "max_tokens": 0, "echo": true, "logprobs": 2 });
    let whole = served.complete(fields).ok();
    let choice = &whole["choices"][0];
    let logprobs = list(choice, "token_logprobs");
    assert_eq!((logprobs.len(), &choice["logprobs"]["token_logprobs"][0]), (ids.len(), &Value::Null));
    let nats: f64 = -logprobs[ids.len() - tokens..].iter().sum::<f64>();
    let expected = expected["dipaco"]["perplexity"].as_f64().unwrap().ln() * tokens as f64;
    assert!((nats - expected).abs() < 1e-4 * expected, "{nats} {expected}");
    assert_eq!(choice["text"], document["text"]);
    let offsets = list(choice, "text_offset");
    let names: Vec<&str> =
        choice["logprobs"]["tokens"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names[..ids.len() - 1].concat(), document["text"].as_str().unwrap());
    assert_eq!(offsets[5] as usize, names[..5].concat().chars().count());
    let top = choice["logprobs"]["top_logprobs"][9].as_object().unwrap();
    assert!((2..=3).contains(&top.len()) && top.contains_key(names[9]), "{top:?}");
}

/// Choices, stop strings, the best of several, and what the router must not take.
fn choices(served: &Served) {
    let drawn = json!({ "prompt": [PROMPT, "se ti"], "n": 2, "seed": 3, "max_tokens": 12, "temperature": 1.5 });
    let two = served.complete(drawn.clone()).ok();
    let texts: Vec<&Value> = two["choices"].as_array().unwrap().iter().map(|choice| &choice["text"]).collect();
    assert_eq!((texts.len(), texts[0] == texts[1]), (4, false));
    assert_eq!(two["choices"], served.complete(drawn).ok()["choices"], "the same seed draws the same");

    let best = |best_of: usize| {
        let fields = json!({ "prompt": PROMPT, "best_of": best_of, "seed": 3, "max_tokens": 12, "logprobs": 0 });
        let logprobs = list(&served.complete(fields).ok()["choices"][0], "token_logprobs");
        logprobs.iter().sum::<f64>() / logprobs.len() as f64
    };
    // Texts that are read at once may be rounded otherwise.
    let each: Vec<f64> = (1..=4).map(best).collect();
    assert!(each.windows(2).all(|two| two[1] > two[0] - 1e-5) && each[3] > each[0] + 1e-2, "{each:?}");

    let greedy = |mut more: Value| {
        (more["prompt"], more["temperature"], more["max_tokens"]) = (json!(PROMPT), json!(0), json!(40));
        served.complete(more).ok()
    };
    let free = greedy(json!({}));
    let stop: String = text(&free).chars().skip(5).take(3).collect();
    let at = text(&free).find(&stop).unwrap();
    let stopped = greedy(json!({ "stop": ["never", stop] }));
    assert_eq!((text(&stopped), &stopped["choices"][0]["finish_reason"]), (&text(&free)[..at], &json!("stop")));
    let echoed = greedy(json!({ "echo": true }));
    assert_eq!(text(&echoed), format!("{PROMPT}{}", text(&free)));

    let own = &free["choices"][0]["x_pathswarm"];
    let (path, ranking) = (own["path"].as_u64().unwrap(), own["ranking"].as_array().unwrap());
    assert_eq!((ranking.len(), ranking[0].as_u64()), (4, Some(path)));
    let without = greedy(json!({ "without_paths": [path] }));
    assert_eq!(without["choices"][0]["x_pathswarm"]["path"], ranking[1]);
    let forced = greedy(json!({ "path": ranking[1] }));
    assert_eq!(text(&forced), text(&without));
    let named = greedy(json!({ "model": format!("{NAME}/path-{}", ranking[1]) }));
    assert_eq!(text(&named), text(&without));
    assert!(named["choices"][0]["x_pathswarm"]["why"].as_str().unwrap().contains("in model"));
    let ancestor = greedy(json!({ "model": format!("{NAME}/ancestor") }));
    assert_eq!(ancestor["choices"][0]["x_pathswarm"]["path"], Value::Null);
}

/// The token that ends a text is told like any other where log-probabilities are asked for, and is not in the text: a client
/// that asks for one token after its prompt takes the last log-probability for that token's.
fn ended(served: &Served, folder: &str) {
    let json = std::fs::read(format!("{folder}/tokenizer.json")).unwrap();
    let tokenizer = pathswarm::text::Tokenizer::from_json(&json).unwrap();
    let end = tokenizer.end_of_document();
    let fields = |more: Value| {
        let mut fields = json!({ "prompt": [[40, 50, 60], [70, 80]], "max_tokens": 1, "temperature": 0, "echo": true,
            "logprobs": 1, "logit_bias": { end.to_string(): 100 } });
        more.as_object().unwrap().iter().for_each(|(name, value)| fields[name] = value.clone());
        fields
    };
    let whole = served.complete(fields(json!({}))).ok();
    for (choice, count) in whole["choices"].as_array().unwrap().iter().zip([3, 2]) {
        let names = choice["logprobs"]["tokens"].as_array().unwrap();
        assert_eq!((names.len(), &names[count]), (count + 1, &json!(tokenizer.end_name())), "{choice}");
        let (logprobs, offsets) = (list(choice, "token_logprobs"), list(choice, "text_offset"));
        assert!(logprobs.len() == count + 1 && logprobs[count] < 0.0, "{choice}");
        assert_eq!(offsets[count] as usize, choice["text"].as_str().unwrap().chars().count());
        assert_eq!(choice["logprobs"]["top_logprobs"].as_array().unwrap().len(), count + 1);
        assert_eq!(choice["finish_reason"], "stop");
    }
    assert_eq!(whole["usage"]["completion_tokens"], 0);

    let events = served.complete(fields(json!({ "stream": true }))).events();
    for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
        let own = events.iter().map(|event| &event["choices"][0]).filter(|piece| piece["index"] == index);
        let told: Vec<Value> =
            own.filter_map(|piece| piece["logprobs"]["token_logprobs"].as_array()).flatten().cloned().collect();
        assert_eq!(json!(told), choice["logprobs"]["token_logprobs"]);
    }
    let plain = served.complete(fields(json!({ "logprobs": null }))).ok();
    assert_eq!(
        (&plain["choices"][0]["logprobs"], &plain["choices"][0]["text"]),
        (&Value::Null, &whole["choices"][0]["text"])
    );
}

/// A token that is banned does not come, and one that is wanted does.
fn biased(served: &Served) {
    let ask = |bias: Value| {
        let fields = json!({ "prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logprobs": 5, "logit_bias": bias });
        served.complete(fields).ok()["choices"][0].clone()
    };
    let wanted = ask(json!({ "65": 100 }));
    let names: Vec<&Value> = wanted["logprobs"]["tokens"].as_array().unwrap().iter().collect();
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    let penalized = served
        .complete(json!({ "prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logit_bias": { "65": 100 }, "presence_penalty": 2,
            "frequency_penalty": 2, "logprobs": 0 }))
        .ok();
    assert_eq!(penalized["choices"][0]["text"], wanted["text"], "a bias of 100 is more than two penalties of 2");
    // Log-probabilities are the model's own, whatever changes the draw.
    assert_eq!(list(&penalized["choices"][0], "token_logprobs")[0], list(&wanted, "token_logprobs")[0]);
}

#[test]
fn a_served_run_says_what_the_commands_say() {
    let world = World::new();
    let folder = collected(&world);
    let served = Served::start(&folder, &[]);
    let models = served.get("/v1/models").ok();
    let names: Vec<&str> =
        models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    let expected = ["", "/ancestor", "/path-0", "/path-1", "/path-2", "/path-3"].map(|name| format!("{NAME}{name}"));
    assert_eq!(names, expected);
    assert_eq!(served.get(&format!("/v1/models/{NAME}/path-3")).ok()["x_pathswarm"]["path"], 3);
    as_generate(&served, &folder);
    as_evaluate(&served, &world, &folder);
    choices(&served);
    ended(&served, &folder);
    biased(&served);
    let fields = json!({ "model": NAME, "input": [PROMPT, "se ti vo zu"] });
    let vectors = served.post("/v1/embeddings", &fields).ok();
    let vector = vectors["data"][1]["embedding"].as_array().unwrap();
    assert_eq!((vectors["data"].as_array().unwrap().len(), vector.len()), (2, 32));
    let (status, last) = served.stop();
    assert_eq!((status, &last["event"]), (Some(0), &json!("stopped")));
}
