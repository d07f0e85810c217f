//! Progress events.

use serde::{Serialize, Serializer};

/// Progress of one peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PeerProgress {
    /// A short name for people.
    pub peer: String,
    /// The current phase, counted from 1.
    pub phase: u64,
    pub phases: u64,
    /// The path that it trained last.
    pub path: Option<u32>,
    /// Inner steps of that path in this phase.
    pub step: u64,
    /// Inner steps of a phase.
    pub steps: u64,
    /// Inner steps since the first phase, of all paths that this peer has.
    pub made: u64,
    /// As many as all its paths make in all phases.
    pub planned: u64,
    /// Mean training loss of the last steps, in nats a token.
    pub loss: Option<f64>,
    /// Tokens trained on in a second.
    pub tokens_per_s: Option<f64>,
    pub waiting: Option<Waits>,
}

/// What a peer waits for, as a line for people and as a value for programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    pub words: String,
    pub value: serde_json::Value,
}

impl Serialize for Waits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// A report of a program's progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum ProgressEvent {
    /// A peer made progress.
    Peer(PeerProgress),
    /// Work before or after the peers' training, such as "tokenizer". It ends with `done == total`.
    Stage { name: String, done: u64, total: u64 },
    /// A line that stays on the screen.
    Note { text: String },
    /// The result for programs: an object with its own `event`. People see a table instead.
    #[serde(untagged)]
    Result(serde_json::Value),
}
