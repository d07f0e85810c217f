//! Training in the simulation: a trainer takes a phase in hand after a while, reports progress, stores checkpoints,
//! pauses on request, resumes, and offers outer gradients, compressed with error feedback as in a peer.

use crate::compress::compress_with_feedback;
use crate::names::{BlobRef, ModuleId, PathId, Phase};
use crate::outer::mix;
use crate::outer::state::ModuleState;
use crate::protocol::journal::record::Finished;
use crate::protocol::wire::inner_checkpoint::BaseVersion;
use crate::protocol::wire::message::UpdateHash;
use crate::protocol::{Action, Event};
use crate::simulator::Failure;
use crate::simulator::peer::carried_state::CarriedState;
use crate::simulator::peer::learner::{self, Descent, INNER_STEPS};
use crate::simulator::peer::trainer::InHand;
use crate::simulator::world::{Due, World};

/// Interval at which a copier looks for something to copy.
const COPY_RETRY_MS: u64 = 100;

/// Time after which it contributes its own result.
const LONGEST_WAIT_MS: u64 = 5_000;

/// The number of a peer, and that of one of its trainers.
type OfPeer = (usize, usize);

impl World {
    /// A phase is requested. Its text may have to be fetched first.
    pub(super) fn ask_trainer(&mut self, index: usize, action: Action) {
        let after_ms = self.rng.draw([0, 1_000].into());
        let number = self.peers[index].trainer_of(None);
        let trainer = &mut self.peers[index].trainers[number];
        (trainer.asked, trainer.pauses, trainer.ends) = (Some(action), false, false);
        self.trainer_later((index, number), after_ms);
    }

    fn trainer_later(&mut self, (index, number): OfPeer, after_ms: u64) {
        let trainer = &mut self.peers[index].trainers[number];
        trainer.next += 1;
        let next = trainer.next;
        self.later(index, after_ms, Due::Trainer(number, next));
    }

    /// A phase that has not begun need not be paused.
    pub(super) fn pause_trainer(&mut self, index: usize, path: PathId) {
        let number = self.peers[index].trainer_of(Some(path));
        let trainer = &mut self.peers[index].trainers[number];
        if let Some(Action::Train { path, phase, .. }) = trainer.asked.take() {
            return self.event_at(index, 0, Event::Paused { path, phase, middle: None });
        }
        trainer.pauses = true;
        self.end_step((index, number));
    }

    /// A phase that has not begun makes one step.
    pub(super) fn end_phase(&mut self, index: usize, path: PathId) {
        let number = self.peers[index].trainer_of(Some(path));
        self.peers[index].trainers[number].ends = true;
        self.end_step((index, number));
    }

    /// The present stride ends with the present step.
    fn end_step(&mut self, (index, number): OfPeer) {
        let now_ms = self.now_ms;
        let Some(in_hand) = &mut self.peers[index].trainers[number].in_hand else { return };
        let step_ms = in_hand.phase_ms.div_ceil(INNER_STEPS);
        in_hand.until_ms = in_hand.until_ms.min(now_ms + step_ms);
        self.trainer_later((index, number), step_ms);
    }

    /// A checkpoint is to be scored.
    pub(super) fn score(&mut self, index: usize, path: PathId, phase: Phase) {
        let after_ms = self.rng.draw([100, 2_000].into());
        for (batches, at_ms) in [(0, 0), (1, 50)] {
            self.event_at(index, at_ms, Event::Progress { path, phase, steps: batches });
        }
        let number = self.peers[index].trainer_of(None);
        let trainer = &mut self.peers[index].trainers[number];
        if trainer.hangs {
            trainer.scoring = Some((path, phase));
            return;
        }
        let score = Some((path.0 + 1) * 1_000);
        self.event_at(index, after_ms, Event::Evaluated { path, phase, millibits_per_byte: score });
    }

