//! Whether the trainer lives.
//!
//! It gives signs: when it begins with a phase, as it makes steps, when it has stored where it stands, and while it scores
//! a checkpoint. How long a silence is suspicious follows from the longest between two of its signs. Before it begins, it
//! may be fetching text, and nothing is expected of it.

use crate::clock::Millis;
use crate::names::{PathId, Phase};
use crate::protocol::limits::{FIRST_STEP_MS, SILENCE_FACTOR, SILENCE_LEAST_MS, SWEEP_MS};

/// What is known of the trainer.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Watchdog {
    /// The phase in hand, and the most steps of it that were ever made, in whatever attempt.
    phase: Option<(PathId, Phase)>,
    furthest: u64,
    /// Steps made in this attempt; nothing before its first sign.
    steps: Option<u64>,
    /// Whether one of them was made in this attempt.
    stepped: bool,
    /// Whose checkpoint it scores, whatever it is asked for meanwhile, and the batches of it.
    scored: Option<(PathId, u64)>,
    /// How long it has been silent.
    silent_ms: u64,
    looked_at: Millis,
    /// The longest silence between two signs, once it makes steps.
    longest_gap_ms: u64,
    /// Since it got any further.
    restarts: u32,
}

impl Watchdog {
    /// It is asked for a phase, or for one again.
    pub(in crate::protocol) fn begin(&mut self, path: PathId, phase: Phase) {
        if self.phase != Some((path, phase)) {
            (self.phase, self.furthest) = (Some((path, phase)), 0);
        }
        (self.steps, self.stepped) = (None, false);
    }

    /// Time passes only as this node sees it pass: where the whole process was frozen, the trainer was, too.
    fn look(&mut self, now: Millis) {
        self.silent_ms += now.since(self.looked_at).min(4 * SWEEP_MS);
        self.looked_at = now;
    }

    pub(in crate::protocol) fn sign(&mut self, now: Millis, steps: u64) {
        self.look(now);
        if let Some(before) = self.steps.replace(steps) {
            if self.stepped {
                self.longest_gap_ms = self.longest_gap_ms.max(self.silent_ms);
            }
            self.stepped |= steps > before;
        }
        self.silent_ms = 0;
        if steps > self.furthest {
            // What an attempt starts with, others have made.
            if self.stepped {
                self.restarts = 0;
            }
            self.furthest = steps;
        }
    }

    /// It scores, and has come so far.
    pub(in crate::protocol) fn scores(&mut self, now: Millis, path: PathId, batches: u64) {
        self.look(now);
        if self.scored.replace((path, batches)).is_some() {
            self.longest_gap_ms = self.longest_gap_ms.max(self.silent_ms);
        }
        self.silent_ms = 0;
    }

    /// It scores no longer.
    pub(in crate::protocol) fn has_scored(&mut self) {
        self.scored = None;
    }

    /// Steps made in the phase in hand, as far as it has said so.
    pub(in crate::protocol) fn steps(&self) -> u64 {
        self.steps.unwrap_or(0)
    }

    /// The path whose checkpoint it scores.
    pub(in crate::protocol) fn scored(&self) -> Option<PathId> {
        self.scored.map(|(path, _)| path)
    }

    /// Steps made in this attempt; nothing before its first sign.
    pub(in crate::protocol) fn steps_made(&self) -> Option<u64> {
        self.steps
    }

    /// It is started anew. How often it was since it got any further.
    pub(in crate::protocol) fn restarted(&mut self) -> u32 {
        self.restarts += 1;
        self.scored = None;
        self.restarts
    }

    /// Something came of what it did.
    pub(in crate::protocol) fn got_further(&mut self) {
        self.restarts = 0;
    }

    /// For how long it has been silent, if that is suspicious.
    pub(in crate::protocol) fn stuck(&mut self, now: Millis) -> Option<u64> {
        self.look(now);
        let begun = self.scored.map_or(self.stepped, |(_, batches)| batches > 0);
        let least = if begun { SILENCE_LEAST_MS } else { FIRST_STEP_MS };
        let timeout_ms = least.max(self.longest_gap_ms.saturating_mul(SILENCE_FACTOR));
        let at_work = self.steps.is_some() || self.scored.is_some();
        (at_work && self.silent_ms >= timeout_ms).then_some(self.silent_ms)
    }
}
