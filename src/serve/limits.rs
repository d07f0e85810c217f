//! What clients may ask for.

use std::time::Duration;

/// The largest body of a request, in bytes.
pub const BODY_BYTES: usize = 4 << 20;

/// Prompts in one request, times the choices for each.
pub const CHOICES: usize = 256;

/// Likeliest tokens that are told for each place.
pub const TOP_LOGPROBS: usize = 20;

/// Log-probabilities in one answer, those of the likeliest tokens included: some hundred bytes each.
pub const LOGPROBS: usize = 1 << 20;

/// Strings that end a text, and the bytes of each.
pub const STOPS: usize = 16;
pub const STOP_BYTES: usize = 256;

/// Messages of a conversation.
pub const MESSAGES: usize = 2_048;

/// Texts that one request for embeddings may have.
pub const EMBEDDINGS: usize = 2_048;

/// Bounds that the owner of the server sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeLimits {
    /// Tokens that one choice may generate.
    pub tokens: usize,
    /// Tokens of all prompts of one request together.
    pub prompt_tokens: usize,
    /// Choices that are generated at once; those of further requests wait.
    pub at_once: usize,
    /// Requests that are generated or wait; further ones are told to come back (429).
    pub requests: usize,
    /// A choice that takes longer ends as if it had all its tokens.
    pub time: Duration,
    /// Keys and values of texts that have ended are kept in so many bytes, for prompts that begin like them.
    pub prefix_bytes: usize,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            tokens: 4_096,
            prompt_tokens: 1 << 18,
            at_once: 16,
            requests: 64,
            time: Duration::from_secs(600),
            prefix_bytes: 256 << 20,
        }
    }
}
