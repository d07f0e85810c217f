//! A peer's trainer, as the rest of the peer sees it: it takes a phase in hand after a while, gives signs of life, stores
//! where it stands, stops in the middle when it is asked to, and goes on from there; it may hang, and it may die.
//!
//! What it learns is the [`learner`]'s, inner step by inner step, so a phase that was left in the middle and gone on
//! with comes to the very same bytes. Its outer gradients are compressed with feedback, like a peer's.

use crate::compress::compress_with_feedback;
use crate::names::{BlobRef, ModuleId, PathId, Phase};
use crate::outer::mix;
use crate::outer::state::ModuleState;
use crate::protocol::journal::record::{Finished, StartedFrom};
use crate::protocol::wire::message::UpdateHash;
use crate::protocol::{Action, Event, Part};
use crate::simulator::Failure;
use crate::simulator::peer::carried_state::Carried;
use crate::simulator::peer::learner;
use crate::simulator::peer::learner::Lesson;
use crate::simulator::world::{Due, INNER_STEPS, World};

/// It says where it stands, and stores it, so often, as a peer's does.
const STRIDE_MS: u64 = 5_000;

/// But no less often than this in a phase, however short.
const LEAST_STRIDES: u64 = 3;

/// A liar that has nothing to copy looks again after this.
const LIES_LOOK_MS: u64 = 100;

/// And contributes what it has trained after this.
const LONGEST_WAIT_MS: u64 = 5_000;

/// One peer's.
#[derive(Debug, Default)]
pub(in crate::simulator) struct Trainer {
    /// What it will do next; all that was to be done before is not done any more, as by a thread that was left behind.
    next: u64,
    /// What it was asked for and has not begun.
    asked: Option<Action>,
    in_hand: Option<InHand>,
    /// It stops after the step in hand.
    pauses: bool,
    /// So it does, and contributes what it has made.
    ends: bool,
    /// It will say nothing more, once it has said that it has made a step, or scored a batch.
    hangs: bool,
    /// The checkpoint that it hangs over.
    scoring: Option<(PathId, Phase)>,
}

/// A phase in the middle.
#[derive(Debug)]
struct InHand {
    path: PathId,
    phase: Phase,
    part: Part,
    start: Vec<(StartedFrom, BlobRef)>,
    /// Of each module before the phase.
    before: Vec<Vec<f32>>,
    lessons: Vec<Lesson>,
    /// After the last stride.
    carried: Carried,
    /// With how many steps it began.
    first: u64,
    /// When it was begun with.
    taken_ms: u64,
    /// A stride is under way: since when, and when it ends.
    began_ms: u64,
    until_ms: u64,
    /// Of all steps of a whole phase.
    phase_ms: u64,
}

impl InHand {
    fn stride(&self) -> u64 {
        (INNER_STEPS * STRIDE_MS / self.phase_ms.max(1)).clamp(1, INNER_STEPS.div_ceil(LEAST_STRIDES))
    }

    fn took_ms(&self, steps: u64) -> u64 {
        self.phase_ms * steps / INNER_STEPS
    }

    fn begin_stride(&mut self, now_ms: u64) {
        let steps = self.stride().min(self.part.last - self.carried.steps);
        (self.began_ms, self.until_ms) = (now_ms, now_ms + self.took_ms(steps));
    }

    /// The steps that were made in this stride by now.
    fn make(&mut self, now_ms: u64) {
        let whole = self.stride().min(self.part.last - self.carried.steps);
        let made = match now_ms >= self.until_ms {
            true => whole,
            false => (now_ms.saturating_sub(self.began_ms) * INNER_STEPS / self.phase_ms.max(1)).min(whole),
        };
        for (lesson, level) in self.lessons.iter().zip(&mut self.carried.levels) {
            for step in self.carried.steps..self.carried.steps + made {
                lesson.step(step, level);
            }
        }
        self.carried.steps += made;
    }
}

impl Trainer {
    /// The machine stands still: so does this.
    pub(in crate::simulator) fn stand_still(&mut self, for_ms: u64) {
        if let Some(in_hand) = &mut self.in_hand {
            in_hand.began_ms += for_ms;
            in_hand.until_ms += for_ms;
        }
    }

    /// It will say nothing more, until it is started anew.
    pub(in crate::simulator) fn hang(&mut self) {
        self.hangs = true;
    }

    /// Another thread, which has nothing in hand.
    pub(in crate::simulator) fn restart(&mut self) {
        *self = Self { next: self.next + 1, ..Self::default() };
    }
}

