//! What each of a node's actions comes to here: the journal and the topics at once, the work of the combiner after a
//! while, as in a peer.

use super::Failure;
use super::invariants::carried_on;
use super::invariants::one_sum::{self, Summand};
use super::world::{Due, World};
use crate::compress::frame;
use crate::names::{BlobHash, BlobRef, ModuleId, Version};
use crate::outer::Share;
use crate::outer::exact_sum::ExactSum;
use crate::outer::step;
use crate::protocol::message::{Counted, SignedUpdate};
use crate::protocol::record::Record;
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
            Action::Publish { module, message } => return self.publish(index, module, message),
            Action::Learn { .. } => {}
            Action::Ask { id, to, request } => self.ask(index, id, to, request),
            Action::Reply { token, response } => self.reply(index, token, response),
            Action::Fetch { blob, from } => self.fetch(index, blob, from),
            Action::Forget(blob) => self.peers[index].disk.remove(blob),
            Action::Seal(update) => {
                let signature = sign(&update);
                self.event_at(index, 0, Event::Sealed(SignedUpdate { update, signature }));
            }
            Action::Train { path, trainer, .. } => {
                let carried_on = carried_on::look(&self.peers[index].disk.journal, path, trainer);
                carried_on.map_err(|wrong| self.failure("carried on", format!("peer {index}: {wrong}")))?;
                self.ask_trainer(index, action);
            }
            Action::Evaluate { path, phase, .. } => self.score(index, path, phase),
            // In order, one after the other.
            Action::Outer(work) => {
                let takes_ms = self.dice.draw([1, 60].into());
                let free_ms = self.peers[index].combiner_free_ms.max(self.now_ms) + takes_ms;
                self.peers[index].combiner_free_ms = free_ms;
                self.later(index, free_ms - self.now_ms, Due::Work(Box::new(work)));
            }
            Action::Pause => self.pause_trainer(index),
            Action::EndPhase => self.end_phase(index),
            Action::RestartTrainer => self.restart_trainer(index),
            Action::GiveUp { restarts } => {
                return Err(self.failure("driver", format!("peer {index} gives up after {restarts} restarts")));
            }
            Action::Gone => self.go(index),
            Action::Report(report) => return self.look(index, &report),
        }
        Ok(())
    }

    /// The combiner's.
    pub(super) fn outer(&mut self, index: usize, work: Outer) -> Result<(), Failure> {
        match work {
            Outer::OpenSum { module, target } => {
                self.peers[index]
                    .sums
                    .insert(module, (target, ExactSum::of_run(self.scenario.swarm.values, &self.outer)));
            }
            Outer::Accumulate { module, target, blob, weight } => {
                let valid = self.accumulate(index, module, target, blob, weight);
                self.event_at(index, 0, Event::Accumulated { module, target, blob, valid });
            }
            Outer::Combine { module, target, from, contributions, portion } => {
                let Some((sum, summands)) = self.summed(index, module, target, &contributions) else {
                    return Err(self.failure("disk", format!("module {module} cannot be combined")));
                };
                let one_sum = if summands.is_empty() { Ok(()) } else { one_sum::look(&sum, &summands, &self.outer) };
                one_sum.map_err(|wrong| self.failure("one sum", format!("peer {index}, module {module}: {wrong}")))?;
                let Some((average, state)) = self.combine(index, module, from, &sum, portion) else {
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

    fn accumulate(&mut self, index: usize, module: ModuleId, target: Version, blob: BlobHash, weight: u32) -> bool {
        let values = self.scenario.swarm.values;
        let peer = &mut self.peers[index];
        let Some((_, sum)) = peer.sums.get_mut(&module).filter(|(open, _)| *open == target) else { return false };
        let Some(frame) = peer.disk.get(blob) else { return false };
        frame::decode_as(self.outer.codec, frame, values).is_ok_and(|values| sum.add(&values, weight).is_ok())
    }

    /// The sum that is open for a version, and what it was made of.
    fn summed(
        &mut self,
        index: usize,
        module: ModuleId,
        target: Version,
        contributions: &[Counted],
    ) -> Option<(ExactSum, Vec<Summand>)> {
        let values = self.scenario.swarm.values;
        let peer = &mut self.peers[index];
        let (open, sum) = peer.sums.remove(&module)?;
        let weight: u64 = contributions.iter().map(|counted| u64::from(counted.weight)).sum();
        if open != target || sum.weight() != weight {
            return None;
        }
        let summand = |counted: &Counted| {
            let values = frame::decode(peer.disk.get(counted.blob.hash)?, values).ok()?;
            Some((values, counted.weight))
        };
        // What is no longer to be combined may have been let go of.
        let summands = contributions.iter().map(summand).collect::<Option<_>>().unwrap_or_default();
        Some((sum, summands))
    }

    fn combine(
        &mut self,
        index: usize,
        module: ModuleId,
        from: BlobRef,
        sum: &ExactSum,
        portion: Portion,
    ) -> Option<(BlobRef, BlobRef)> {
        let peer = &mut self.peers[index];
        let frame = step::combine(sum, portion.paths, &self.outer).ok()?;
        let (before, share) = (peer.disk.get(from.hash)?, Share::new(portion.weight, portion.full_weight));
        let state = step::apply(before, module, self.scenario.swarm.values, &frame, share, &self.outer).ok()?;
        Some((peer.disk.put(frame), peer.disk.put(state)))
    }
}
