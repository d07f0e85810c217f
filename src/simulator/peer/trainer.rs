//! The trainer of a simulated peer: a phase in hand, and how its steps are made. It can stand still, hang and die.
//!
//! The [`learner`](super::learner) makes the steps one by one, so a phase that was interrupted and resumed comes to the same
//! bytes as one that was not.

use crate::names::{BlobRef, PathId, Phase};
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::{Action, Part};
use crate::simulator::peer::carried_state::CarriedState;
use crate::simulator::peer::learner::{Descent, INNER_STEPS};

/// It says where it stands, and stores it, so often, as a peer's does.
const STRIDE_MS: u64 = 5_000;

/// But no less often than this in a phase, however short.
const LEAST_STRIDES: u64 = 3;

/// One peer's.
#[derive(Debug, Default)]
pub(in crate::simulator) struct Trainer {
    /// What it will do next; all that was to be done before is not done any more, as by a thread that was left behind.
    pub next: u64,
    /// What it was asked for and has not begun.
    pub asked: Option<Action>,
    pub in_hand: Option<InHand>,
    /// It stops after the step in hand.
    pub pauses: bool,
    /// So it does, and contributes what it has made.
    pub ends: bool,
    /// It will say nothing more, once it has said that it has made a step, or scored a batch.
    pub hangs: bool,
    /// The checkpoint that it hangs over.
    pub scoring: Option<(PathId, Phase)>,
}

/// A phase in the middle.
#[derive(Debug)]
pub(in crate::simulator) struct InHand {
    pub path: PathId,
    pub phase: Phase,
    pub part: Part,
    pub start: Vec<(BaseVersion, BlobRef)>,
    /// Of each module before the phase.
    pub before: Vec<Vec<f32>>,
    pub descents: Vec<Descent>,
    /// After the last stride.
    pub carried: CarriedState,
    /// With how many steps it began.
    pub first: u64,
    /// When it was begun with.
    pub taken_ms: u64,
    /// A stride is under way: since when, and when it ends.
    pub began_ms: u64,
    pub until_ms: u64,
    /// Of all steps of a whole phase.
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

    /// The steps that were made in this stride by now.
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
    /// The machine stands still: so does this.
    pub fn stand_still(&mut self, for_ms: u64) {
        if let Some(in_hand) = &mut self.in_hand {
            in_hand.began_ms += for_ms;
            in_hand.until_ms += for_ms;
        }
    }

    /// It will say nothing more, until it is started anew.
    pub fn hang(&mut self) {
        self.hangs = true;
    }

    /// Another thread, which has nothing in hand.
    pub fn restart(&mut self) {
        *self = Self { next: self.next + 1, ..Self::default() };
    }
}