impl World {
    /// A phase is asked for. Its text may have to be fetched first.
    pub(in crate::simulator) fn ask_trainer(&mut self, index: usize, action: Action) {
        let after_ms = self.dice.draw([0, 1_000].into());
        let trainer = &mut self.peers[index].trainer;
        (trainer.asked, trainer.pauses, trainer.ends) = (Some(action), false, false);
        self.trainer_later(index, after_ms);
    }

    fn trainer_later(&mut self, index: usize, after_ms: u64) {
        let trainer = &mut self.peers[index].trainer;
        trainer.next += 1;
        let next = trainer.next;
        self.later(index, after_ms, Due::Trainer(next));
    }

    /// One that has not begun need not be stopped in the middle.
    pub(in crate::simulator) fn pause_trainer(&mut self, index: usize) {
        let trainer = &mut self.peers[index].trainer;
        if let Some(Action::Train { path, phase, .. }) = trainer.asked.take() {
            return self.event_at(index, 0, Event::Paused { path, phase, middle: None });
        }
        trainer.pauses = true;
        self.end_step(index);
    }

    /// One that has not begun makes a step.
    pub(in crate::simulator) fn end_phase(&mut self, index: usize) {
        self.peers[index].trainer.ends = true;
        self.end_step(index);
    }

    /// The stride under way ends with the step in hand.
    fn end_step(&mut self, index: usize) {
        let now_ms = self.now_ms;
        let Some(in_hand) = &mut self.peers[index].trainer.in_hand else { return };
        let step_ms = in_hand.phase_ms.div_ceil(INNER_STEPS);
        in_hand.until_ms = in_hand.until_ms.min(now_ms + step_ms);
        self.trainer_later(index, step_ms);
    }

    /// A checkpoint is to be scored.
    pub(in crate::simulator) fn score(&mut self, index: usize, path: PathId, phase: Phase) {
        let after_ms = self.dice.draw([100, 2_000].into());
        for (batches, at_ms) in [(0, 0), (1, 50)] {
            self.event_at(index, at_ms, Event::Progress { path, phase, steps: batches });
        }
        let trainer = &mut self.peers[index].trainer;
        if trainer.hangs {
            trainer.scoring = Some((path, phase));
            return;
        }
        let score = Some((path.0 + 1) * 1_000);
        self.event_at(index, after_ms, Event::Evaluated { path, phase, millibits_per_byte: score });
    }

    pub(in crate::simulator) fn restart_trainer(&mut self, index: usize) {
        let trainer = &mut self.peers[index].trainer;
        let scoring = trainer.scoring;
        trainer.restart();
        if let Some((path, phase)) = scoring {
            self.event_at(index, 0, Event::Evaluated { path, phase, millibits_per_byte: None });
        }
    }

    /// As its thread may. It comes to light at once.
    pub(in crate::simulator) fn kill_trainer(&mut self, index: usize) {
        self.restart_trainer(index);
        self.event_at(index, 0, Event::TrainerDied);
    }

