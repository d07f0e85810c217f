//! What each of a node's actions comes to here: the journal and the topics at once, the work of trainer and combiner
//! after a while, as in a peer.

use super::world::{Due, INNER_STEPS, World};
use super::{Failure, learner};
use crate::compress::frame;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, Version};
use crate::outer::Share;
use crate::outer::exact_sum::ExactSum;
use crate::outer::state::ModuleState;
use crate::outer::step;
use crate::protocol::message::{Counted, SignedUpdate};
use crate::protocol::record::{Finished, Record, StartedFrom};
use crate::protocol::{Action, Event, Outer, Portion, Update, wire};

pub(super) fn sign(update: &Update) -> Vec<u8> {
    let bytes = wire::encode(update).unwrap_or_default();
    blake3::keyed_hash(&update.owner.0, &bytes).as_bytes().to_vec()
}

impl World {
    pub(super) fn carry_out(&mut self, index: usize, action: Action) -> Result<(), Failure> {
        match action {
            Action::Persist(record) => return self.persist(index, record),
            Action::Subscribe(module) => {
                self.hearers.entry(module).or_default().insert(index);
            }
            Action::Unsubscribe(module) => {
                self.hearers.entry(module).or_default().remove(&index);
            }
            Action::Publish { module, message } => return self.publish(index, module, &message),
            Action::Learn { .. } => {}
            Action::Ask { id, to, request } => self.ask(index, id, to, request),
            Action::Reply { token, response } => self.reply(index, token, response),
            Action::Fetch { blob, from } => self.fetch(index, blob, from),
            Action::Forget(blob) => self.peers[index].disk.remove(blob),
            Action::Seal(update) => {
                let signature = sign(&update);
                self.event_at(index, 0, Event::Sealed(SignedUpdate { update, signature }));
            }
            // Its text may have to be fetched first.
            Action::Train { .. } => {
                let after_ms = self.dice.draw([0, 1_000].into());
                self.later(index, after_ms, Due::Work(action));
            }
            Action::Evaluate { path, phase, .. } => {
                let after_ms = self.dice.draw([100, 2_000].into());
                let score = Some((path.0 + 1) * 1_000);
                self.event_at(index, after_ms, Event::Evaluated { path, phase, millibits_per_byte: score });
            }
            // In order, one after the other.
            Action::Outer(_) => {
                let takes_ms = self.dice.draw([1, 60].into());
                let free_ms = self.peers[index].combiner_free_ms.max(self.now_ms) + takes_ms;
                self.peers[index].combiner_free_ms = free_ms;
                self.later(index, free_ms - self.now_ms, Due::Work(action));
            }
            // Its trainers neither die nor hang, nor can they be stopped in the middle.
            Action::RestartTrainer | Action::GiveUp { .. } | Action::Pause | Action::Gone => {}
            Action::Report(report) => return self.look(index, &report),
        }
        Ok(())
    }

    /// What a worker does when it gets to it.
    pub(super) fn work(&mut self, index: usize, action: Action) -> Result<(), Failure> {
        match action {
            Action::Train { path, phase, steps, start, trainer, .. } => {
                let offers = self.train(index, path, steps, &start, trainer)?;
                let trainer = self.peers[index].disk.put(format!("{path} {phase} {index}").into_bytes());
                let phase_ms = self.dice.draw(self.scenario.swarm.phase_ms) * self.scenario.slowness(index);
                let after_ms = phase_ms * steps / INNER_STEPS;
                self.event_at(index, after_ms, Event::Trained(Finished { path, phase, offers, trainer }));
            }
            Action::Outer(work) => return self.outer(index, work),
            other => return Err(self.failure("driver", format!("no work: {other:?}"))),
        }
        Ok(())
    }

