//! What the server answers.

use serde_json::{Value, json};

use crate::serve::openapi::schema::reference;

/// The schemas of all answers, by name.
pub fn schemas() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let text = json!({ "type": "string" });
    json!({
        "Error": fields(&[("error", fields(&[
            ("message", text.clone()), ("type", text.clone()), ("param", or_null("string")), ("code", or_null("string")),
        ]))]),
        "Health": fields(&[("status", json!({ "const": "ok" })), ("model", text.clone()), ("requests", count.clone())]),
        "Model": fields(&[
            ("id", text.clone()), ("object", json!({ "const": "model" })), ("created", count.clone()),
            ("owned_by", text.clone()), ("x_pathswarm", fields(&[
                ("kind", json!({ "enum": ["routed", "ancestor", "path", "model"] })), ("path", or_null("integer")),
                ("modules", json!({ "type": ["array", "null"], "items": { "type": "string" } })), ("paths", count.clone()),
                ("context", count.clone()), ("chat_template", json!({ "enum": ["default", "model"] })),
            ])),
        ]),
        "Models": fields(&[("object", json!({ "const": "list" })), ("data", list(reference("Model")))]),
        "Usage": fields(&[("prompt_tokens", count.clone()), ("completion_tokens", count.clone()), ("total_tokens", count.clone())]),
        "Completion": answer("text_completion", &[("text", text.clone()), ("logprobs", or_null("object"))]),
        "ChatCompletion": answer("chat.completion", &[
            ("message", fields(&[("role", json!({ "const": "assistant" })), ("content", text.clone())])),
            ("logprobs", or_null("object")),
        ]),
        "Choice": extension(),
        "Embeddings": fields(&[
            ("object", json!({ "const": "list" })), ("model", text), ("data", list(fields(&[
                ("object", json!({ "const": "embedding" })), ("index", count.clone()),
                ("embedding", json!({ "anyOf": [{ "type": "array", "items": { "type": "number" } }, { "type": "string" }] })),
            ]))),
            ("usage", fields(&[("prompt_tokens", count.clone()), ("total_tokens", count)])),
        ]),
    })
}

/// An object that has at least these fields.
fn fields(fields: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": properties, "required": names })
}

fn or_null(kind: &str) -> Value {
    json!({ "type": [kind, "null"] })
}

fn list(of: Value) -> Value {
    json!({ "type": "array", "items": of })
}

/// A whole answer whose choices have these fields besides those of all.
fn answer(object: &str, more: &[(&str, Value)]) -> Value {
    let mut choice = vec![
        ("index", json!({ "type": "integer", "minimum": 0 })),
        ("finish_reason", json!({ "enum": ["stop", "length"] })),
        ("x_pathswarm", reference("Choice")),
    ];
    choice.extend(more.iter().cloned());
    fields(&[
        ("id", json!({ "type": "string" })),
        ("object", json!({ "const": object })),
        ("created", json!({ "type": "integer", "minimum": 0 })),
        ("model", json!({ "type": "string" })),
        ("choices", list(fields(&choice))),
        ("usage", reference("Usage")),
    ])
}

/// Which path answered a choice, and why.
fn extension() -> Value {
    fields(&[
        ("path", or_null("integer")),
        ("modules", list(json!({ "type": "string" }))),
        ("why", json!({ "type": "string" })),
        (
            "paths",
            list(fields(&[("path", or_null("integer")), ("tokens", json!({ "type": "integer", "minimum": 0 }))])),
        ),
        ("seed", json!({ "type": "integer" })),
    ])
}
