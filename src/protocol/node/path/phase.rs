//! A trainer's work: when a path's next phase begins, and what follows from a finished one.
//!
//! There is no global barrier. A path continues as soon as each of its own modules has advanced from the path's base
//! version. In the asynchronous mode it waits, for a short time, only for its own contributions.

use crate::clock::Millis;
use crate::config::OuterMode;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase};
use crate::protocol::Node;
use crate::protocol::action::{Action, Report, Resume};
use crate::protocol::journal::record::{Finished, Record};
use crate::protocol::limits::{MAX_FROM_ONE_VERSION, NO_MAJORITY_MS, TEXT_MS};
use crate::protocol::module::offers::countable;
use crate::protocol::path::contributions::Contribution;
use crate::protocol::path::trainer::Training;
use crate::protocol::path::trainers::Number;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::wire::message::{Head, Message, Offer, Stage};

/// Whether a path can be trained.
pub(in crate::protocol) enum Readiness {
    /// It can, with this phase.
    Ready(Phase),
    /// The path was taken from this peer, and the state of its trainer is still to come.
    AwaitingHandOff(PeerKey),
    /// The text of this path of the grid is not here.
    Textless(PathId),
    /// All phases are done.
    Done,
    /// These modules are not here yet.
    Fetching(Vec<ModuleId>),
    /// These modules have not advanced since the path's last phase.
    NotUpdated(Vec<ModuleId>),
    /// The path skips the round of this module, which others train.
    Skipping(ModuleId),
}

/// Of the paths that are ready, the least goes first: the one furthest behind, with an interrupted phase, waiting
/// longest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    behind: Phase,
    begins: bool,
    last_trained: Millis,
    path: PathId,
    phase: Phase,
}

impl Node {
    pub(in crate::protocol) fn readiness(&self, path: PathId) -> Readiness {
        let modules = self.modules_of(path);
        let head = |module: &ModuleId| self.modules.get(module).and_then(|state| state.head());
        let fetching: Vec<ModuleId> = modules.iter().filter(|module| head(module).is_none()).copied().collect();
        let Some(phase) = self.phase(path) else { return Readiness::Fetching(fetching) };
        if let Some(from) = self.paths.hand_offs().donor(path) {
            return Readiness::AwaitingHandOff(from);
        }
        if phase.0 >= self.plan.phases {
            return Readiness::Done;
        }
        let resumable = self.resumable(path).map(|checkpoint| checkpoint.phase);
        let drawn = self.path_at(path, resumable.unwrap_or(phase));
        if self.paths.textless_since(drawn).is_some() {
            return Readiness::Textless(drawn);
        }
        if let Some(phase) = resumable {
            return Readiness::Ready(phase);
        }
        if let Some(stagger) = &self.plan.streaming {
            return self.streams(path, stagger);
        }
        let last = self.contributions.trained(path).next();
        let waits = |module: &ModuleId| {
            let Some(head) = head(module) else { return true };
            let here = self.plan.phase_of(*module, head);
            if here < phase && !self.is_left_behind(*module) {
                return true;
            }
            // The modules of the later phase may wait for this path.
            if self.plan.slots.are_drawn_anew() && here > phase {
                return false;
            }
            let offer = last.and_then(|last| last.offers.iter().find(|(from, _)| from.module == *module));
            let Some((from, blob)) = offer.filter(|_| !self.plan.is_done(*module, head)) else { return false };
            let moved = from.update != head.update;
            match self.plan.mode {
                OuterMode::Synchronous => !moved,
                OuterMode::Asynchronous => self.waits_for_its_own(path, from, blob.hash, moved),
            }
        };
        let waiting: Vec<ModuleId> = modules.into_iter().filter(waits).collect();
        match self.skips(path) {
            _ if !waiting.is_empty() => Readiness::NotUpdated(waiting),
            Some(module) => Readiness::Skipping(module),
            None => Readiness::Ready(phase),
        }
    }

    /// Whether a path waits for its own contribution, which would be missing from its next base state. It waits no
    /// longer than an owner may take. Then it continues without it, from the same version again if necessary, as often
    /// as such contributions may be counted.
    fn waits_for_its_own(&self, path: PathId, from: &BaseVersion, blob: BlobHash, moved: bool) -> bool {
        let chain = self.modules.get(&from.module).and_then(|state| state.history.chain());
        if chain.is_some_and(|chain| chain.has_counted((path, from.version, blob))) {
            return false;
        }
        let trained_at = self.paths.held().get(&path).map_or(Millis(0), |held| held.last_trained());
        let again = |finished: &&Finished| finished.offers.iter().any(|(other, _)| other == from);
        self.now.since(trained_at) < self.timeout_ms()
            || (!moved && self.contributions.trained(path).filter(again).count() >= MAX_FROM_ONE_VERSION)
    }

