//! A request to `/v1/chat/completions`.

use serde_json::{Value, json};

use crate::serve::limits::{MESSAGES, ServeLimits, TOP_LOGPROBS};
use crate::serve::request::ApiError;
use crate::serve::request::fields::Fields;
use crate::serve::request::sampling::{Shared, of_swarm};
use crate::serve::served_run::ServedRun;
use crate::text::chat::Message;

const NO_TOOLS: &str =
    "this server generates text alone, and calls no tools; leave it out, or describe the tools in a message";

#[derive(Clone, Debug)]
pub struct ChatRequest {
    pub shared: Shared,
    /// At least one.
    pub messages: Vec<Message>,
    /// Tokens of each choice, at most.
    pub tokens: usize,
    /// For log-probabilities: the number of likeliest tokens beside them.
    pub logprobs: Option<usize>,
}

impl ChatRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// If a field is wrong or not known.
    pub fn read(body: &[u8], run: &ServedRun, limits: &ServeLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let shared = Shared::take(&mut fields, run)?;
        let messages = messages(&mut fields)?;
        refuse(&mut fields)?;
        // The newer name of the same.
        let older = fields.count("max_tokens", 1..=limits.tokens)?;
        let newer = fields.count("max_completion_tokens", 1..=limits.tokens)?;
        if older.is_some() && newer.is_some() && older != newer {
            let message = "max_tokens and max_completion_tokens differ; give one of them";
            return Err(ApiError::invalid("max_completion_tokens", message));
        }
        let tokens = newer.or(older).unwrap_or(limits.tokens.min(run.config.model.context));
        let wanted = fields.flag("logprobs")?.unwrap_or(false);
        let top = fields.count("top_logprobs", 0..=TOP_LOGPROBS)?;
        if top.is_some_and(|top| top > 0) && !wanted {
            return Err(ApiError::invalid("top_logprobs", "top_logprobs needs \"logprobs\": true"));
        }
        fields.end()?;
        if wanted && run.of_swarm() {
            return Err(of_swarm("logprobs", run));
        }
        Ok(Self { shared, messages, tokens, logprobs: wanted.then(|| top.unwrap_or(0)) })
    }
}

/// What a path cannot do.
fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    fields.refuse("tools", &[json!([])], NO_TOOLS)?;
    fields.refuse("functions", &[json!([])], NO_TOOLS)?;
    fields.refuse("tool_choice", &[json!("none"), json!("auto")], NO_TOOLS)?;
    fields.refuse("function_call", &[json!("none"), json!("auto")], NO_TOOLS)?;
    let form = "the text is as the model writes it; leave it out, and describe the form in a message";
    fields.refuse("response_format", &[json!({ "type": "text" })], form)?;
    fields.refuse("modalities", &[json!(["text"])], "this server generates text alone; leave it out")?;
    fields.refuse("audio", &[], "this server generates text alone; leave it out")?;
    fields.refuse("prediction", &[], "every token is generated; leave it out")?;
    fields.refuse("web_search_options", &[], "this server searches nothing; leave it out")?;
    fields.refuse("reasoning_effort", &[json!("none")], "the model does not reason apart from its answer; leave it out")
}

fn messages(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let example = "such as [{\"role\": \"user\", \"content\": \"Hello\"}]";
    let messages = match fields.take("messages") {
        Some(Value::Array(messages)) if messages.len() > MESSAGES => {
            let message = format!("messages has {} entries; give at most {MESSAGES}", messages.len());
            return Err(ApiError::invalid("messages", message));
        }
        Some(Value::Array(messages)) if !messages.is_empty() => messages,
        None => {
            let code = Some("missing_required_parameter");
            return Err(ApiError {
                code,
                ..ApiError::invalid("messages", format!("you must provide messages, {example}"))
            });
        }
        Some(_) => {
            return Err(ApiError::invalid("messages", format!("messages must be a list of messages, {example}")));
        }
    };
    messages.into_iter().enumerate().map(|(number, message)| read(message, number)).collect()
}

fn read(message: Value, number: usize) -> Result<Message, ApiError> {
    let wrong = |field: &str, reason: &str| {
        let param = format!("messages[{number}]{field}");
        ApiError::invalid(&param, format!("{param}: {reason}"))
    };
    let Value::Object(mut message) = message else {
        return Err(wrong("", "must be an object with role and content"));
    };
    let role = match message.remove("role").as_ref().and_then(Value::as_str) {
        Some("developer") => "system".to_owned(),
        Some(role @ ("system" | "user" | "assistant")) => role.to_owned(),
        Some("tool" | "function") => return Err(wrong(".role", NO_TOOLS)),
        _ => return Err(wrong(".role", "must be system, developer, user or assistant")),
    };
    if message.remove("tool_calls").is_some_and(|calls| !calls.is_null() && calls != json!([])) {
        return Err(wrong(".tool_calls", NO_TOOLS));
    }
    let content = match message.remove("content") {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let text =
                |part: &Value| (part["type"] == "text").then(|| part["text"].as_str()).flatten().map(str::to_owned);
            let texts: Option<Vec<String>> = parts.iter().map(text).collect();
            texts
                .ok_or_else(|| wrong(".content", "has parts that are not text; this server reads text alone"))?
                .join("\n")
        }
        _ => return Err(wrong(".content", "must be a string, or a list of parts of text")),
    };
    let name = message.remove("name").and_then(|name| Some(("name".to_owned(), name.as_str()?.into())));
    Ok(Message { more: name.into_iter().collect(), ..Message::new(role, content) })
}
