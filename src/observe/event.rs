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
    /// Inner steps made in this phase, over all paths that this peer trains.
    pub step: u64,
    /// Inner steps of a phase.
    pub steps: u64,
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

impl PeerProgress {
    /// Inner steps made since the first phase.
    pub fn done(&self) -> u64 {
        (self.phase.saturating_sub(1)).saturating_mul(self.steps).saturating_add(self.step).min(self.total())
    }

    pub fn total(&self) -> u64 {
        self.phases.saturating_mul(self.steps)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(phase: u64, step: u64) -> PeerProgress {
        PeerProgress { peer: "a".to_owned(), phase, phases: 4, step, steps: 10, ..PeerProgress::default() }
    }

    #[test]
    fn steps_count_from_the_first_phase() {
        assert_eq!((peer(1, 3).done(), peer(3, 10).done(), peer(3, 10).total()), (3, 30, 40));
        assert_eq!(peer(9, 9).done(), 40);
    }
}
