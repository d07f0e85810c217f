//! Carries out a node's actions: journal and topics at once, the aggregator's work after a delay, as in a peer.

use std::convert::Infallible;

use crate::names::{BlobHash, BlobRef, ModuleId, PeerKey, RunId, Term, Version};
use crate::outer::exact_sum::ExactSum;
use crate::outer::recount::{NotSo, Onto, Part, check_average, each_counted, measured, recount};
use crate::outer::step;
use crate::outer::{ModuleState, OpenSum, Share};
use crate::protocol::journal::record::Record;
use crate::protocol::reputation::norm_cap::capped_weight;
use crate::protocol::wire::contribution_list::{list_bytes, read_list};
use crate::protocol::wire::encoding;
use crate::protocol::wire::message::{Counted, SignedUpdate, claim_bytes};
use crate::protocol::{Action, Event, Outer, Portion, Update};
use crate::simulator::Failure;
use crate::simulator::invariants::carried_on;
use crate::simulator::invariants::one_sum;
use crate::simulator::invariants::one_sum::Summand;
use crate::simulator::world::{Due, World};

pub(super) fn sign(update: &Update) -> Vec<u8> {
    let bytes = encoding::encode(update).unwrap_or_default();
    blake3::keyed_hash(&update.owner.0, &bytes).as_bytes().to_vec()
}

/// The owner's signature over its claim of a term.
pub(super) fn claim(module: ModuleId, (term, owner): (Term, PeerKey)) -> Vec<u8> {
    blake3::keyed_hash(&owner.0, &claim_bytes(RunId([0; 32]), module, term, owner)).as_bytes().to_vec()
}