    pub(super) fn restart_trainer(&mut self, index: usize, path: Option<PathId>) {
        let number = self.peers[index].trainer_of(path);
        let trainer = &mut self.peers[index].trainers[number];
        let scoring = trainer.scoring;
        trainer.restart();
        if let Some((path, phase)) = scoring {
            self.event_at(index, 0, Event::Evaluated { path, phase, millibits_per_byte: None });
        }
    }

    /// The thread dies, which is noticed at once.
    pub(super) fn kill_trainer(&mut self, index: usize) {
        let number = self.any_trainer(index);
        let path = self.peers[index].trainers[number].path();
        self.restart_trainer(index, path);
        self.event_at(index, 0, Event::TrainerDied { path });
    }

    /// One of a peer's trainers.
    pub(super) fn any_trainer(&mut self, index: usize) -> usize {
        match self.peers[index].trainers.len() {
            1 => 0,
            several => self.rng.pick(several),
        }
    }

    /// Begins, or ends a stride.
    pub(super) fn train_on(&mut self, (index, number): OfPeer, next: u64) -> Result<(), Failure> {
        let now_ms = self.now_ms;
        let trainer = &mut self.peers[index].trainers[number];
        // A hanging trainer blocks all later requests.
        if next != trainer.next || trainer.scoring.is_some() {
            return Ok(());
        }
        if let Some(asked) = trainer.asked.take() {
            return self.take_in_hand((index, number), asked);
        }
        let Some(in_hand) = &mut trainer.in_hand else { return Ok(()) };
        if now_ms < in_hand.until_ms {
            // It was frozen meanwhile.
            let after_ms = in_hand.until_ms - now_ms;
            self.trainer_later((index, number), after_ms);
            return Ok(());
        }
        if trainer.hangs && in_hand.carried.steps > in_hand.first {
            return Ok(());
        }
        in_hand.make(now_ms);
        let stepped = in_hand.carried.steps > in_hand.first;
        if in_hand.carried.steps >= in_hand.part.last || (trainer.ends && in_hand.carried.steps > in_hand.part.first) {
            let (path, start) = (in_hand.path, in_hand.start.clone());
            if now_ms < in_hand.until_ms + LONGEST_WAIT_MS && self.waits_for_a_copy(index, path, &start) {
                self.trainer_later((index, number), COPY_RETRY_MS);
                return Ok(());
            }
            return self.finish_phase((index, number));
        }
        let (path, phase, steps) = (in_hand.path, in_hand.phase, in_hand.carried.steps);
        let middle = in_hand.carried.encode();
        if trainer.pauses {
            trainer.in_hand = None;
            let blob = stepped.then(|| self.peers[index].disk.put(middle));
            let middle = blob.map(|blob| (steps, blob));
            return self.handle(index, Event::Paused { path, phase, middle });
        }
        in_hand.begin_stride(now_ms);
        let after_ms = in_hand.until_ms - now_ms;
        self.trainer_later((index, number), after_ms);
        let blob = self.peers[index].disk.put(middle);
        self.handle(index, Event::Checkpointed { path, phase, steps, blob })
    }

