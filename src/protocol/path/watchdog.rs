//! The failure detector of the trainer.
//!
//! The trainer gives signs of life: when it begins a phase, as it makes steps, when it has stored a checkpoint, and
//! while it scores a checkpoint. The time-out adapts to the longest gap between two signs. Before a phase begins, the
//! trainer may be fetching text, and no sign is expected.

use crate::clock::Millis;
use crate::names::{PathId, Phase};
use crate::protocol::limits::{FIRST_STEP_MS, SILENCE_FACTOR, SILENCE_LEAST_MS, SWEEP_MS};

/// The observed state of the trainer.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Watchdog {
    /// The current phase, and the most steps ever made of it in any attempt.
    phase: Option<(PathId, Phase)>,
    furthest: u64,
    /// Steps made in this attempt; nothing before its first sign.
    steps: Option<u64>,
    /// Whether this attempt made a step.
    stepped: bool,
    /// The path whose checkpoint is being scored, whatever else was requested meanwhile, and the batches done.
    scored: Option<(PathId, u64)>,
    /// How long it has been silent.
    silent_ms: u64,
    looked_at: Millis,
    /// The longest gap between two signs, once it makes steps.
    longest_gap_ms: u64,
    /// Restarts since the last progress.
    restarts: u32,
}

impl Watchdog {
    /// A phase is requested, perhaps again.
    pub(in crate::protocol) fn begin(&mut self, path: PathId, phase: Phase) {
        if self.phase != Some((path, phase)) {
            (self.phase, self.furthest) = (Some((path, phase)), 0);
        }
        (self.steps, self.stepped) = (None, false);
    }

    /// Time passes only as this node sees it pass. If the whole process was frozen, so was the trainer.
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
            // The steps that an attempt starts with were made by others.
            if self.stepped {
                self.restarts = 0;
            }
            self.furthest = steps;
        }
    }

    /// The trainer is scoring and has come this far.
    pub(in crate::protocol) fn scores(&mut self, now: Millis, path: PathId, batches: u64) {
        self.look(now);
        if self.scored.replace((path, batches)).is_some() {
            self.longest_gap_ms = self.longest_gap_ms.max(self.silent_ms);
        }
        self.silent_ms = 0;
    }

    /// The trainer has stopped scoring.
    pub(in crate::protocol) fn has_scored(&mut self) {
        self.scored = None;
    }

    /// Steps made in the current phase, as far as reported.
    pub(in crate::protocol) fn steps(&self) -> u64 {
        self.steps.unwrap_or(0)
    }

    /// The path whose checkpoint is being scored.
    pub(in crate::protocol) fn scored(&self) -> Option<PathId> {
        self.scored.map(|(path, _)| path)
    }

    /// Steps made in this attempt; nothing before its first sign.
    pub(in crate::protocol) fn steps_made(&self) -> Option<u64> {
        self.steps
    }

    /// The trainer is restarted. Returns how often since the last progress.
    pub(in crate::protocol) fn restarted(&mut self) -> u32 {
        self.restarts += 1;
        self.scored = None;
        self.restarts
    }

    /// The trainer made progress.
    pub(in crate::protocol) fn got_further(&mut self) {
        self.restarts = 0;
    }

    /// How long the trainer has been silent, if it is considered stuck.
    pub(in crate::protocol) fn stuck(&mut self, now: Millis) -> Option<u64> {
        self.look(now);
        let begun = self.scored.map_or(self.stepped, |(_, batches)| batches > 0);
        let least = if begun { SILENCE_LEAST_MS } else { FIRST_STEP_MS };
        let timeout_ms = least.max(self.longest_gap_ms.saturating_mul(SILENCE_FACTOR));
        let at_work = self.steps.is_some() || self.scored.is_some();
        (at_work && self.silent_ms >= timeout_ms).then_some(self.silent_ms)
    }
}
