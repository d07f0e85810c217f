//! The API's description in the form of OpenAPI 3.1, at `/openapi.json`: for clients that are generated, and for programs
//! that test a server by its description.
//!
//! It names the bounds of this server and the models of its run. A field that this server refuses whatever it says is not
//! in it.

mod answers;
mod requests;
mod schema;

use serde_json::{Value, json};

use crate::serve::limits::{BODY_BYTES, ServeLimits};
use crate::serve::openapi::schema::reference;
use crate::serve::served_run::{ServedRun, Source};

/// The description of a server of this run with these bounds.
pub fn description(run: &ServedRun, limits: &ServeLimits) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": format!("pathswarm serve: {}", run.name()),
            "version": env!("CARGO_PKG_VERSION"),
            "description": "OpenAI's API before a run of pathswarm. Fields that begin with x_pathswarm, and path, without_paths \
                            and route_every, are this server's own.",
        },
        "paths": paths(run),
        "components": {
            "schemas": schemas(run, limits),
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{}, { "key": [] }],
    })
}

fn paths(run: &ServedRun) -> Value {
    let mut paths = json!({
        "/health": { "get": {
            "operationId": "health", "summary": "Whether the server runs; needs no key", "security": [{}],
            "responses": { "200": answer("Health", "It runs") },
        } },
        "/metrics": { "get": {
            "operationId": "metrics", "summary": "What was counted, for Prometheus",
            "responses": with_errors(json!({ "200": {
                "description": "In the text format, or as OpenMetrics for who asks for that",
                "content": { "text/plain": { "schema": { "type": "string" } },
                             "application/openmetrics-text": { "schema": { "type": "string" } } },
            } }), &[]),
        } },
        "/openapi.json": { "get": {
            "operationId": "description", "summary": "This description; needs no key", "security": [{}],
            "responses": { "200": { "description": "OpenAPI 3.1", "content": { "application/json": { "schema": { "type": "object" } } } } },
        } },
        "/v1/models": { "get": {
            "operationId": "models", "summary": "All models",
            "responses": with_errors(json!({ "200": answer("Models", "The routed model, the ancestor, each path") }), &[]),
        } },
        "/v1/models/{model}": { "get": {
            "operationId": "model", "summary": "One model",
            "parameters": [{ "name": "model", "in": "path", "required": true, "schema": reference("ModelName") }],
            "responses": with_errors(json!({ "200": answer("Model", "The model") }), &["404"]),
        } },
        "/v1/completions": post("complete", "Continue texts", "CompletionRequest", "Completion", true),
        "/v1/chat/completions": post("chat", "Answer a conversation", "ChatRequest", "ChatCompletion", true),
    });
    if run.source == Source::Collected {
        paths["/v1/embeddings"] =
            post("embed", "The features by which the router chooses", "EmbeddingRequest", "Embeddings", false);
    }
    paths
}

fn post(id: &str, summary: &str, request: &str, response: &str, streams: bool) -> Value {
    let mut ok = answer(response, "The whole answer, or a stream of its pieces");
    if streams {
        // OpenAPI 3.1 has no words for the events of a stream: some readers check the whole text, others each event.
        ok["content"]["text/event-stream"] = json!({ "schema": {
            "description": "Server-sent events: each has a piece of the answer as JSON, the last one is [DONE]",
        } });
    }
    json!({ "post": {
        "operationId": id, "summary": summary,
        "requestBody": {
            "required": true, "description": format!("At most {BODY_BYTES} bytes"),
            "content": { "application/json": { "schema": reference(request) } },
        },
        "responses": with_errors(json!({ "200": ok }), &["400", "404", "413", "429", "500", "503"]),
    } })
}

fn answer(schema: &str, description: &str) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": reference(schema) } } })
}

/// Adds the errors that any URL may answer with, and these.
fn with_errors(mut responses: Value, more: &[&str]) -> Value {
    let of_all = [
        ("401", "No API key, or a wrong one"),
        ("403", "A page of another origin, or a foreign name of this server"),
        ("405", "Another method"),
    ];
    let of_some = more.iter().map(|status| (*status, "The message says what to do"));
    for (status, description) in of_all.into_iter().chain(of_some) {
        responses[status] = answer("Error", description);
    }
    responses
}

fn schemas(run: &ServedRun, limits: &ServeLimits) -> Value {
    let mut schemas = answers::schemas();
    // A grid may have thousands of paths.
    let names: Vec<String> = run.models().map(|(name, _)| name).take(300).collect();
    schemas["ModelName"] = match names.len() < 300 {
        true => json!({ "type": "string", "enum": names }),
        false => json!({ "type": "string", "examples": [run.name()] }),
    };
    schemas["CompletionRequest"] = requests::completion(run, limits);
    schemas["ChatRequest"] = requests::chat(run, limits);
    if run.source == Source::Collected {
        schemas["EmbeddingRequest"] = requests::embedding(run);
    }
    schemas
}
