//! The server's description of itself: what it names is answered, and what is answered is named.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::client::{Client, NAME, Served, collected};
use crate::run::World;

/// Values of each kind, of which a field takes some.
fn values() -> Vec<Value> {
    vec![json!(true), json!(1), json!(0.5), json!("stop"), json!([]), json!([0]), json!({}), json!([["a"]])]
}

/// The schema of a request's fields.
fn fields(description: &Value, schema: &str) -> serde_json::Map<String, Value> {
    let schema = &description["components"]["schemas"][schema];
    assert_eq!(schema["additionalProperties"], false, "{schema}");
    schema["properties"].as_object().unwrap().clone()
}

/// Whether a request with this field and value is refused because the field is not known.
fn is_unknown(served: &Client, url: &str, (name, value): (&str, &Value)) -> bool {
    let mut body = match url {
        "/v1/completions" => json!({ "prompt": "ba", "max_tokens": 1 }),
        "/v1/embeddings" => json!({ "input": "ba" }),
        _ => json!({ "messages": [{ "role": "user", "content": "ba" }], "max_tokens": 1 }),
    };
    body["model"] = json!(NAME);
    body[name] = value.clone();
    let response = served.post(url, &body);
    response.status == 400 && response.error()["code"] == "unknown_parameter"
}

#[test]
fn the_description_names_every_field_that_is_read_and_every_url_that_answers() {
    let world = World::new();
    let folder = collected(&world);
    let served = Served::start(&folder, &[]);
    let description = served.get("/openapi.json").ok();
    assert_eq!(description["openapi"], "3.1.0");
    for (url, methods) in description["paths"].as_object().unwrap() {
        let url = url.replace("{model}", NAME);
        for method in methods.as_object().unwrap().keys() {
            let response = served.ask(&format!("{} {url}", method.to_uppercase()), &[], b"{}");
            let expected = if method == "get" { 200 } else { 400 };
            assert_eq!(response.status, expected, "{method} {url}: {response:?}");
        }
    }
    let urls = [
        ("/v1/completions", "CompletionRequest"),
        ("/v1/chat/completions", "ChatRequest"),
        ("/v1/embeddings", "EmbeddingRequest"),
    ];
    for (url, schema) in urls {
        let named = fields(&description, schema);
        for name in named.keys() {
            for value in values() {
                assert!(!is_unknown(&served, url, (name, &value)), "{url} does not know {name}");
            }
        }
        // What the others have, and nobody.
        let all: BTreeSet<String> =
            urls.iter().flat_map(|(_, schema)| fields(&description, schema)).map(|field| field.0).collect();
        for name in all.iter().map(String::as_str).chain(["unheard_of"]).filter(|name| !named.contains_key(*name)) {
            assert!(
                is_unknown(&served, url, (name, &json!(1))) || is_refused(&served, url, name),
                "{url} reads {name}"
            );
        }
    }
    // References lead somewhere.
    let text = description.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(description.pointer(reference).is_some_and(Value::is_object), "{reference}");
    }
    let guarded = Served::start(&folder, &["--api-keys", &world.write("keys", "sk-one\n")]);
    assert_eq!(guarded.get("/openapi.json").status, 200);
    assert_eq!(guarded.get("/metrics").status, 401);
    let key = [("authorization", "Bearer sk-one")];
    assert_eq!(guarded.ask("GET /metrics", &key, b"").status, 200);
}

/// Whether a field is refused in words, whatever it says.
fn is_refused(served: &Client, url: &str, name: &str) -> bool {
    let refused = |value: &Value| {
        let body = json!({ "model": NAME, "prompt": "ba", "input": "ba", name: value });
        served.post(url, &body).status == 400
    };
    values().iter().all(refused)
}

#[test]
fn what_is_counted_is_told_to_prometheus() {
    let world = World::new();
    let served = Served::start(&collected(&world), &[]);
    served.complete(json!({ "prompt": "ba ke", "max_tokens": 3, "temperature": 0, "logit_bias": {} })).ok();
    let response = served.get("/metrics");
    assert!(response.status == 200 && response.head.contains("text/plain; version=0.0.4"), "{}", response.head);
    let text = String::from_utf8(response.body).unwrap();
    assert!(text.contains("\n# TYPE pathswarm_serve_tokens_generated_total counter\n"), "{text}");
    let open = served.ask("GET /metrics", &[("accept", "application/openmetrics-text")], b"");
    assert!(open.head.contains("openmetrics") && open.body.ends_with(b"# EOF\n"), "{}", open.head);
}
