//! Which tokens are scored.

use crate::config::RunConfig;

/// The first scored token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starts {
    /// Of a document. The tokens before it choose the path.
    pub of_document: usize,
    /// Of any sequence. The network may see the tokens before it all at once.
    pub of_sequence: usize,
}

impl RunConfig {
    pub fn starts(&self) -> Starts {
        Starts { of_document: self.routing.prefix_tokens, of_sequence: self.model.unscored_tokens() }
    }
}
