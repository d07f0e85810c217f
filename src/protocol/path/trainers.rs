//! The trainers of this peer, one for each of its devices, as the protocol counts them. Each trains a path at a time, all
//! of them in parallel.
//!
//! Which device trains a path is the driver's choice. A path names its trainer: no two trainers have the same one.

use std::collections::BTreeMap;

use super::trainer::{Measured, Trainer, Training};
use crate::names::{PathId, Phase};
use crate::protocol::limits::MAX_TRAINERS;

/// The number of a trainer among those of this node, from 0.
pub(in crate::protocol) type Number = usize;

/// A node's trainers; at least one.
#[derive(Debug)]
pub(in crate::protocol) struct Trainers {
    all: Vec<Trainer>,
    /// The trainer that each path had last. It is the same one where possible, so that the watchdog compares a device
    /// with itself.
    last: BTreeMap<PathId, Number>,
}

impl Default for Trainers {
    fn default() -> Self {
        Self::of(1)
    }
}

impl Trainers {
    /// So many, but at least one and at most [`MAX_TRAINERS`].
    pub(in crate::protocol) fn of(count: usize) -> Self {
        let all = (0..count.clamp(1, MAX_TRAINERS)).map(|_| Trainer::default()).collect();
        Self { all, last: BTreeMap::new() }
    }

    /// How many are in service.
    pub(in crate::protocol) fn count(&self) -> usize {
        self.all.iter().filter(|trainer| !trainer.is_retired()).count()
    }

    /// How many are in service and train nothing.
    pub(in crate::protocol) fn free(&self) -> usize {
        self.all.iter().filter(|trainer| trainer.is_free()).count()
    }

    pub(in crate::protocol) fn numbers(&self) -> std::ops::Range<Number> {
        0..self.all.len()
    }

    pub(in crate::protocol) fn get(&self, number: Number) -> &Trainer {
        &self.all[number]
    }

    pub(in crate::protocol) fn get_mut(&mut self, number: Number) -> &mut Trainer {
        &mut self.all[number]
    }

    /// The phases in training.
    pub(in crate::protocol) fn training(&self) -> impl Iterator<Item = &Training> {
        self.all.iter().filter_map(Trainer::training)
    }

    /// Whether any phase is in training.
    pub(in crate::protocol) fn are_at_work(&self) -> bool {
        self.training().next().is_some()
    }

    /// Whether one of them trains this path.
    pub(in crate::protocol) fn trains(&self, path: PathId) -> bool {
        self.all.iter().any(|trainer| trainer.trains(path))
    }

    /// The trainer that trains this phase.
    pub(in crate::protocol) fn with(&self, path: PathId, phase: Phase) -> Option<Number> {
        self.all.iter().position(|trainer| trainer.in_hand() == Some((path, phase)))
    }

    /// The trainer of a phase that has ended. A single one has no other.
    pub(in crate::protocol) fn of_finished(&self, path: PathId, phase: Phase) -> Option<Number> {
        self.with(path, phase).or_else(|| (self.all.len() == 1).then_some(0))
    }

    /// The trainer that trains or scores this path; without one, a trainer that trains nothing.
    pub(in crate::protocol) fn at_work_on(&self, path: Option<PathId>) -> Number {
        let of = |path| {
            let trains = self.all.iter().position(|trainer| trainer.trains(path));
            trains.or_else(|| self.all.iter().position(|trainer| trainer.watchdog().scored() == Some(path)))
        };
        let idle = || self.all.iter().rposition(Trainer::is_free);
        path.and_then(of).or_else(idle).unwrap_or(0)
    }

    /// The trainer that scores a path; without one, a trainer that trains nothing.
    pub(in crate::protocol) fn scoring(&self, path: PathId) -> Number {
        let scores = self.all.iter().position(|trainer| trainer.watchdog().scored() == Some(path));
        scores.or_else(|| self.all.iter().rposition(Trainer::is_free)).unwrap_or(0)
    }

    /// A free trainer for a path: the one that it had last, if it is free, else one that no other path had last.
    pub(in crate::protocol) fn free_for(&self, path: PathId) -> Option<Number> {
        let is_free = |number: &Number| self.all[*number].is_free();
        if let Some(number) = self.last.get(&path).copied().filter(is_free) {
            return Some(number);
        }
        let free = self.numbers().filter(is_free);
        free.min_by_key(|number| (self.last.values().any(|last| last == number), *number))
    }

