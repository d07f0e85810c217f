//! What the node does if a trainer is silent or dead.

use crate::names::{PathId, Phase};
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::limits::MAX_RESTARTS;
use crate::protocol::path::trainers::Number;

impl Node {
    /// A sign of life.
    pub(in crate::protocol) fn progressed(&mut self, path: PathId, phase: Phase, steps: u64) {
        let now = self.now;
        if self.evaluations.is_scoring(path, phase) || self.is_at_the_end(path, phase) {
            let number = self.trainers.scoring(path);
            self.trainers.get_mut(number).watchdog_mut().scores(now, path, steps);
        } else if let Some(number) = self.trainers.with(path, phase) {
            self.trainers.get_mut(number).watchdog_mut().sign(now, steps);
        }
    }

    /// Whether this is the final state of a path, or what was it before an amendment, which its peer scores without a
    /// request.
    fn is_at_the_end(&self, path: PathId, phase: Phase) -> bool {
        let is_end = phase.0 == self.plan.phases || self.lifecycle.amendments().was_the_end(phase.0);
        is_end && self.paths.holds(path)
    }

    pub(in crate::protocol) fn watch_trainers(&mut self) {
        for number in self.trainers.numbers() {
            self.watch_trainer(number);
        }
    }

    fn watch_trainer(&mut self, number: Number) {
        let now = self.now;
        let Some(silent_ms) = self.trainers.get_mut(number).watchdog_mut().stuck(now) else { return };
        let trainer = self.trainers.get(number);
        let scored = trainer.watchdog().scored();
        let steps = trainer.watchdog().steps_made().filter(|_| scored.is_none());
        let trained = trainer.in_hand().map(|(path, _)| path);
        if let Some(path) = scored.or(trained) {
            self.act(Action::Report(Report::TrainerStuck { path, steps, silent_ms }));
            self.restart_trainer(number, Some(path));
        }
    }

    /// A trainer died, whatever it was doing.
    pub(in crate::protocol) fn trainer_died(&mut self, path: Option<PathId>) {
        self.act(Action::Report(Report::TrainerDied));
        self.restart_trainer(self.trainers.at_work_on(path), path);
    }

    /// Restarts a trainer. Its phase resumes from the last checkpoint as soon as this event is handled.
    fn restart_trainer(&mut self, number: Number, path: Option<PathId>) {
        let restarts = self.trainers.get_mut(number).watchdog_mut().restarted();
        self.done_training(number);
        if restarts <= MAX_RESTARTS {
            self.act(Action::RestartTrainer { path });
        } else if self.trainers.count() > 1 {
            self.act(Action::RetireTrainer { path });
            self.retire(number);
        } else {
            self.act(Action::GiveUp { restarts: MAX_RESTARTS });
        }
    }

    /// The driver has taken a trainer out of service. The last one stays: the driver gives up without it.
    pub(in crate::protocol) fn trainer_lost(&mut self, path: Option<PathId>) {
        if self.trainers.count() > 1 {
            let number = self.trainers.at_work_on(path);
            self.done_training(number);
            self.retire(number);
        }
    }

    fn retire(&mut self, number: Number) {
        self.trainers.get_mut(number).retire();
        self.act(Action::Report(Report::TrainerRetired { left: self.trainers.count() }));
        self.send_heartbeats();
    }
}
