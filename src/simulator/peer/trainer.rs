//! The trainer of a simulated peer: the current phase, and how its steps are made. It can be suspended, hang and die.
//!
//! The [`learner`](super::learner) makes the steps one by one, so a phase that was interrupted and resumed has the same
//! bytes as one that was not.

use crate::names::{BlobRef, PathId, Phase};
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::{Action, Part};
use crate::simulator::peer::carried_state::CarriedState;
use crate::simulator::peer::learner::{Descent, INNER_STEPS};

/// The interval at which it reports and stores a checkpoint, as a peer's does.
const STRIDE_MS: u64 = 5_000;

/// But at least this many strides per phase, however short.
const LEAST_STRIDES: u64 = 3;

/// The trainer of one peer.
#[derive(Debug, Default)]
pub(in crate::simulator) struct Trainer {
    /// The number of its next task. Earlier tasks are void, like those of an abandoned thread.
    pub next: u64,
    /// A requested phase that has not begun.
    pub asked: Option<Action>,
    pub in_hand: Option<InHand>,
    /// It pauses after the current step.
    pub pauses: bool,
    /// It ends the phase after the current step and contributes the result.
    pub ends: bool,
    /// It goes silent once it has reported a step or a scored batch.
    pub hangs: bool,
    /// The checkpoint over which it hangs.
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
    /// The steps with which it began.
    pub first: u64,
    /// When it was begun.
    pub taken_ms: u64,
    /// When the current stride began, and when it ends.
    pub began_ms: u64,
    pub until_ms: u64,
    /// The duration of all steps of a whole phase.
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

    /// Makes the steps of this stride that are due by now.
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
    /// The machine is suspended, and so is the trainer.
    pub fn stand_still(&mut self, for_ms: u64) {
        if let Some(in_hand) = &mut self.in_hand {
            in_hand.began_ms += for_ms;
            in_hand.until_ms += for_ms;
        }
    }

    /// It goes silent until it is restarted.
    pub fn hang(&mut self) {
        self.hangs = true;
    }

    /// Starts another thread, without any work.
    pub fn restart(&mut self) {
        *self = Self { next: self.next + 1, ..Self::default() };
    }
}
