//! A request to `/v1/completions`.

use serde_json::{Value, json};

use crate::serve::limits::{CHOICES, ServeLimits, TOP_LOGPROBS};
use crate::serve::request::ApiError;
use crate::serve::request::fields::{Fields, small};
use crate::serve::request::sampling::{Shared, Streaming, of_swarm};
use crate::serve::served_run::ServedRun;

/// Tokens that are generated if the request does not say, as OpenAI does.
const TOKENS: usize = 16;

/// A text to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

#[derive(Clone, Debug)]
pub struct CompletionRequest {
    pub shared: Shared,
    /// At least one.
    pub prompts: Vec<Prompt>,
    /// Tokens of each choice, at most.
    pub tokens: usize,
    /// Whether the answer begins with the prompt.
    pub echo: bool,
    /// For log-probabilities: the number of likeliest tokens beside them.
    pub logprobs: Option<usize>,
    /// Choices that are generated for each prompt; the best ones are answered.
    pub best_of: usize,
}

impl CompletionRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// If a field is wrong or not known.
    pub fn read(body: &[u8], run: &ServedRun, limits: &ServeLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let shared = Shared::take(&mut fields, run)?;
        let prompts = texts(&mut fields, "prompt", run.config.model.vocabulary)?;
        let reason = "a path reads from left to right; put all text into prompt";
        fields.refuse("suffix", &[json!("")], reason)?;
        let echo = fields.flag("echo")?.unwrap_or(false);
        let least = usize::from(!echo);
        let tokens = fields.count("max_tokens", least..=limits.tokens)?.unwrap_or(TOKENS.min(limits.tokens));
        let logprobs = match fields.take("logprobs") {
            // Some clients send what chats take.
            Some(Value::Bool(false)) | None => None,
            Some(other) => {
                let mut one = Fields::one("logprobs", other);
                one.count("logprobs", 0..=TOP_LOGPROBS)?
            }
        };
        let best_of = fields.count("best_of", 1..=CHOICES)?.unwrap_or(shared.n);
        fields.end()?;
        if best_of < shared.n {
            let message = format!("best_of is {best_of}, less than n, {}; make it at least as large", shared.n);
            return Err(ApiError::invalid("best_of", message));
        }
        if best_of > shared.n && shared.streaming != Streaming::Whole {
            return Err(ApiError::invalid(
                "best_of",
                "the best choice is known at the end; use best_of without stream",
            ));
        }
        if prompts.len() * best_of > CHOICES {
            let message =
                format!("{} prompts with {best_of} choices each are too many: at most {CHOICES}", prompts.len());
            return Err(ApiError::invalid("prompt", message));
        }
        if run.of_swarm() && (logprobs.is_some() || best_of > shared.n) {
            return Err(of_swarm(if logprobs.is_some() { "logprobs" } else { "best_of" }, run));
        }
        Ok(Self { shared, prompts, tokens, echo, logprobs, best_of })
    }
}

/// The texts of a field: one or several, as strings or as ids.
///
/// # Errors
/// If there is none, or one is empty or has foreign ids.
pub fn texts(fields: &mut Fields, name: &str, vocabulary: usize) -> Result<Vec<Prompt>, ApiError> {
    let wrong = || {
        let kinds = "a string, a list of strings, a list of token ids, or a list of such lists";
        ApiError::invalid(name, format!("{name} must be {kinds}"))
    };
    let Some(value) = fields.take(name) else {
        let message = format!("you must provide {name}, such as {name:?}: \"Once upon a time\"");
        return Err(ApiError { code: Some("missing_required_parameter"), ..ApiError::invalid(name, message) });
    };
    let texts = match value {
        Value::String(text) => vec![Prompt::Text(text)],
        Value::Array(values) if values.first().is_some_and(Value::is_number) => {
            vec![Prompt::Tokens(tokens(&values).ok_or_else(wrong)?)]
        }
        Value::Array(values) => {
            let text = |value: Value| match value {
                Value::String(text) => Some(Prompt::Text(text)),
                Value::Array(values) => tokens(&values).map(Prompt::Tokens),
                _ => None,
            };
            values.into_iter().map(text).collect::<Option<Vec<Prompt>>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    for text in &texts {
        let (is_empty, foreign) = match text {
            Prompt::Text(text) => (text.is_empty(), None),
            Prompt::Tokens(tokens) => (tokens.is_empty(), tokens.iter().find(|token| **token as usize >= vocabulary)),
        };
        if is_empty {
            return Err(ApiError::invalid(name, format!("{name} is empty; give at least one token")));
        }
        if let Some(token) = foreign {
            let message = format!(
                "token {token} is not in the vocabulary, whose ids are 0 to {}; give ids of this model's own tokenizer, or the \
                 text itself",
                vocabulary - 1
            );
            return Err(ApiError::invalid(name, message));
        }
    }
    match texts.is_empty() {
        true => Err(ApiError::invalid(name, format!("{name} is an empty list; give a text"))),
        false => Ok(texts),
    }
}

/// Ids of tokens.
fn tokens(values: &[Value]) -> Option<Vec<u32>> {
    values.iter().map(small).collect()
}