    fn outer(&mut self, index: usize, work: Outer) -> Result<(), Failure> {
        match work {
            Outer::OpenSum { module, target } => {
                self.peers[index].sums.insert(module, (target, ExactSum::new(self.scenario.swarm.values)));
            }
            Outer::Accumulate { module, target, blob, weight } => {
                let valid = self.accumulate(index, module, target, blob, weight);
                self.event_at(index, 0, Event::Accumulated { module, target, blob, valid });
            }
            Outer::Combine { module, target, from, contributions, portion } => {
                let Some((average, state)) = self.combine(index, (module, target), from, &contributions, portion)
                else {
                    return Err(self.failure("disk", format!("module {module} cannot be combined")));
                };
                self.event_at(index, 0, Event::Combined { module, target, average, state });
            }
            Outer::Apply { module, version, from, average, portion } => {
                let disk = &mut self.peers[index].disk;
                let Some((state, frame)) = disk.get(from.hash).zip(disk.get(average.hash)) else {
                    let detail = format!("peer {index}: a blob is gone that module {module} version {version} needs");
                    return Err(self.failure("disk", detail));
                };
                let share = Share::new(portion.weight, portion.full_weight);
                let made = step::apply(state, module, self.scenario.swarm.values, frame, share, &self.outer).ok();
                let state = made.map(|bytes| disk.put(bytes));
                self.event_at(index, 0, Event::Applied { module, version, state });
            }
        }
        Ok(())
    }

    fn persist(&mut self, index: usize, record: Record) -> Result<(), Failure> {
        if let Err(error) = wire::encode(&record) {
            return Err(self.failure("journal", error.to_string()));
        }
        if let Record::Left(module) = &record {
            self.invariants.none_lost.left(index, *module);
        }
        if let Record::Finished(finished) = &record {
            for (from, blob) in &finished.offers {
                if self.plan.can_count(from.version) {
                    self.invariants.none_lost.trained(index, from.module, (finished.path, from.version, blob.hash));
                }
            }
        }
        self.peers[index].disk.journal.push(record);
        Ok(())
    }

    fn train(
        &mut self,
        index: usize,
        path: PathId,
        steps: u64,
        start: &[(StartedFrom, BlobRef)],
        trainer: Option<BlobRef>,
    ) -> Result<Vec<(StartedFrom, BlobRef)>, Failure> {
        let values = self.scenario.swarm.values;
        let disk = &mut self.peers[index].disk;
        let is_here = trainer.is_none_or(|trainer| disk.get(trainer.hash).is_some());
        let mut offers = Vec::new();
        for (from, state) in start.iter().filter(|_| is_here) {
            let state = disk.get(state.hash).and_then(|bytes| ModuleState::decode(bytes, from.module, values).ok());
            let frame = state.and_then(|state| {
                let target = learner::target(from.module, path, values, self.scenario.swarm.likeness);
                let share = steps as f32 / INNER_STEPS as f32;
                let gradient = learner::outer_gradient(&target, index, share, &state.parameters);
                frame::encode(self.outer.codec, &gradient).ok()
            });
            offers.extend(frame.map(|frame| (*from, disk.put(frame))));
        }
        if offers.len() < start.len() {
            return Err(self.failure("disk", format!("peer {index}: path {path} starts from what is gone")));
        }
        Ok(offers)
    }

    fn accumulate(&mut self, index: usize, module: ModuleId, target: Version, blob: BlobHash, weight: u32) -> bool {
        let values = self.scenario.swarm.values;
        let peer = &mut self.peers[index];
        let Some((_, sum)) = peer.sums.get_mut(&module).filter(|(open, _)| *open == target) else { return false };
        let Some(frame) = peer.disk.get(blob) else { return false };
        frame::decode(frame, values).is_ok_and(|values| sum.add(&values, weight).is_ok())
    }

    fn combine(
        &mut self,
        index: usize,
        (module, target): (ModuleId, Version),
        from: BlobRef,
        contributions: &[Counted],
        portion: Portion,
    ) -> Option<(BlobRef, BlobRef)> {
        let weight: u64 = contributions.iter().map(|counted| u64::from(counted.weight)).sum();
        let peer = &mut self.peers[index];
        let (open, sum) = peer.sums.remove(&module)?;
        if open != target || sum.weight() != weight {
            return None;
        }
        let frame = step::combine(&sum, portion.paths, &self.outer).ok()?;
        let (before, share) = (peer.disk.get(from.hash)?, Share::new(portion.weight, portion.full_weight));
        let state = step::apply(before, module, self.scenario.swarm.values, &frame, share, &self.outer).ok()?;
        Some((peer.disk.put(frame), peer.disk.put(state)))
    }
}
