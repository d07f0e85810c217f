//! What the node does if the trainer is silent or dead.

use crate::names::{PathId, Phase};
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::limits::MAX_RESTARTS;

impl Node {
    /// A sign of life.
    pub(in crate::protocol) fn progressed(&mut self, path: PathId, phase: Phase, steps: u64) {
        let now = self.now;
        if self.evaluations.is_scoring(path, phase) || self.is_at_the_end(path, phase) {
            self.trainer.watchdog_mut().scores(now, path, steps);
        } else if self.trainer.in_hand() == Some((path, phase)) {
            self.trainer.watchdog_mut().sign(now, steps);
        }
    }

    /// Whether this is the final state of a path, which its peer scores without a request.
    fn is_at_the_end(&self, path: PathId, phase: Phase) -> bool {
        phase.0 == self.plan.phases && self.paths.holds(path)
    }

    pub(in crate::protocol) fn watch_trainer(&mut self) {
        let Some(silent_ms) = self.trainer.watchdog_mut().stuck(self.now) else { return };
        let scored = self.trainer.watchdog().scored();
        let steps = self.trainer.watchdog().steps_made().filter(|_| scored.is_none());
        let trained = self.trainer.in_hand().map(|(path, _)| path);
        if let Some(path) = scored.or(trained) {
            self.act(Action::Report(Report::TrainerStuck { path, steps, silent_ms }));
            self.restart_trainer();
        }
    }

    /// The trainer died, whatever it was doing.
    pub(in crate::protocol) fn trainer_died(&mut self) {
        self.act(Action::Report(Report::TrainerDied));
        self.restart_trainer();
    }

    /// Restarts the trainer. Its phase resumes from the last checkpoint as soon as this event is handled.
    fn restart_trainer(&mut self) {
        let restarts = self.trainer.watchdog_mut().restarted();
        self.done_training();
        if restarts > MAX_RESTARTS {
            self.act(Action::GiveUp { restarts: MAX_RESTARTS });
        } else {
            self.act(Action::RestartTrainer);
        }
    }
}
