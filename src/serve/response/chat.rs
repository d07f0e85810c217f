//! Answers of `/v1/chat/completions`.

use serde_json::{Value, json};

use crate::serve::request::ChatRequest;
use crate::serve::response::collect::{Answer, extension};
use crate::serve::response::head::{Head, usage};
use crate::serve::response::tokens::of_chat;
use crate::serve::served_run::ServedRun;

/// A whole answer.
pub fn whole(run: &ServedRun, request: &ChatRequest, (head, answer): (&Head, Answer), prompt_tokens: usize) -> Value {
    let prefix = run.config.routing.prefix_tokens;
    let values = answer.0.iter().enumerate().map(|(index, choice)| {
        json!({
            "index": index,
            "message": { "role": "assistant", "content": choice.text, "refusal": null },
            "logprobs": request.logprobs.map(|_| of_chat(&run.tokenizer, &choice.tokens)),
            "finish_reason": choice.finish_reason(),
            "x_pathswarm": extension(&request.shared.target, choice, request.shared.seed, &run.grid, prefix),
        })
    });
    let values: Vec<Value> = values.collect();
    let generated = answer.0.iter().map(|choice| choice.generated).sum();
    head.value("chat.completion", &values, Some(usage(prompt_tokens, generated)))
}