    /// It begins, or has come to the end of a stride.
    pub(in crate::simulator) fn train_on(&mut self, index: usize, next: u64) -> Result<(), Failure> {
        let now_ms = self.now_ms;
        let trainer = &mut self.peers[index].trainer;
        // What it hangs over is in the way of all that it is asked for after that.
        if next != trainer.next || trainer.scoring.is_some() {
            return Ok(());
        }
        if let Some(asked) = trainer.asked.take() {
            return self.take_in_hand(index, asked);
        }
        let Some(in_hand) = &mut trainer.in_hand else { return Ok(()) };
        if now_ms < in_hand.until_ms {
            // It stood still meanwhile.
            let after_ms = in_hand.until_ms - now_ms;
            self.trainer_later(index, after_ms);
            return Ok(());
        }
        if trainer.hangs && in_hand.carried.steps > in_hand.first {
            return Ok(());
        }
        in_hand.make(now_ms);
        let stepped = in_hand.carried.steps > in_hand.first;
        if in_hand.carried.steps >= in_hand.part.last || (trainer.ends && in_hand.carried.steps > in_hand.part.first) {
            let (path, start) = (in_hand.path, in_hand.start.clone());
            if now_ms < in_hand.until_ms + LONGEST_WAIT_MS && self.has_to_wait(index, path, &start) {
                self.trainer_later(index, LIES_LOOK_MS);
                return Ok(());
            }
            return self.finish_phase(index);
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
        self.trainer_later(index, after_ms);
        let blob = self.peers[index].disk.put(middle);
        self.handle(index, Event::Checkpointed { path, phase, steps, blob })
    }

    fn take_in_hand(&mut self, index: usize, asked: Action) -> Result<(), Failure> {
        let Action::Train { path, phase, part, start, trainer, resume } = asked else {
            return Err(self.failure("driver", format!("no phase: {asked:?}")));
        };
        let now_ms = self.now_ms;
        let phase_ms = self.dice.draw(self.scenario.swarm.phase_ms) * self.scenario.slowness(index);
        let swarm = &self.scenario.swarm;
        let disk = &self.peers[index].disk;
        let state = |(from, state): &(StartedFrom, BlobRef)| {
            ModuleState::decode(disk.get(state.hash)?, from.module, swarm.values).ok().map(|state| state.parameters)
        };
        let before: Option<Vec<Vec<f32>>> = start.iter().map(state).collect();
        let blob = resume.map(|resume| resume.blob).or(trainer);
        let bytes = blob.map(|blob| disk.get(blob.hash));
        let (Some(before), false) = (before, bytes == Some(None)) else {
            return Err(self.failure("disk", format!("peer {index}: path {path} starts from what is gone")));
        };
        let carried = bytes.flatten().and_then(|bytes| Carried::decode(bytes, before.len(), swarm.values));
        let mut carried = carried.unwrap_or_else(|| Carried::fresh(before.len(), swarm.values));
        carried.keep_to(&self.plan.slots, start.iter().map(|(from, _)| from.module));
        if resume.is_none_or(|resume| resume.steps != carried.steps) {
            carried.steps = part.first;
            self.take_in(&mut carried, &start, &before);
        }
        let trained = self.plan.slots.path(path, phase);
        let machine = (self.seed, index);
        let lesson = |module: ModuleId| Lesson::new(module, (trained, phase), machine, swarm);
        let lessons = start.iter().map(|(from, _)| lesson(from.module)).collect();
        let first = carried.steps;
        let (began_ms, until_ms) = (now_ms, now_ms);
        let mut in_hand = InHand {
            path,
            phase,
            part,
            start,
            before,
            lessons,
            carried,
            first,
            taken_ms: now_ms,
            began_ms,
            until_ms,
            phase_ms,
        };
        in_hand.begin_stride(now_ms);
        if self.peers[index].trainer.ends {
            in_hand.until_ms = in_hand.until_ms.min(now_ms + in_hand.took_ms(1));
        }
        let after_ms = in_hand.until_ms - now_ms;
        self.peers[index].trainer.in_hand = Some(in_hand);
        self.trainer_later(index, after_ms);
        self.handle(index, Event::Progress { path, phase, steps: first })
    }

    /// What a path begins with: the modules as they are; or, where these are brought in step one by one, what it has made
    /// of them, with the updates that it does not stand on yet mixed in.
    fn take_in(&self, carried: &mut Carried, start: &[(StartedFrom, BlobRef)], before: &[Vec<f32>]) {
        let Some(streaming) = self.outer.streaming else {
            carried.levels = before.to_vec();
            return;
        };
        let stands_on: Vec<UpdateHash> = start.iter().map(|(from, _)| from.update).collect();
        if carried.levels.is_empty() {
            carried.levels = before.to_vec();
        } else {
            for level in (0..before.len()).filter(|level| carried.stands_on[*level] != stands_on[*level]) {
                mix(&mut carried.levels[level], &before[level], streaming.mix);
            }
        }
        carried.stands_on = stands_on;
    }

    fn finish_phase(&mut self, index: usize) -> Result<(), Failure> {
        let Some(in_hand) = self.peers[index].trainer.in_hand.take() else { return Ok(()) };
        let InHand { path, phase, part, start, before, mut carried, taken_ms, .. } = in_hand;
        self.counts.trained(index, taken_ms, self.now_ms);
        let mut offers = Vec::new();
        for (level, (from, _)) in start.iter().enumerate().filter(|(_, (from, _))| part.due.contains(&from.module)) {
            let gradient = learner::outer_gradient(&before[level], &carried.levels[level], &carried.residuals[level]);
            let gradient = self.bent(index, gradient);
            let Ok((frame, residual)) = compress_with_feedback(self.outer.codec, &gradient) else {
                return Err(self.failure("driver", format!("peer {index}: path {path} has come to what is no number")));
            };
            carried.residuals[level] = residual;
            let frame = self.offered_instead(index, path, from, frame);
            let blob = self.peers[index].disk.put(frame);
            // A level that is brought in step in turn was trained in all parts since it was the last time.
            let before = if from.version.0 > 0 { part.of - part.last } else { 0 };
            self.steps_of.insert(blob.hash, before + carried.steps);
            offers.push((*from, blob));
        }
        let trainer = self.peers[index].disk.put(carried.after_phase(path, phase, index));
        let stands_on = if self.outer.streaming.is_some() { start } else { vec![] };
        self.handle(index, Event::Trained(Finished { path, phase, offers, trainer, stands_on }))
    }
}
