//! The trainers' tasks and reports. A task begins when the one before has ended and its text is here; a report becomes
//! an event for the node, or for the program that started the peer.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{BlobRef, ModuleId, PathId, Phase};
use crate::peer::driver::events::PeerEvent;
use crate::peer::driver::{Driver, PeerError};
use crate::peer::trainer::devices::Number;
use crate::peer::trainer::task::{PhaseTask, Task, TrainerReport};
use crate::protocol::Event;
use crate::training::Score;

/// Failures of a trainer without a step between them, after which its device is retired. If it is the last, the peer stops
/// with the reason.
const MOST_FAILURES: u32 = 2;

/// Tasks for any trainer, and results.
#[derive(Default)]
pub(crate) struct TrainerTasks {
    /// A checkpoint to score when there is nothing else to do.
    checkpoint: Option<Task>,
    pub(crate) scored: BTreeSet<PathId>,
    /// For finished paths with own parameters, the trainer state that has them.
    pub(crate) best: BTreeMap<PathId, BlobRef>,
    pub(crate) phases_trained: u64,
}

impl Driver {
    /// Training comes before scoring.
    pub(crate) fn queue_task(&mut self, task: Task) {
        if let Some((path, phase)) = self.devices.queue(task) {
            self.scored(path, phase, None);
        }
    }

    pub(crate) fn queue_scoring(&mut self, task: Task) {
        self.tasks.checkpoint = Some(task);
    }

    fn scored(&mut self, path: PathId, phase: Phase, held_out: Option<Score>) {
        let scored = held_out.and_then(|score| score.bits_per_byte()).map(|bits| bits * 1_000.0);
        let fits = scored.filter(|millibits| (0.0..f64::from(u32::MAX)).contains(millibits));
        let millibits_per_byte = fits.map(|millibits| millibits.round() as u32);
        self.events.push_back(Event::Evaluated { path, phase, millibits_per_byte });
    }

    /// Begins a task on each idle device once its text is here.
    pub(crate) fn feed_trainers(&mut self) -> Result<(), PeerError> {
        for number in self.devices.idle() {
            self.feed_trainer(number)?;
        }
        Ok(())
    }

    fn feed_trainer(&mut self, number: Number) -> Result<(), PeerError> {
        if self.devices.get_mut(number).task.is_none() {
            let task = self.next_evaluation().or_else(|| self.tasks.checkpoint.take());
            self.devices.get_mut(number).task = task;
        }
        let is_here = match &self.devices.get_mut(number).task {
            Some(Task::Train(PhaseTask { drawn, .. }) | Task::Evaluate { drawn, .. }) => {
                let drawn = *drawn;
                self.has_text(drawn)? || self.postpone(number, drawn)
            }
            Some(Task::Score { path, drawn, phase, .. }) => {
                let (path, drawn, phase) = (*path, *drawn, *phase);
                let text = self.manifest.text_to_score(drawn);
                if !self.manifest.share_text && !self.all_here(&text)? {
                    self.devices.get_mut(number).task = None;
                    self.scored(path, phase, None);
                    return Ok(());
                }
                self.has_blobs(drawn, text)?
            }
            None => return Ok(()),
        };
        if !is_here {
            return Ok(());
        }
        if let Some(task) = self.devices.get_mut(number).task.take() {
            let next = self.drawn_next(&task);
            self.devices.begin(number, task);
            if let Some(next) = next.filter(|_| self.manifest.share_text) {
                // If it cannot be fetched now, it is fetched when it is needed.
                self.has_text(next)?;
            }
        }
        Ok(())
    }

    /// Drops a task whose text is not here, so that the node gives another one. Returns false for the caller.
    fn postpone(&mut self, number: Number, drawn: PathId) -> bool {
        self.text_replication.want(drawn);
        if let Some(Task::Train(PhaseTask { path, phase, .. })) = self.devices.get_mut(number).task.take() {
            self.events.push_back(Event::TextMissing { path, phase });
        }
        false
    }

