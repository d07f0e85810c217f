//! Generation: a text continued by the path of its beginning, or by one path after the other.

use crate::names::PathId;
use crate::peer::inference::client::{Draw, InferenceClient};
use crate::training::GenerateError;

/// How to continue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish {
    /// Limit of new tokens.
    pub tokens: usize,
    /// 0 always takes the likeliest token.
    pub temperature: f64,
    /// Only this many of the likeliest tokens are drawn from; 0 for all.
    pub top_k: usize,
    /// Seed of the draws.
    pub seed: u64,
    /// Number of tokens after which the path is chosen again; `None` for never.
    pub every: Option<usize>,
}

impl Default for Wish {
    fn default() -> Self {
        Self { tokens: 100, temperature: 0.8, top_k: 40, seed: 1, every: None }
    }
}

/// The continuation of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The paths in turn with the number of tokens of each; the first is the prompt's.
    pub paths: Vec<(PathId, usize)>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Number of new tokens.
    pub tokens: usize,
    /// The new text without the prompt.
    pub text: String,
    /// Whether a path ended the document.
    pub ended: bool,
}

/// Routes a prompt by its first tokens, and continues it.
///
/// # Errors
/// If the prompt is empty, a setting is out of range, or a path has no state.
pub fn continue_prompt(client: &mut dyn InferenceClient, prompt: &str, wish: &Wish) -> anyhow::Result<Continuation> {
    let mut text = client.tokenizer().encode(prompt)?;
    let prompt_tokens = text.len();
    if text.is_empty() {
        return Err(GenerateError::EmptyPrompt.into());
    }
    if !wish.temperature.is_finite() || wish.temperature < 0.0 {
        return Err(GenerateError::Temperature(wish.temperature).into());
    }
    let draw = Draw { temperature: wish.temperature, top_k: wish.top_k, seed: wish.seed };
    let prefix = client.config().routing.prefix_tokens;
    let mut paths: Vec<(PathId, usize)> = Vec::new();
    let (mut left, mut ended) = (wish.tokens, false);
    while paths.is_empty() || (left > 0 && !ended) {
        let routes = match paths.first() {
            None => client.routes(&[&text[..text.len().min(prefix)]])?,
            Some((own, _)) => client.routes_on(&[(*own, &text[text.len().saturating_sub(client.reach())..])])?,
        };
        let path = routes.first().copied().unwrap_or(PathId(0));
        let count = left.min(wish.every.unwrap_or(left));
        let made = client.continue_text(path, &text, count, &draw)?;
        ended = made.len() < count;
        left -= made.len();
        match paths.last_mut() {
            Some((last, tokens)) if *last == path => *tokens += made.len(),
            _ => paths.push((path, made.len())),
        }
        text.extend(made);
    }
    let made = text.split_off(prompt_tokens);
    Ok(Continuation { paths, prompt_tokens, tokens: made.len(), text: client.tokenizer().decode(&made), ended })
}
