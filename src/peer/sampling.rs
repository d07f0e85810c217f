//! A text continued by the path that its beginning is routed to.

use super::collected::Collected;
use super::collected::network::Network;
use crate::config::DeviceChoice;
use crate::names::PathId;
use crate::seed::Seed;
use crate::training::{GenerateError, Sampling, generate};

/// How to continue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish {
    /// Tokens to make, at most.
    pub tokens: usize,
    /// 0 takes the likeliest token always.
    pub temperature: f64,
    /// Only so many of the likeliest tokens are drawn from; 0 for all.
    pub top_k: usize,
    /// Root of the draws.
    pub seed: u64,
}

impl Default for Wish {
    fn default() -> Self {
        Self { tokens: 100, temperature: 0.8, top_k: 40, seed: 1 }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The path that the prompt is routed to.
    pub path: PathId,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens made.
    pub tokens: usize,
    /// Their text, without the prompt.
    pub text: String,
    /// Whether the path ended the document by itself.
    pub ended: bool,
}

/// Routes a prompt by its first tokens, as many as there are, and continues it.
///
/// # Errors
/// If the prompt is empty, a setting out of range, or the path cannot be played.
pub fn continue_prompt(
    collected: &Collected,
    device: DeviceChoice,
    prompt: &str,
    wish: &Wish,
) -> anyhow::Result<Continuation> {
    let tokenizer = collected.tokenizer();
    let tokens = tokenizer.encode(prompt)?;
    if tokens.is_empty() {
        return Err(GenerateError::EmptyPrompt.into());
    }
    let mut network = Network::new(collected, device)?;
    let prefix = &tokens[..tokens.len().min(collected.router().prefix_tokens())];
    let routes = network.routes(&[prefix])?;
    let path = routes.first().copied().unwrap_or(PathId(0));
    let sampling = Sampling {
        count: wish.tokens,
        temperature: wish.temperature,
        top_k: wish.top_k,
        seed: Seed::root(wish.seed).child("continuation"),
        stop: tokenizer.end_of_document(),
    };
    let made = generate(network.path(path)?, &tokens, &sampling)?;
    Ok(Continuation {
        path,
        prompt_tokens: tokens.len(),
        tokens: made.len(),
        text: tokenizer.decode(&made),
        ended: made.len() < wish.tokens,
    })
}