    /// The path that the slot will stand for after this phase, if it changes: its text is prefetched.
    fn drawn_next(&self, task: &Task) -> Option<PathId> {
        let Task::Train(PhaseTask { path, drawn, phase, .. }) = task else { return None };
        Some(self.node.path_at(*path, phase.next())).filter(|next| next != drawn)
    }

    /// Scores a finished path once.
    fn next_evaluation(&mut self) -> Option<Task> {
        if !self.node.is_done() {
            return None;
        }
        let last = Phase(self.manifest.config.training.phases);
        if self.manifest.config.outer.keep_unsent {
            // A standby may have an older trainer state than the holder, which scores the path; here there is nothing
            // to wait for.
            let stood_by = self.node.paths().into_iter().filter(|path| !self.node.holds(*path));
            self.tasks.scored.extend(stood_by.collect::<Vec<_>>());
        }
        let is_due = |path: &PathId| {
            !self.tasks.scored.contains(path)
                && !self.devices.work_on(*path)
                && !self.text_replication.wants(self.node.path_at(*path, last))
        };
        let path = self.node.paths().into_iter().find(is_due)?;
        let states: BTreeMap<ModuleId, BlobRef> =
            self.node.states().into_iter().map(|(module, _, state)| (module, state)).collect();
        let modules = self.node.modules_of(path);
        let states = modules.into_iter().map(|module| Some((module, *states.get(&module)?))).collect::<Option<_>>()?;
        let drawn = self.node.path_at(path, last);
        Some(Task::Evaluate { path, drawn, states, trainer: self.node.trainer(path) })
    }

    pub(crate) fn handle_trainer_report(&mut self, number: Number, told: TrainerReport) -> Result<(), PeerError> {
        match told {
            TrainerReport::Alive { path, phase, steps } => self.progressed(path, phase, steps),
            TrainerReport::ShortOfMemory(what) => (self.event_sink)(PeerEvent::ShortOfMemory(what)),
            TrainerReport::Checkpointed { path, phase, steps, blob } => {
                self.events.push_back(Event::Checkpointed { path, phase, steps, blob });
            }
            TrainerReport::Paused { path, phase, middle } => {
                self.devices.get_mut(number).ended();
                self.events.push_back(Event::Paused { path, phase, middle });
            }
            TrainerReport::Step(stepped) => {
                self.observed.waiting = None;
                self.count_step(number, &stepped);
                self.devices.get_mut(number).failures = 0;
                self.progressed(stepped.path, stepped.phase, stepped.step);
                (self.event_sink)(PeerEvent::Stepped(stepped));
            }
            TrainerReport::Trained(finished) => {
                self.devices.get_mut(number).ended();
                self.tasks.phases_trained += 1;
                // Its earlier own parameters are obsolete.
                self.reset_path(finished.path);
                self.events.push_back(Event::Trained(finished));
            }
            TrainerReport::Scored { path, phase, held_out } => {
                self.devices.get_mut(number).ended();
                self.scored(path, phase, held_out);
            }
            TrainerReport::Evaluated { path, drawn, held_out, test, reviewed } => {
                self.devices.get_mut(number).ended();
                // Not if the run was amended meanwhile.
                let is_end = self.node.is_done();
                self.tasks.scored.extend(is_end.then_some(path));
                if let Some((trainer, stands)) = reviewed {
                    self.tasks.best.extend((stands && is_end).then_some((path, trainer)));
                    self.events.push_back(Event::Reviewed { path, trainer });
                }
                if is_end {
                    self.scored(path, Phase(self.manifest.config.training.phases), Some(held_out));
                    (self.event_sink)(PeerEvent::Scored { path, drawn, held_out, test });
                }
            }
            TrainerReport::Failed(error) => self.trainer_has_failed(number, error)?,
        }
        Ok(())
    }

