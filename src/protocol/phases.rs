//! A trainer's part: when a path's next phase begins, and what becomes of what was trained.
//!
//! There is no barrier: a path goes on as soon as each of its own modules has moved on from what the path last
//! started from.

use super::action::{Action, Report};
use super::limits::{OFFER_REPEAT_MS, VERSIONS_KEPT};
use super::message::{Message, Offer, Stage};
use super::record::{Finished, Record, StartedFrom};
use super::{Held, Node};
use crate::names::{BlobRef, ModuleId, PathId, Phase};

/// Whether a path can go on.
pub(super) enum Readiness {
    /// Now, with this phase.
    Ready(Phase),
    /// All phases are done.
    Done,
    /// These modules are not here yet.
    Fetching(Vec<ModuleId>),
    /// These modules have not moved on since the path's last phase.
    NotUpdated(Vec<ModuleId>),
}

impl Node {
    pub(super) fn readiness(&self, path: PathId) -> Readiness {
        let modules = self.plan.grid.modules_of(path);
        let head = |module: &ModuleId| self.modules.get(module).and_then(|state| state.head());
        let fetching: Vec<ModuleId> = modules.iter().filter(|module| head(module).is_none()).copied().collect();
        let Some(phase) = self.phase(path) else { return Readiness::Fetching(fetching) };
        if phase.0 >= self.plan.phases {
            return Readiness::Done;
        }
        let last = self.finished.iter().rev().find(|finished| finished.path == path);
        let waits = |module: &ModuleId| {
            let Some(head) = head(module) else { return true };
            let done = head.version.0 >= self.plan.phases;
            let started_from = last.and_then(|last| last.offers.iter().find(|(from, _)| from.module == *module));
            !done && started_from.is_some_and(|(from, _)| from.update == head.update)
        };
        let waiting: Vec<ModuleId> = modules.into_iter().filter(waits).collect();
        if waiting.is_empty() { Readiness::Ready(phase) } else { Readiness::NotUpdated(waiting) }
    }

    /// Begins a phase, if nothing is training and a path is ready: the one that has waited longest.
    pub(super) fn start_next_phase(&mut self) {
        let paths: Vec<PathId> = self.held.keys().copied().collect();
        let mut ready: Option<(Phase, Held, PathId)> = None;
        for path in paths {
            let Some(held) = self.held.get(&path).copied() else { continue };
            if matches!(held.stage, Stage::Standby | Stage::Done | Stage::Training) {
                continue;
            }
            match self.readiness(path) {
                Readiness::Fetching(_) => {}
                Readiness::Done => {
                    self.set_stage(path, Stage::Done);
                    self.act(Action::Report(Report::PathDone(path)));
                }
                Readiness::NotUpdated(_) => self.set_stage(path, Stage::Waiting),
                Readiness::Ready(phase) => {
                    self.set_stage(path, Stage::Waiting);
                    let sooner = |other: &(Phase, Held, PathId)| {
                        (phase, held.last_trained, path) < (other.0, other.1.last_trained, other.2)
                    };
                    if ready.as_ref().is_none_or(sooner) {
                        ready = Some((phase, held, path));
                    }
                }
            }
        }
        let training = self.held.values().any(|held| held.stage == Stage::Training);
        if let Some((phase, _, path)) = ready.filter(|_| !training && !self.training_yielded) {
            self.train(path, phase);
        }
    }

    fn train(&mut self, path: PathId, phase: Phase) {
        let start: Vec<_> = self
            .plan
            .grid
            .modules_of(path)
            .into_iter()
            .filter_map(|module| {
                let head = self.modules.get(&module)?.head()?;
                Some((StartedFrom { module, version: head.version, update: head.update }, head.state))
            })
            .collect();
        self.set_stage(path, Stage::Training);
        let trainer = self.trainers.get(&path).copied();
        self.act(Action::Train { path, phase, start, trainer });
    }

    pub(super) fn trained(&mut self, finished: Finished) {
        self.act(Action::Persist(Record::Finished(finished.clone())));
        self.training_yielded = false;
        let path = finished.path;
        let now = self.now;
        if let Some(held) = self.held.get_mut(&path) {
            held.last_trained = now;
            if let Some(old) = self.trainers.insert(path, finished.trainer)
                && old != finished.trainer
            {
                self.act(Action::Forget(old.hash));
            }
        } else {
            self.act(Action::Forget(finished.trainer.hash));
        }
        self.finished.push_back(finished);
        self.set_stage(path, Stage::Waiting);
        self.offer_outstanding();
        self.release_finished();
    }

    /// The path is tried again from its modules' heads at the next event.
    pub(super) fn training_failed(&mut self, path: PathId) {
        self.training_yielded = false;
        self.set_stage(path, Stage::Waiting);
    }

    /// What this node offered and no update counts.
    pub(super) fn outstanding_offers(&self) -> impl Iterator<Item = (PathId, StartedFrom, BlobRef)> {
        self.finished
            .iter()
            .flat_map(|finished| finished.offers.iter().map(|(from, blob)| (finished.path, *from, *blob)))
            .filter(|(path, from, _)| {
                let chain = self.modules.get(&from.module).and_then(|state| state.chain.as_ref());
                chain.is_some_and(|chain| {
                    let head = chain.head().version;
                    let alive = head.0 < self.plan.phases && head.0.saturating_sub(from.version.0) < VERSIONS_KEPT;
                    alive && !chain.has_counted(*path, from.version)
                })
            })
    }

    pub(super) fn repeat_offers(&mut self) {
        if self.now.since(self.offered_at) >= OFFER_REPEAT_MS {
            self.offer_outstanding();
        }
    }

    fn offer_outstanding(&mut self) {
        self.offered_at = self.now;
        let outstanding: Vec<_> = self.outstanding_offers().collect();
        let me = self.me;
        for (path, from, blob) in outstanding {
            let offer = Offer { path, parent: from.version, parent_update: from.update, router: 0, blob };
            self.heard_offer(from.module, me, offer.clone());
            if !self.owns(from.module) {
                self.act(Action::Publish { module: from.module, message: Message::Offer(offer) });
            }
        }
    }

    /// Contributions are kept for so many versions, counted or not: a merge may need them again.
    pub(super) fn release_finished(&mut self) {
        let modules = &self.modules;
        let keeps = |finished: &Finished| {
            finished.offers.iter().any(|(from, _)| {
                let head = modules.get(&from.module).and_then(|state| state.head());
                head.is_some_and(|head| head.version.0.saturating_sub(from.version.0) < VERSIONS_KEPT)
            })
        };
        let (kept, released): (Vec<_>, Vec<_>) = self.finished.drain(..).partition(|finished| keeps(finished));
        self.finished = kept.into();
        for (_, blob) in released.iter().flat_map(|finished| &finished.offers) {
            self.actions.push(Action::Forget(blob.hash));
        }
    }
}
