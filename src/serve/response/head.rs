//! What all answers begin with.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngExt;
use serde_json::{Value, json};

/// The name of an answer, when it was made, and by which model.
#[derive(Clone, Debug)]
pub struct Head {
    id: String,
    created_s: u64,
    model: String,
}

impl Head {
    /// A new answer of a model, whose id begins so.
    #[expect(clippy::disallowed_methods, reason = "an edge: answers say when they were made")]
    pub fn new(prefix: &str, model: &str) -> Self {
        let id = format!("{prefix}-{:032x}", rand::rng().random::<u128>());
        let created_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { id, created_s, model: model.to_owned() }
    }

    /// An answer, or a piece of one.
    pub fn value(&self, object: &str, choices: &[Value], usage: Option<Value>) -> Value {
        let mut value = json!({
            "id": self.id, "object": object, "created": self.created_s, "model": self.model, "choices": choices,
        });
        if let Some(usage) = usage {
            value["usage"] = usage;
        }
        value
    }
}

/// Numbers of tokens.
pub fn usage(prompt_tokens: usize, generated: usize) -> Value {
    json!({
        "prompt_tokens": prompt_tokens, "completion_tokens": generated, "total_tokens": prompt_tokens + generated,
    })
}