    /// Only its own path waits for it.
    fn trainer_has_failed(&mut self, number: Number, error: anyhow::Error) -> Result<(), PeerError> {
        let several = self.devices.count() > 1;
        let device = self.devices.get_mut(number);
        let (path, name) = (device.concerns(), device.name().to_owned());
        if device.failures < MOST_FAILURES {
            // Memory may be short for a moment.
            device.failures += 1;
            tracing::error!(device = name, error = %format!("{error:#}"), "the trainer has failed and is restarted");
            self.restart_or_tell(number, path)?;
        } else if several {
            tracing::error!(device = name, error = %format!("{error:#}"), "the trainer has failed too often");
            self.retire(number);
            self.events.push_back(Event::TrainerLost { path });
        } else {
            return Err(PeerError::Training(error));
        }
        Ok(())
    }

    /// A thread has ended without a word.
    pub(crate) fn trainer_is_dead(&mut self, number: Number) -> Result<(), PeerError> {
        let path = self.devices.get_mut(number).concerns();
        if path.is_none() && self.devices.count() > 1 {
            return self.trainer_has_failed(number, anyhow::anyhow!("the trainer has died without work"));
        }
        self.restart_or_tell(number, path)
    }

    /// The node restarts a trainer. Of several, it does not know one without work, whose device may be gone.
    fn restart_or_tell(&mut self, number: Number, path: Option<PathId>) -> Result<(), PeerError> {
        if path.is_none() && self.devices.count() > 1 {
            self.devices.restart(number).map_err(PeerError::TrainerThread)?;
        } else {
            self.events.push_back(Event::TrainerDied { path });
        }
        Ok(())
    }

    /// A suspended node needs no signs of life.
    fn progressed(&mut self, path: PathId, phase: Phase, steps: u64) {
        if !self.is_suspended() {
            self.events.push_back(Event::Progress { path, phase, steps });
        }
    }

    /// A phase that has not begun need not be paused.
    pub(crate) fn pause_trainer(&mut self, path: PathId) {
        match self.next_phase_of(path).and_then(Option::take) {
            Some(Task::Train(PhaseTask { path, phase, .. })) => {
                self.events.push_back(Event::Paused { path, phase, middle: None });
            }
            _ => self.devices.pause(path),
        }
    }

    /// Where the phase of a path is queued, if it has not begun.
    fn next_phase_of(&mut self, path: PathId) -> Option<&mut Option<Task>> {
        let is_it = |task: &Task| matches!(task, Task::Train(_)) && task.path() == path;
        let number = self.devices.all().iter().position(|device| device.task.as_ref().is_some_and(is_it))?;
        Some(&mut self.devices.get_mut(number).task)
    }

    /// A phase that has not begun makes one step.
    pub(crate) fn end_phase(&mut self, path: PathId) {
        match self.next_phase_of(path) {
            Some(Some(Task::Train(PhaseTask { part, resume, .. }))) => {
                part.last = (resume.map_or(part.first, |resume| resume.steps) + 1).min(part.last);
            }
            _ => self.devices.end_phase(path),
        }
    }

    /// The old thread's task is requested again, by the node or as the next evaluation.
    pub(crate) fn restart_trainer(&mut self, path: Option<PathId>) -> Result<(), PeerError> {
        let Some(number) = self.devices.of(path) else { return Ok(()) };
        let dropped = self.devices.restart(number).map_err(PeerError::TrainerThread)?;
        dropped.into_iter().for_each(|(path, phase)| self.scored(path, phase, None));
        Ok(())
    }

    /// The node uses this trainer no more.
    pub(crate) fn retire_trainer(&mut self, path: Option<PathId>) {
        if let Some(number) = self.devices.of(path) {
            self.retire(number);
        }
    }

    fn retire(&mut self, number: Number) {
        for (path, phase) in self.devices.retire(number) {
            self.scored(path, phase, None);
        }
    }

    pub(crate) fn reset_path(&mut self, path: PathId) {
        self.tasks.scored.remove(&path);
        self.tasks.best.remove(&path);
    }
}
