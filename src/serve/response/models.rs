//! Answers of `/v1/models`, and of `/v1/embeddings`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::serve::request::EmbeddingRequest;
use crate::serve::served_run::{NamedModel, ServedRun, Source};

/// A model by its name.
pub fn model(run: &ServedRun, id: &str, which: NamedModel, created_s: u64) -> Value {
    let (kind, path) = match which {
        NamedModel::Routed => ("routed", None),
        NamedModel::Ancestor => ("ancestor", None),
        NamedModel::Path(path) if run.source == Source::Model => ("model", Some(path)),
        NamedModel::Path(path) => ("path", Some(path)),
    };
    let modules = path.map(|path| run.grid.modules_of(path).iter().map(ToString::to_string).collect::<Vec<_>>());
    json!({
        "id": id, "object": "model", "created": created_s, "owned_by": "pathswarm",
        "x_pathswarm": {
            "kind": kind, "path": path, "modules": modules, "paths": run.grid.path_count(),
            "context": run.config.model.context, "chat_template": if run.template.is_default() { "default" } else { "model" },
        },
    })
}

/// The vectors of texts, and how many tokens were read for them.
pub fn embeddings(request: &EmbeddingRequest, rows: &[Vec<f32>], tokens: usize) -> Value {
    let vector = |row: &[f32]| match request.base64 {
        true => json!(STANDARD.encode(row.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())),
        false => json!(row),
    };
    let data: Vec<Value> = rows
        .iter()
        .enumerate()
        .map(|(index, row)| json!({ "object": "embedding", "index": index, "embedding": vector(row) }))
        .collect();
    json!({
        "object": "list", "data": data, "model": request.named,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })
}
