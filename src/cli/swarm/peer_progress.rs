//! A peer's news as progress: one line that changes, and notes that stay.

use std::sync::Mutex;
use std::sync::PoisonError;

use super::explain::COPIED_IDENTITY;
use crate::observe::{PeerProgress, Progress, Waits};
use crate::peer::News;
use crate::protocol::Report;
use crate::protocol::waiting::Waiting;

fn waits(waiting: &Waiting) -> Waits {
    Waits { words: waiting.to_string(), value: serde_json::json!(waiting) }
}

/// Turns one peer's news into progress.
pub struct PeerLine {
    progress: Progress,
    state: Mutex<PeerProgress>,
}

impl PeerLine {
    /// A line for a peer of a run with so many phases of so many steps.
    pub fn new(progress: Progress, peer: String, phases: u64, steps: u64) -> Self {
        let state = PeerProgress { peer, phases, steps, phase: 1, ..PeerProgress::default() };
        Self { progress, state: Mutex::new(state) }
    }

    /// Takes in a piece of news.
    pub fn hear(&self, news: &News) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match news {
            News::Stepped { phase, step, loss, tokens, seconds, .. } => {
                state.phase = phase.0 + 1;
                state.step = *step;
                state.loss = Some(*loss);
                state.waiting = None;
                if *seconds > 0.0 {
                    state.tokens_per_s = Some(*tokens as f64 / seconds);
                }
            }
            News::Waiting(waiting) => state.waiting = Some(waits(waiting)),
            News::Reported(Report::PathTaken(path)) => {
                self.progress.note(format!("{}: took path {path}", state.peer));
                return;
            }
            News::Reported(Report::PathYielded(path)) => {
                self.progress.note(format!("{}: gave path {path} to another peer", state.peer));
                return;
            }
            News::Reported(Report::TrainerStuck { path, steps, silent_ms }) => {
                self.progress.note(format!(
                    "{}: the trainer of path {path} has hung for {} s after step {steps}; it is started anew",
                    state.peer,
                    silent_ms / 1_000
                ));
                return;
            }
            News::Reported(Report::TrainerDied) => {
                self.progress.note(format!("{}: the trainer has died; it is started anew", state.peer));
                return;
            }
            News::Reported(Report::PathDone(_)) => {
                (state.phase, state.step) = (state.phases, state.steps);
                state.waiting = Some(waits(&Waiting::Done));
            }
            News::Reported(Report::Refused { module, by, reason }) => {
                let by = by.short();
                self.progress.note(format!("{}: refused an update of module {module} by …{by}: {reason}", state.peer));
                return;
            }
            News::Reported(Report::Deposed { module, owner, reason }) => {
                let owner = owner.short();
                self.progress.note(format!("{}: replaces …{owner} as owner of module {module}: {reason}", state.peer));
                return;
            }
            News::Reported(Report::Lost { module, path, parent, weight }) => {
                self.progress.note(format!(
                    "{}: path {path}'s contribution to module {module} version {parent} (weight {weight}) came too late",
                    state.peer
                ));
                return;
            }
            News::Reported(Report::CopiedIdentity { peer, addresses, .. }) => {
                let place = if addresses.is_empty() { String::new() } else { format!(" at {}", addresses.join(" ")) };
                let whose = format!("two machines run with the identity of peer …{}{place}", peer.short());
                self.progress.note(format!("{}: {whose}; {COPIED_IDENTITY}", state.peer));
                return;
            }
            News::Reported(_) => return,
            News::Scored { path, test, .. } => {
                let (perplexity, bits) = (test.perplexity(), test.bits_per_byte());
                self.progress.note(format!(
                    "{}: path {path} on its test text: perplexity {perplexity:.2}, {bits:.4} bits per byte",
                    state.peer
                ));
                return;
            }
            News::Alone { seconds, tried } => {
                let tried = if tried.is_empty() { "no address is known".to_owned() } else { tried.join(", ") };
                self.progress.note(format!("{}: alone for {seconds} s; tried: {tried}", state.peer));
                return;
            }
        }
        self.progress.peer(state.clone());
    }
}