    /// Begins a phase on each free trainer for which a path is ready. The path that has waited longest goes first.
    pub(in crate::protocol) fn start_next_phase(&mut self) {
        let paths: Vec<PathId> = self.paths.held().keys().copied().collect();
        let mut ready: Vec<Turn> = Vec::new();
        for path in paths {
            let Some(held) = self.paths.held().get(&path).copied() else { continue };
            if !held.stage().is_active() || self.trainers.trains(path) {
                continue;
            }
            self.abandon_stale_checkpoint(path);
            // A path that was done continues if a heavier chain has not come as far.
            match self.readiness(path) {
                Readiness::Fetching(_) | Readiness::AwaitingHandOff(_) => {}
                Readiness::Done if held.stage() == Stage::Done => {}
                Readiness::Done => {
                    self.set_stage(path, Stage::Done);
                    self.act(Action::Report(Report::PathDone(path)));
                }
                Readiness::NotUpdated(_) => self.set_stage(path, Stage::Waiting),
                Readiness::Textless(drawn) => self.set_stage(path, self.stage_without_text(drawn)),
                Readiness::Skipping(_) => self.set_stage(path, Stage::Skipping),
                Readiness::Ready(phase) => {
                    self.set_stage(path, Stage::Waiting);
                    if self.is_promised(path) {
                        continue;
                    }
                    let begins = self.paths.checkpoint(path).is_none();
                    // In the asynchronous mode paths take turns. A path that is behind must not delay the others.
                    let behind = if self.plan.mode == OuterMode::Synchronous { phase } else { Phase(0) };
                    ready.push(Turn { behind, begins, last_trained: held.last_trained(), path, phase });
                }
            }
        }
        if self.lifecycle.rests_until(self.now).is_some() || self.lifecycle.is_leaving() {
            return;
        }
        ready.sort_unstable();
        for Turn { path, phase, .. } in ready {
            let Some(number) = self.trainers.free_for(path) else { break };
            self.train(number, path, phase);
        }
    }

    fn train(&mut self, number: Number, path: PathId, phase: Phase) {
        let checkpoint = self.paths.checkpoint(path);
        let resume = checkpoint.map(|checkpoint| Resume { steps: checkpoint.steps, blob: checkpoint.blob });
        let start = match (checkpoint, &self.plan.streaming) {
            (Some(checkpoint), _) => checkpoint.start.clone(),
            (None, Some(stagger)) => self.streamed_from(path, stagger),
            (None, None) => self.heads_of(path, phase),
        };
        self.set_stage(path, Stage::Training);
        let trainer = self.paths.trainer(path);
        let modules: Vec<ModuleId> = start.iter().map(|(from, _)| from.module).collect();
        let states = start.iter().map(|(_, state)| state.hash);
        let carried = trainer.into_iter().chain(resume.map(|resume| resume.blob)).map(|blob| blob.hash);
        let reads = states.chain(carried).collect();
        let made = resume.map(|resume| resume.steps);
        let part = self.next_part(path, modules, made, self.steps(path).max(made.unwrap_or(0)));
        let to_make = part.last.saturating_sub(made.unwrap_or(part.first));
        let until = self.phase_ends(path, to_make);
        let late = self.begins_late(path, resume.is_some());
        let training = Training {
            path,
            phase,
            part: part.clone(),
            start: start.clone(),
            reads,
            measured: (to_make, self.now),
            until,
            late,
            ends: false,
        };
        self.trainers.begin(number, training);
        self.act(Action::Train { path, phase, part, start, trainer, resume });
    }

    /// The text of a path is missing. Other paths are trained until it is here.
    pub(in crate::protocol) fn text_is_missing(&mut self, path: PathId, phase: Phase) {
        let drawn = self.path_at(path, phase);
        self.paths.text_is_missing(self.now, drawn);
        self.paused(path, phase, None);
    }

    /// The stage of a path without text. Rounds wait for it for a while, but no longer if the text does not come.
    fn stage_without_text(&self, drawn: PathId) -> Stage {
        match self.paths.textless_since(drawn) {
            Some(since) if self.now.since(since) >= TEXT_MS => Stage::Skipping,
            _ => Stage::Waiting,
        }
    }

    /// The heads of a path's modules.
    fn heads_of(&self, path: PathId, phase: Phase) -> Vec<(BaseVersion, BlobRef)> {
        let head = |module: ModuleId| {
            let head = self.modules.get(&module)?.head()?;
            Some((BaseVersion { module, version: head.version, update: head.update }, head.state))
        };
        self.plan.slots.modules(path, phase).into_iter().filter_map(head).collect()
    }

