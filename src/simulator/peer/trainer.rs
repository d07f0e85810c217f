//! The trainer of a simulated peer: a phase in progress, and its steps. It can freeze, hang and die.
//!
//! The [`learner`](super::learner) makes the steps one by one, so an interrupted and resumed phase has the same bytes
//! as one that was not.

use crate::names::{BlobRef, PathId, Phase};
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::{Action, Part};
use crate::simulator::peer::carried_state::CarriedState;
use crate::simulator::peer::learner::{Descent, INNER_STEPS};

/// Interval of progress reports and checkpoints, as in a peer.
const STRIDE_MS: u64 = 5_000;

/// Least number of reports in a phase, however short.
const LEAST_STRIDES: u64 = 3;

#[derive(Debug, Default)]
pub(in crate::simulator) struct Trainer {
    /// Number of its next event; earlier ones are void, as of an abandoned thread.
    pub next: u64,
    /// A requested action that has not begun.
    pub asked: Option<Action>,
    pub in_hand: Option<InHand>,
    /// Whether it pauses after the present step.
    pub pauses: bool,
    /// Whether it ends after the present step, and contributes its result.
    pub ends: bool,
    /// Whether it hangs after its next report.
    pub hangs: bool,
    /// The checkpoint at which it hangs.
    pub scoring: Option<(PathId, Phase)>,
}

/// A phase in progress.
#[derive(Debug)]
pub(in crate::simulator) struct InHand {
    pub path: PathId,
    pub phase: Phase,
    pub part: Part,
    pub start: Vec<(BaseVersion, BlobRef)>,
    /// The parameters of each module before the phase.
    pub before: Vec<Vec<f32>>,
    pub descents: Vec<Descent>,
    /// The state after the last stride.
    pub carried: CarriedState,
    /// The number of steps at its beginning.
    pub first: u64,
    /// The time of its beginning.
    pub taken_ms: u64,
    /// The beginning of the present stride.
    pub began_ms: u64,
    pub until_ms: u64,
    /// Duration of a whole phase.
    pub phase_ms: u64,
}

impl InHand {
    pub fn stride(&self) -> u64 {
        (INNER_STEPS * STRIDE_MS / self.phase_ms.max(1)).clamp(1, INNER_STEPS.div_ceil(LEAST_STRIDES))
    }

    pub fn took_ms(&self, steps: u64) -> u64 {
        self.phase_ms * steps / INNER_STEPS
    }

    pub fn begin_stride(&mut self, now_ms: u64) {
        let steps = self.stride().min(self.part.last - self.carried.steps);
        (self.began_ms, self.until_ms) = (now_ms, now_ms + self.took_ms(steps));
    }

    /// Makes the steps of this stride that are due.
    pub fn make(&mut self, now_ms: u64) {
        let whole = self.stride().min(self.part.last - self.carried.steps);
        let made = match now_ms >= self.until_ms {
            true => whole,
            false => (now_ms.saturating_sub(self.began_ms) * INNER_STEPS / self.phase_ms.max(1)).min(whole),
        };
        for (descent, level) in self.descents.iter().zip(&mut self.carried.levels) {
            for step in self.carried.steps..self.carried.steps + made {
                descent.step(step, level);
            }
        }
        self.carried.steps += made;
    }
}

impl Trainer {
    /// The path that it works on, or is about to.
    pub fn path(&self) -> Option<PathId> {
        let asked = self.asked.as_ref().and_then(|asked| match asked {
            Action::Train { path, .. } => Some(*path),
            _ => None,
        });
        let in_hand = self.in_hand.as_ref().map(|in_hand| in_hand.path);
        asked.or(in_hand).or(self.scoring.map(|(path, _)| path))
    }

    /// The machine freezes, and so does the trainer.
    pub fn stand_still(&mut self, for_ms: u64) {
        if let Some(in_hand) = &mut self.in_hand {
            in_hand.began_ms += for_ms;
            in_hand.until_ms += for_ms;
        }
    }

    /// Makes it silent until it is restarted.
    pub fn hang(&mut self) {
        self.hangs = true;
    }

    /// A new thread without a phase.
    pub fn restart(&mut self) {
        *self = Self { next: self.next + 1, ..Self::default() };
    }
}