fn parts(contributions: &[Counted]) -> Vec<Part> {
    contributions.iter().map(|it| Part { blob: it.blob, weight: it.weight, norm: it.norm }).collect()
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
            Action::Fetch { blob, from } => self.fetch(index, blob, &from),
            Action::Release(blob) => self.peers[index].disk.remove(blob),
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
                let takes_ms = self.rng.draw([1, 60].into());
                let free_ms = self.peers[index].aggregator_free_ms.max(self.now_ms) + takes_ms;
                self.peers[index].aggregator_free_ms = free_ms;
                self.later(index, free_ms - self.now_ms, Due::Work(Box::new(work)));
            }
            Action::Pause { path } => self.pause_trainer(index, path),
            Action::EndPhase { path } => self.end_phase(index, path),
            Action::RestartTrainer { path } => self.restart_trainer(index, path),
            Action::RetireTrainer { path } => {
                return Err(self.failure("driver", format!("peer {index} retires the trainer of path {path:?}")));
            }
            Action::ReadAmendment(blob) => self.read_amendment(index, blob),
            Action::GiveUp { restarts } => {
                return Err(self.failure("driver", format!("peer {index} gives up after {restarts} restarts")));
            }
            Action::Gone => self.go(index),
            Action::Report(report) => return self.look(index, &report),
        }
        Ok(())
    }

    /// The aggregator's work.
    pub(super) fn outer(&mut self, index: usize, work: Outer) -> Result<(), Failure> {
        match work {
            Outer::OpenSum { module, target, running } => {
                let sum = OpenSum::new(self.scenario.swarm.values, running);
                self.peers[index].sums.insert(module, (target, sum));
            }
            Outer::Accumulate { module, target, blob, weight } => {
                let norm = self.accumulate(index, module, target, blob, weight);
                self.event_at(index, 0, Event::Accumulated { module, target, blob, norm });
            }
            Outer::Combine { module, target, from, contributions, portion } => {
                let onto = self.onto(module, Some(from), portion);
                let Some((sum, summands)) = self.summed(index, target, &contributions, &onto) else {
                    return Err(self.failure("disk", format!("module {module} cannot be combined")));
                };
                let one_sum = if summands.is_empty() { Ok(()) } else { one_sum::look(&sum, &summands) };
                one_sum.map_err(|wrong| self.failure("one sum", format!("peer {index}, module {module}: {wrong}")))?;
                if let Some(list) = list_bytes(&contributions) {
                    self.peers[index].disk.put(list);
                }
                let sum = sum.capped_from(portion.uncapped);
                let Some((average, state)) = self.combine(index, module, from, &sum, portion) else {
                    return Err(self.failure("disk", format!("module {module} cannot be combined")));
                };
                self.event_at(index, 0, Event::Combined { module, target, average, state });
            }
            Outer::Audit { module, id, contributions, average, portion, from } => {
                let onto = self.onto(module, from, portion);
                let so = self.audit(index, &contributions, average, (portion, onto));
                self.event_at(index, 0, Event::Audited { id, so });
            }
            Outer::Inspect { id, blob, .. } => {
                let frame = self.peers[index].disk.get(blob.hash);
                let so = frame.map(|frame| measured(frame, self.scenario.swarm.values, &self.outer).is_ok());
                self.event_at(index, 0, Event::Audited { id, so });
            }
            Outer::Decode { module, state } => {
                let bytes = self.peers[index].disk.get(state.hash);
                let values = self.scenario.swarm.values;
                let so = bytes.is_some_and(|bytes| ModuleState::decode(bytes, module, values).is_ok());
                self.event_at(index, 0, Event::Decoded { module, state: state.hash, so });
            }
            Outer::ReadList { list, .. } => {
                let contributions = self.peers[index].disk.get(list.hash).and_then(|bytes| read_list(bytes));
                self.event_at(index, 0, Event::ListRead { list: list.hash, contributions });
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
        if let Err(error) = encoding::encode(&record) {
            return Err(self.failure("journal", error.to_string()));
        }
        if let Record::Left(module) = &record {
            self.invariants.none_lost.left(index, *module);
        }
        if let Record::Finished(finished) = &record {
            for (from, blob) in &finished.offers {
                if self.plan.can_count(from.version) {
                    let once = self.plan.counts_once();
                    let contribution = (finished.path, from.version, blob.hash);
                    let update = once.then_some(from.update);
                    self.invariants.none_lost.trained(index, from.module, contribution, update);
                }
            }
        }
        self.peers[index].disk.journal.push(record);
        Ok(())
    }

    fn accumulate(
        &mut self,
        index: usize,
        module: ModuleId,
        target: Version,
        blob: BlobHash,
        weight: u32,
    ) -> Option<u16> {
        let (values, cap) = (self.scenario.swarm.values, self.outer.cap());
        let peer = &mut self.peers[index];
        let (_, sum) = peer.sums.get_mut(&module).filter(|(open, _)| *open == target)?;
        let gradient = measured(peer.disk.get(blob)?, values, &self.outer).ok()?;
        let norm = gradient.norm();
        if sum.running() > 0 && !self.outer.centred_clipping {
            sum.add(blob, &gradient, capped_weight(weight, norm, sum.running(), cap)).ok()?;
        }
        Some(norm)
    }

    fn onto(&self, module: ModuleId, from: Option<BlobRef>, portion: Portion) -> Onto {
        Onto { module, count: self.scenario.swarm.values, from, paths: portion.paths }
    }

    fn audit(
        &self,
        index: usize,
        contributions: &[Counted],
        average: BlobRef,
        (portion, onto): (Portion, Onto),
    ) -> Option<bool> {
        let disk = &self.peers[index].disk;
        let bytes = |blob: BlobRef| Ok::<_, Infallible>(disk.get(blob.hash).cloned());
        let sum = recount(&parts(contributions), &onto, &self.outer, bytes).ok()?;
        match sum {
            Ok(sum) => {
                let sum = sum.capped_from(portion.uncapped);
                Some(check_average(&sum, disk.get(average.hash)?, portion.paths, &self.outer).is_ok())
            }
            Err(NotSo::Gone(_) | NotSo::NoState) => None,
            Err(_) => Some(false),
        }
    }

    /// The open sum of a version, and its contributions.
    fn summed(
        &mut self,
        index: usize,
        target: Version,
        contributions: &[Counted],
        onto: &Onto,
    ) -> Option<(ExactSum, Vec<Summand>)> {
        let peer = &mut self.peers[index];
        let (_, open) = peer.sums.remove(&onto.module).filter(|(open, _)| *open == target)?;
        let bytes = |blob: BlobRef| Ok::<_, Infallible>(peer.disk.get(blob.hash).cloned());
        let sum = match open.of(&parts(contributions)) {
            Some((sum, _)) => sum,
            None => recount(&parts(contributions), onto, &self.outer, bytes).ok()?.ok()?,
        };
        let mut summands = Vec::new();
        let added = each_counted(&parts(contributions), onto, &self.outer, bytes, |values, weight| {
            summands.push((values.to_vec(), weight));
            Ok(())
        });
        // Blobs that are no longer needed may have been released.
        let all = matches!(added, Ok(Ok(())));
        Some((sum, if all { summands } else { Vec::new() }))
    }

    fn combine(
        &mut self,
        index: usize,
        module: ModuleId,
        from: BlobRef,
        sum: &ExactSum,
        portion: Portion,
    ) -> Option<(BlobRef, BlobRef)> {
        let right = step::combine(sum, portion.paths, &self.outer).ok()?;
        let frame = self.wrong_average(index, right);
        let peer = &mut self.peers[index];
        let (before, share) = (peer.disk.get(from.hash)?, Share::new(portion.weight, portion.full_weight));
        let state = step::apply(before, module, self.scenario.swarm.values, &frame, share, &self.outer).ok()?;
        Some((peer.disk.put(frame), peer.disk.put(state)))
    }
}