    pub(in crate::protocol) fn trained(&mut self, mut finished: Finished) {
        let number = self.trainers.of_finished(finished.path, finished.phase);
        let now = self.now;
        let stub = number.is_some_and(|number| {
            let trainer = self.trainers.get_mut(number);
            trainer.measure(now);
            trainer.is_stub()
        });
        self.drop_surplus(&mut finished);
        self.tell_too_late(&finished);
        self.act(Action::Persist(Record::Finished(finished.clone())));
        if let Some(number) = number {
            self.done_training(number);
            self.trainers.get_mut(number).watchdog_mut().got_further();
        }
        let path = finished.path;
        self.lifecycle.note_move();
        self.release_checkpoint(path);
        self.release_base_states(path);
        if self.paths.trained(now, path, stub) {
            if let Some(old) = self.paths.set_trainer(path, finished.trainer) {
                self.release(old.hash);
            }
        } else {
            self.release(finished.trainer.hash);
            finished.base_states.clear();
        }
        self.contributions.add(finished);
        self.trains_no_longer(path);
        self.offer_outstanding();
        self.release_contributions();
    }

    /// The state of a path's trainer after the end of the run.
    pub(in crate::protocol) fn reviewed(&mut self, path: PathId, trainer: BlobRef) {
        if self.paths.holds(path) {
            self.keep_trainer(path, trainer);
        } else {
            self.release(trainer.hash);
        }
    }

    /// Drops contributions that cannot count: those trained from an asynchronous module that was already done, and
    /// those with a base version from which another path is sampled.
    fn drop_surplus(&mut self, finished: &mut Finished) {
        let asynchronous = self.plan.mode == OuterMode::Asynchronous;
        let path = finished.path;
        let is_surplus = |(from, _): &mut (BaseVersion, BlobRef)| {
            let head = self.modules.get(&from.module).and_then(|state| state.head());
            let from_done = head.is_some_and(|head| head.update == from.update && self.plan.is_done(from.module, head));
            let contributes = self.plan.contributes(path, from.version, from.module);
            (asynchronous && from_done) || !contributes
        };
        let surplus: Vec<_> = finished.offers.extract_if(.., is_surplus).collect();
        for (_, blob) in surplus {
            self.release(blob.hash);
        }
    }

    /// Reports contributions that are already too late: their modules have advanced too far, or were rolled back too
    /// far.
    fn tell_too_late(&mut self, finished: &Finished) {
        for (from, _) in &finished.offers {
            let head = self.modules.get(&from.module).and_then(|state| state.head());
            if head.is_some_and(|head| !countable(head.version, from.version)) {
                self.tell_lost_one(from.module, finished.path, from.version);
            }
        }
    }

    pub(in crate::protocol) fn done_training(&mut self, number: Number) {
        for blob in self.trainers.get_mut(number).end() {
            self.release(blob);
        }
    }

    fn trains_no_longer(&mut self, path: PathId) {
        if self.paths.held().get(&path).is_some_and(|held| held.stage() == Stage::Training) {
            self.set_stage(path, Stage::Waiting);
        }
    }

    /// The contributions that this node can offer, and that no update counts but one still may. A contribution whose
    /// rival was counted instead is not among them.
    pub(in crate::protocol) fn outstanding_offers(&self) -> impl Iterator<Item = Contribution> {
        self.contributions.all().filter(|offer| {
            let Some(state) = self.modules.get(&offer.module) else { return false };
            state.history.chain().is_some_and(|chain| {
                let head = chain.head();
                let open = !self.plan.is_done(offer.module, head) && countable(head.version, offer.parent);
                let made_twice = state.offers.is_counted_from((offer.path, offer.parent, offer.parent_update));
                open && !made_twice && !chain.has_counted(offer.key())
            })
        })
    }

    /// The contributions that this node's chain has counted after the head of an owner that does not follow it. Perhaps no
    /// other member does, and the owner waits for them.
    fn unknown_to_owners(&self) -> impl Iterator<Item = Contribution> {
        self.contributions.all().filter(|offer| {
            let Some(state) = self.modules.get(&offer.module) else { return false };
            let (Some(chain), Some(owner)) = (state.history.chain(), state.leadership.owner()) else { return false };
            let mut heads = self.membership.roster().heads(self.now, offer.module);
            let head = heads.find(|(peer, _)| *peer == owner).map(|(_, head)| head);
            let waits = self.now.since(state.history.advanced()) >= NO_MAJORITY_MS;
            let follows = |head: &Head| chain.update_of(head.version) == Some(head.update);
            head.filter(follows).is_some_and(|head| {
                waits && countable(head.version, offer.parent) && chain.has_counted_after(head.version, offer.key())
            })
        })
    }

    pub(in crate::protocol) fn repeat_offers(&mut self) {
        if self.contributions.offer_is_due(self.now, self.membership.response_times().repeat_ms()) {
            self.offer_outstanding();
        }
    }

    fn offer_outstanding(&mut self) {
        self.contributions.offered(self.now);
        let outstanding: Vec<_> = self.outstanding_offers().chain(self.unknown_to_owners()).collect();
        let me = self.me;
        for Contribution { module, path, parent, parent_update, steps, blob } in outstanding {
            let sequence = self.out.next_sequence();
            let router = self.plan.router_at(parent);
            let offer = Offer { path, parent, parent_update, router, steps, blob, sequence };
            self.heard_offer(module, me, offer.clone());
            self.act(Action::Publish { module, message: Message::Offer(offer) });
        }
    }
}