    fn take_in_hand(&mut self, (index, of_peer): OfPeer, asked: Action) -> Result<(), Failure> {
        let Action::Train { path, phase, part, start, trainer, resume } = asked else {
            return Err(self.failure("driver", format!("no phase: {asked:?}")));
        };
        let now_ms = self.now_ms;
        let phase_ms = self.rng.draw(self.scenario.swarm.phase_ms) * self.scenario.slowness(index);
        let swarm = &self.scenario.swarm;
        let disk = &self.peers[index].disk;
        let state = |(from, state): &(BaseVersion, BlobRef)| {
            ModuleState::decode(disk.get(state.hash)?, from.module, swarm.values).ok().map(|state| state.parameters)
        };
        let before: Option<Vec<Vec<f32>>> = start.iter().map(state).collect();
        let blob = resume.map(|resume| resume.blob).or(trainer);
        let bytes = blob.map(|blob| disk.get(blob.hash));
        let (Some(before), false) = (before, bytes == Some(None)) else {
            return Err(self.failure("disk", format!("peer {index}: path {path} starts from what is gone")));
        };
        let carried = bytes.flatten().and_then(|bytes| CarriedState::decode(bytes, before.len(), swarm.values));
        let mut carried = carried.unwrap_or_else(|| CarriedState::fresh(before.len(), swarm.values));
        carried.keep_to(&self.plan.slots, path, start.iter().map(|(from, _)| from.module));
        if resume.is_none_or(|resume| resume.steps != carried.steps) {
            carried.steps = part.first;
            self.take_in(&mut carried, &start, &before);
        }
        let trained = self.plan.slots.path(path, phase);
        let machine = (self.seed, index);
        let number = self.plan.slots.trainer_number(path);
        let descent = |module: ModuleId| Descent::new(module, (trained, phase, number), machine, swarm);
        let descents = start.iter().map(|(from, _)| descent(from.module)).collect();
        let first = carried.steps;
        let (began_ms, until_ms) = (now_ms, now_ms);
        let mut in_hand = InHand {
            path,
            phase,
            part,
            start,
            before,
            descents,
            carried,
            first,
            taken_ms: now_ms,
            began_ms,
            until_ms,
            phase_ms,
        };
        in_hand.begin_stride(now_ms);
        if self.peers[index].trainers[of_peer].ends {
            in_hand.until_ms = in_hand.until_ms.min(now_ms + in_hand.took_ms(1));
        }
        let after_ms = in_hand.until_ms - now_ms;
        self.peers[index].trainers[of_peer].in_hand = Some(in_hand);
        self.trainer_later((index, of_peer), after_ms);
        self.handle(index, Event::Progress { path, phase, steps: first })
    }

    /// The parameters with which a path begins: those of its modules; with streaming, its own with newer updates mixed
    /// in.
    fn take_in(&self, carried: &mut CarriedState, start: &[(BaseVersion, BlobRef)], before: &[Vec<f32>]) {
        let Some(streaming) = self.outer.streaming else {
            carried.levels = before.to_vec();
            return;
        };
        let base_states: Vec<UpdateHash> = start.iter().map(|(from, _)| from.update).collect();
        if carried.levels.is_empty() {
            carried.levels = before.to_vec();
        } else {
            for level in (0..before.len()).filter(|level| carried.base_states[*level] != base_states[*level]) {
                mix(&mut carried.levels[level], &before[level], streaming.mix);
            }
        }
        carried.base_states = base_states;
    }

    fn finish_phase(&mut self, (index, number): OfPeer) -> Result<(), Failure> {
        let Some(in_hand) = self.peers[index].trainers[number].in_hand.take() else { return Ok(()) };
        let InHand { path, phase, part, start, before, mut carried, taken_ms, .. } = in_hand;
        self.counts.trained(index, taken_ms, self.now_ms);
        let mut offers = Vec::new();
        let steps = carried.steps;
        for (level, (from, _)) in start.iter().enumerate().filter(|(_, (from, _))| part.due.contains(&from.module)) {
            let gradient = learner::outer_gradient(&before[level], &carried.levels[level], &carried.residuals[level]);
            let gradient = self.bent(index, gradient);
            let Ok((frame, residual)) = compress_with_feedback(self.outer.codec, &gradient) else {
                return Err(
                    self.failure("driver", format!("peer {index}: path {path} has a parameter that is not finite"))
                );
            };
            carried.residuals[level] = residual;
            let frame = self.offered_instead(index, path, from, frame);
            let blob = self.peers[index].disk.put(frame);
            // With streaming, a level was trained in all parts since its last outer gradient.
            let before = if from.version.0 > 0 { part.of - part.last } else { 0 };
            self.steps_of.insert(blob.hash, before + carried.steps);
            offers.push((*from, blob));
        }
        let trainer = self.peers[index].disk.put(carried.after_phase(path, phase, index));
        let base_states = if self.outer.streaming.is_some() { start } else { vec![] };
        self.handle(index, Event::Trained(Finished { path, phase, steps, offers, trainer, base_states }))
    }
}
