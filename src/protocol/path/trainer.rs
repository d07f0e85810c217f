//! The current work of one of this peer's trainers: a phase of a path, and the speed of its phases.

use std::collections::BTreeSet;

use super::watchdog::Watchdog;
use crate::clock::Millis;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, Phase};
use crate::protocol::action::Part;
use crate::protocol::wire::inner_checkpoint::BaseVersion;

/// A phase that is being trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Training {
    pub(in crate::protocol) path: PathId,
    pub(in crate::protocol) phase: Phase,
    pub(in crate::protocol) part: Part,
    pub(in crate::protocol) start: Vec<(BaseVersion, BlobRef)>,
    /// Blobs that the trainer may not have read yet.
    pub(in crate::protocol) reads: Vec<BlobHash>,
    /// Inner steps that are made here now, and since when.
    pub(in crate::protocol) measured: (u64, Millis),
    /// When it ends, however many steps were made.
    pub(in crate::protocol) until: Option<Millis>,
    /// It will end later than the phases of other peers.
    pub(in crate::protocol) late: bool,
    /// It is requested to end now.
    pub(in crate::protocol) ends: bool,
}

impl Training {
    /// The modules of its path.
    pub(in crate::protocol) fn modules(&self) -> BTreeSet<ModuleId> {
        self.start.iter().map(|(from, _)| from.module).collect()
    }

    /// Whether it ends before half of its steps were made.
    fn is_stub(&self, steps: u64) -> bool {
        self.ends && 2 * steps.saturating_sub(self.part.first) < self.part.last - self.part.first
    }
}

/// The measurement of the last phase here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct Measured {
    pub(in crate::protocol) steps: u64,
    pub(in crate::protocol) took_ms: u64,
}

impl Measured {
    /// How long a phase of so many inner steps takes.
    pub(in crate::protocol) fn phase_ms(self, inner_steps: u64) -> u64 {
        inner_steps.saturating_mul(self.took_ms) / self.steps.max(1)
    }
}

/// A trainer, as the protocol knows it.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Trainer {
    /// The phase in training, even if its path was handed off meanwhile.
    training: Option<Training>,
    watchdog: Watchdog,
    measured: Option<Measured>,
    /// Whether it is out of service: it failed again and again.
    retired: bool,
}

impl Trainer {
    pub(in crate::protocol) fn training(&self) -> Option<&Training> {
        self.training.as_ref()
    }

    /// Whether it is in service and trains nothing.
    pub(in crate::protocol) fn is_free(&self) -> bool {
        self.training.is_none() && !self.retired
    }

    pub(in crate::protocol) fn is_retired(&self) -> bool {
        self.retired
    }

    /// Takes it out of service.
    pub(in crate::protocol) fn retire(&mut self) {
        self.retired = true;
    }

    /// Whether it trains this path.
    pub(in crate::protocol) fn trains(&self, path: PathId) -> bool {
        self.training.as_ref().is_some_and(|training| training.path == path)
    }

    /// The path and phase in training.
    pub(in crate::protocol) fn in_hand(&self) -> Option<(PathId, Phase)> {
        self.training.as_ref().map(|training| (training.path, training.phase))
    }

    pub(in crate::protocol) fn begin(&mut self, training: Training) {
        self.watchdog.begin(training.path, training.phase);
        self.training = Some(training);
    }

    /// Ends training. Returns the blobs that it read.
    pub(in crate::protocol) fn end(&mut self) -> Vec<BlobHash> {
        self.training.take().map_or_else(Vec::new, |training| training.reads)
    }

    /// The phase is requested to end.
    pub(in crate::protocol) fn cut_short(&mut self) {
        self.training.iter_mut().for_each(|training| training.ends = true);
    }

    /// The whole process was suspended. That time is not training time.
    pub(in crate::protocol) fn stood_still(&mut self, for_ms: u64) {
        if let Some(training) = &mut self.training {
            training.late = true;
            training.measured.1 = training.measured.1 + for_ms;
        }
    }

    /// Measures the finished phase, unless it was cut short.
    pub(in crate::protocol) fn measure(&mut self, now: Millis) {
        if let Some(Training { measured: (steps @ 1.., began), ends: false, .. }) = self.training {
            self.measured = Some(Measured { steps, took_ms: now.since(began) });
        }
    }

    pub(in crate::protocol) fn measured(&self) -> Option<Measured> {
        self.measured
    }

    /// Whether the current phase ends before half of its steps were made.
    pub(in crate::protocol) fn is_stub(&self) -> bool {
        self.training.as_ref().is_some_and(|training| training.is_stub(self.watchdog.steps()))
    }

    pub(in crate::protocol) fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    pub(in crate::protocol) fn watchdog_mut(&mut self) -> &mut Watchdog {
        &mut self.watchdog
    }

    /// For tests: as if the phase had begun at the same time as those of other peers.
    #[cfg(test)]
    pub(in crate::protocol) fn began_in_time(&mut self) {
        if let Some(training) = &mut self.training {
            (training.late, training.measured.1) = (false, Millis(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn training() -> Training {
        Training {
            path: PathId(1),
            phase: Phase(2),
            part: Part::whole(10, Vec::new()),
            start: Vec::new(),
            reads: vec![BlobHash([1; 32])],
            measured: (10, Millis(1_000)),
            until: None,
            late: false,
            ends: false,
        }
    }

    #[test]
    fn time_in_which_the_process_was_suspended_is_not_measured() {
        let mut trainer = Trainer::default();
        trainer.begin(training());
        trainer.stood_still(500);
        trainer.measure(Millis(2_000));
        assert_eq!(trainer.measured(), Some(Measured { steps: 10, took_ms: 500 }));
        assert_eq!(trainer.measured().map(|measured| measured.phase_ms(20)), Some(1_000));
        assert_eq!(trainer.end(), [BlobHash([1; 32])]);
        assert_eq!(trainer.in_hand(), None);
    }

    #[test]
    fn a_phase_that_was_cut_short_is_not_measured_and_may_be_a_stub() {
        let mut trainer = Trainer::default();
        trainer.begin(training());
        trainer.watchdog_mut().sign(Millis(1_500), 4);
        assert!(!trainer.is_stub());
        trainer.cut_short();
        trainer.measure(Millis(2_000));
        assert!(trainer.is_stub() && trainer.measured().is_none());
        trainer.watchdog_mut().sign(Millis(1_600), 5);
        assert!(!trainer.is_stub());
    }
}