    pub(in crate::protocol) fn begin(&mut self, number: Number, training: Training) {
        self.last.insert(training.path, number);
        self.all[number].begin(training);
    }

    /// The path is no longer held here.
    pub(in crate::protocol) fn forget(&mut self, path: PathId) {
        self.last.remove(&path);
    }

    /// The whole process was suspended. That time is not training time.
    pub(in crate::protocol) fn stood_still(&mut self, for_ms: u64) {
        self.all.iter_mut().for_each(|trainer| trainer.stood_still(for_ms));
    }

    /// The measurement of the slowest.
    pub(in crate::protocol) fn slowest(&self) -> Option<Measured> {
        let slowness = |measured: &Measured| measured.phase_ms(1 << 20);
        self.all.iter().filter_map(Trainer::measured).max_by_key(slowness)
    }

    /// Inner steps that each of so many paths makes in 1000 s, if they share all trainers evenly. A trainer that has not
    /// been measured counts as much as the others do on average.
    pub(in crate::protocol) fn steps_in_1000_s(&self, paths: u64) -> Option<u64> {
        let pace = |Measured { steps, took_ms }: Measured| steps.saturating_mul(1_000_000) / took_ms.max(1);
        let in_service = self.all.iter().filter(|trainer| !trainer.is_retired());
        let paces: Vec<u64> = in_service.filter_map(Trainer::measured).map(pace).collect();
        let (measured, all) = (paces.len() as u64, self.count() as u64);
        if measured == 0 || paths == 0 {
            return None;
        }
        let sum = paces.iter().fold(0, |sum: u64, pace| sum.saturating_add(*pace));
        Some(sum.saturating_mul(all) / measured / paths.max(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Millis;
    use crate::protocol::action::Part;

    fn training(path: u32) -> Training {
        Training {
            path: PathId(path),
            phase: Phase(0),
            part: Part::whole(10, Vec::new()),
            start: Vec::new(),
            reads: Vec::new(),
            measured: (10, Millis(0)),
            until: None,
            late: false,
            ends: false,
        }
    }

    #[test]
    fn a_path_has_the_trainer_that_it_had_and_another_path_the_other() {
        let mut trainers = Trainers::of(2);
        for path in [4, 7] {
            let number = trainers.free_for(PathId(path)).unwrap();
            trainers.begin(number, training(path));
        }
        assert_eq!((trainers.free_for(PathId(9)), trainers.free()), (None, 0));
        assert_eq!((trainers.with(PathId(4), Phase(0)), trainers.with(PathId(7), Phase(0))), (Some(0), Some(1)));
        trainers.get_mut(0).end();
        trainers.get_mut(1).end();
        assert_eq!((trainers.free_for(PathId(7)), trainers.free_for(PathId(4))), (Some(1), Some(0)));
        trainers.forget(PathId(7));
        assert_eq!(trainers.free_for(PathId(9)), Some(1), "path 4 may go on where it was");
    }

    #[test]
    fn the_pace_of_a_path_is_that_of_all_trainers_shared_among_the_paths() {
        let mut trainers = Trainers::of(2);
        let mut measure = |number: Number, at| {
            trainers.begin(number, training(number as u32));
            trainers.get_mut(number).measure(Millis(at));
            trainers.get_mut(number).end();
            [1, 2, 4].map(|paths| trainers.steps_in_1000_s(paths).unwrap())
        };
        assert_eq!(measure(0, 1_000), [10_000, 10_000, 5_000], "the other is thought to be as fast");
        assert_eq!(measure(1, 2_000), [7_500, 7_500, 3_750]);
        assert_eq!(trainers.slowest(), Some(Measured { steps: 10, took_ms: 2_000 }));
    }

    #[test]
    fn a_trainer_out_of_service_gets_no_path() {
        let mut trainers = Trainers::of(2);
        trainers.get_mut(0).retire();
        assert_eq!((trainers.count(), trainers.free(), trainers.free_for(PathId(1))), (1, 1, Some(1)));
        assert_eq!(Trainers::of(0).count(), 1);
        assert_eq!(Trainers::of(10_000).count(), MAX_TRAINERS);
    }
}
