//! What clients may send.

use serde_json::{Value, json};

use crate::serve::limits::{CHOICES, EMBEDDINGS, MESSAGES, STOP_BYTES, STOPS, ServeLimits, TOP_LOGPROBS};
use crate::serve::openapi::schema::{list, number, object, one_of, reference, whole};
use crate::serve::request::sampling::IGNORED;
use crate::serve::served_run::{ServedRun, Source};

type Field = (&'static str, Value);

/// `POST /v1/completions`
pub fn completion(run: &ServedRun, limits: &ServeLimits) -> Value {
    let mut fields = shared(run);
    let string = json!({ "type": "string", "const": "" });
    fields.extend([
        ("suffix", string),
        ("echo", json!({ "type": "boolean", "description": "Begin the answer with the prompt" })),
        ("max_tokens", whole(0, limits.tokens)),
    ]);
    let false_too = one_of(&[whole(0, TOP_LOGPROBS), json!({ "const": false })], "Likeliest tokens beside each");
    if !run.of_swarm() {
        fields.extend([("logprobs", false_too), ("best_of", whole(1, CHOICES))]);
    }
    object(&[("model", reference("ModelName")), ("prompt", texts(run, CHOICES))], fields)
}

/// `POST /v1/chat/completions`
pub fn chat(run: &ServedRun, limits: &ServeLimits) -> Value {
    let mut fields = shared(run);
    fields.extend([
        ("max_tokens", whole(1, limits.tokens)),
        ("max_completion_tokens", whole(1, limits.tokens)),
        ("tools", json!({ "type": "array", "maxItems": 0 })),
        ("tool_choice", json!({ "enum": ["none", "auto"] })),
        ("modalities", json!({ "const": ["text"] })),
        ("response_format", json!({ "const": { "type": "text" } })),
    ]);
    if !run.of_swarm() {
        fields.extend([("logprobs", json!({ "type": "boolean" })), ("top_logprobs", whole(0, TOP_LOGPROBS))]);
    }
    let mut messages = list(&message());
    messages["maxItems"] = json!(MESSAGES);
    object(&[("model", reference("ModelName")), ("messages", messages)], fields)
}

/// `POST /v1/embeddings`
pub fn embedding(run: &ServedRun) -> Value {
    let fields = vec![
        ("encoding_format", json!({ "enum": ["float", "base64"] })),
        ("dimensions", json!({ "const": run.config.model.width })),
        ("user", json!({})),
    ];
    object(&[("model", reference("ModelName")), ("input", texts(run, EMBEDDINGS))], fields)
}

/// The fields that completions and chats have in common.
fn shared(run: &ServedRun) -> Vec<Field> {
    let vocabulary = run.config.model.vocabulary;
    let options =
        object(&[], vec![("include_usage", json!({ "type": "boolean" })), ("include_obfuscation", json!({}))]);
    let stop = json!({ "type": "string", "maxLength": STOP_BYTES });
    let mut fields = vec![
        ("stream", json!({ "type": "boolean" })),
        ("stream_options", options),
        ("seed", json!({ "type": "integer", "minimum": i64::MIN, "maximum": u64::MAX })),
        ("temperature", number(0.0, 2.0)),
        ("top_k", whole(0, vocabulary)),
        ("n", whole(1, CHOICES)),
        (
            "stop",
            one_of(&[stop.clone(), json!({ "type": "array", "items": stop, "maxItems": STOPS })], "What ends a text"),
        ),
    ];
    if !run.of_swarm() {
        fields.extend([
            ("top_p", number(0.0, 1.0)),
            ("min_p", number(0.0, 1.0)),
            ("presence_penalty", number(-2.0, 2.0)),
            ("frequency_penalty", number(-2.0, 2.0)),
            (
                "logit_bias",
                json!({
                    "type": "object", "description": format!("By token id, from 0 to {}", vocabulary - 1),
                    "propertyNames": { "pattern": "^[0-9]+$" }, "additionalProperties": number(-100.0, 100.0),
                }),
            ),
        ]);
    }
    fields.push(("path", whole(0, run.grid.path_count() as usize - 1)));
    if run.source == Source::Collected {
        let path = whole(0, run.grid.path_count() as usize - 1);
        fields.push(("without_paths", json!({ "type": "array", "items": path })));
    }
    if run.source != Source::Model && !run.config.model.looks_ahead() {
        fields.push(("route_every", whole(1, run.config.model.context)));
    }
    fields.extend(IGNORED.map(|name| (name, json!({ "description": "Ignored" }))));
    fields
}

/// Texts, each as a string or as token ids.
fn texts(run: &ServedRun, most: usize) -> Value {
    let text = json!({ "type": "string", "minLength": 1 });
    let tokens = list(&whole(0, run.config.model.vocabulary - 1));
    let (mut several, mut lists) = (list(&text), list(&tokens));
    (several["maxItems"], lists["maxItems"]) = (json!(most), json!(most));
    one_of(&[text, several, tokens, lists], "A text, texts, token ids, or lists of token ids")
}

fn message() -> Value {
    let part = json!({
        "type": "object", "properties": { "type": { "const": "text" }, "text": { "type": "string" } },
        "required": ["type", "text"],
    });
    let content = one_of(&[json!({ "type": "string" }), list(&part)], "The text, or parts of it");
    json!({
        "type": "object",
        "properties": {
            "role": { "enum": ["system", "developer", "user", "assistant"] }, "content": content,
            "name": { "type": "string" },
        },
        "required": ["role", "content"],
    })
}
