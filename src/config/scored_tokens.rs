//! Which tokens count when a text is scored.

use crate::config::RunConfig;

/// The first token that counts when a text is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starts {
    /// Of a document: those before it chose its path.
    pub of_document: usize,
    /// Of any sequence: its network may see those before it together.
    pub of_sequence: usize,
}

impl RunConfig {
    /// Where scores begin to count.
    pub fn starts(&self) -> Starts {
        Starts { of_document: self.routing.prefix_tokens, of_sequence: self.model.unscored_tokens() }
    }
}
