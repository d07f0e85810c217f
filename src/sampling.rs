//! Which path of the grid each worker slot stands for, in each phase.
//!
//! A *worker slot* is what a peer holds. In most runs slot `i` is path `i`, for good. A grid may have more paths than a swarm
//! has peers (32×32×32, with 64 of them): such a run has fewer slots than paths, and which path a
//! slot stands for is drawn from the run's seed, anew every few phases. Everybody draws the same.
//!
//! A swarm may also have more peers than paths. A path then has several slots, one for each of its *trainers*: with `n` paths
//! at a time, slots `i`, `i + n`, `i + 2n` … stand for the same path. The first `n` slots are those of the first trainers.
//!
//! The draw is balanced: slots follow each other through a level's experts in whole rounds, so that as many slots go
//! through each module as through any other, give or take one. Each level but the first shifts every round by a draw
//! of its own. A slot keeps its module of the first level, so that when paths are drawn anew it moves no more than it
//! must.

use crate::grid::{Grid, MAX_PATHS, Sharing};
use crate::names::{ModuleId, PathId, Phase};

/// A sample of a grid's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How many paths are trained at a time.
    pub slots: u32,
    /// For so many phases a slot stands for the same path; for good, if 0.
    pub hold_phases: u64,
    /// Of the draws.
    pub seed: u64,
}

/// A grid, and which of its paths are trained when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSlots {
    grid: Grid,
    sample: Option<Sample>,
    /// Of each level, in the first draw: many runs have no other, and it is asked for all the time.
    first: Vec<Shift>,
    /// Slots of each path.
    trainers: u32,
}

/// How a level's rounds are shifted, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shift {
    start: u32,
    stride: u32,
}

/// Why a grid cannot be sampled so.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SampleError {
    /// A module would have no slot.
    #[error("{slots} paths at a time leave modules of level {level} out, which has {experts}; sample at least as many")]
    TooFew {
        /// At a time.
        slots: u32,
        /// Position of the level.
        level: usize,
        /// Its modules.
        experts: u32,
    },
    /// More than a grid may have paths.
    #[error("{0} paths at a time are too many; sample at most {MAX_PATHS}")]
    TooMany(u32),
    /// More slots than a grid may have paths, or none.
    #[error(
        "{trainers} trainers for each of {paths} paths are too many or too few; use 1 or more, and at most {MAX_PATHS} in all"
    )]
    Trainers {
        /// Of each path.
        trainers: u32,
        /// At a time.
        paths: u32,
    },
    /// A module that nobody else would go on with.
    #[error("level {level} has a module for each path; such a level cannot be sampled")]
    PathLevel {
        /// Position of the level.
        level: usize,
    },
}

impl From<Grid> for WorkerSlots {
    /// Each slot is a path.
    fn from(grid: Grid) -> Self {
        Self { grid, sample: None, first: Vec::new(), trainers: 1 }
    }
}

impl WorkerSlots {
    /// # Errors
    /// If a module would be left out, or could not be shared, or there are more than [`MAX_PATHS`] at a time.
    pub fn sampled(grid: Grid, sample: Sample) -> Result<Self, SampleError> {
        if sample.slots > MAX_PATHS {
            return Err(SampleError::TooMany(sample.slots));
        }
        for level in 0..grid.levels() {
            let (slots, experts) = (sample.slots, grid.experts(level));
            if grid.sharing(level) == Sharing::Path {
                return Err(SampleError::PathLevel { level });
            }
            if slots < experts {
                return Err(SampleError::TooFew { slots, level, experts });
            }
        }
        let first = (0..grid.levels()).map(|level| sample.drawn(0, level, grid.experts(level))).collect();
        Ok(Self { grid, sample: Some(sample), first, trainers: 1 })
    }

    /// The same paths with up to so many trainers each.
    ///
    /// # Errors
    /// If there are more than [`MAX_PATHS`] slots, or none.
    pub fn with_trainers(self, trainers: u32) -> Result<Self, SampleError> {
        let slots = u64::from(self.paths_at_a_time()) * u64::from(trainers);
        match u32::try_from(slots) {
            Ok(1..=MAX_PATHS) => Ok(Self { trainers, ..self }),
            _ => Err(SampleError::Trainers { trainers, paths: self.paths_at_a_time() }),
        }
    }

    /// The whole grid.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Whether slots stand for other paths in other phases.
    pub fn are_drawn_anew(&self) -> bool {
        self.sample.is_some_and(|sample| sample.hold_phases > 0)
    }

    /// How many slots.
    pub fn count(&self) -> u32 {
        self.paths_at_a_time() * self.trainers
    }

    /// How many paths are trained at a time.
    pub fn paths_at_a_time(&self) -> u32 {
        self.sample.map_or(self.grid.path_count(), |sample| sample.slots)
    }

    /// How many trainers a path may have.
    pub fn trainers(&self) -> u32 {
        self.trainers
    }

    /// The slots of first trainers, in order: one for each path that is trained at a time.
    pub fn first_trainers(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.paths_at_a_time()).map(PathId)
    }

    /// The first trainer's slot of the path that a slot stands for.
    pub fn first_trainer(&self, slot: PathId) -> PathId {
        PathId(slot.0 % self.paths_at_a_time())
    }

    /// The number of a slot among those of its path, from 0.
    pub fn trainer_number(&self, slot: PathId) -> u32 {
        slot.0 / self.paths_at_a_time()
    }

    /// A slot in words for users: the path, and which of its trainers, but for the first.
    pub fn describe(&self, slot: PathId) -> String {
        match self.trainer_number(slot) {
            0 => format!("path {slot}"),
            number => format!("path {} (trainer {})", self.first_trainer(slot), number + 1),
        }
    }

    /// All slots that stand for the same path as this one, including it.
    pub fn of_same_path(&self, slot: PathId) -> impl Iterator<Item = PathId> + use<> {
        let (first, paths) = (self.first_trainer(slot), self.paths_at_a_time());
        (0..self.trainers).map(move |number| PathId(first.0 + number * paths))
    }

    /// The path that a slot stands for in a phase.
    pub fn path(&self, slot: PathId, phase: Phase) -> PathId {
        let first = self.first_trainer(slot);
        match &self.sample {
            Some(sample) => {
                self.grid.path_through(|level, experts| self.expert(sample, first, phase, (level, experts)))
            }
            None => first,
        }
    }

    /// The modules of a slot's path in a phase, one per level, bottom first.
    pub fn modules(&self, slot: PathId, phase: Phase) -> Vec<ModuleId> {
        (0..self.grid.levels()).map(|level| self.module(slot, phase, level)).collect()
    }

    fn module(&self, slot: PathId, phase: Phase, level: usize) -> ModuleId {
        let first = self.first_trainer(slot);
        match &self.sample {
            Some(sample) => {
                let expert = self.expert(sample, first, phase, (level, self.grid.experts(level)));
                ModuleId { level: level as u16, expert }
            }
            None => self.grid.module_of(first, level),
        }
    }

    /// Whether there is such a slot, and its path in that phase goes through the module. WorkerSlots come from the wire.
    pub fn goes_through(&self, slot: PathId, phase: Phase, module: ModuleId) -> bool {
        let level = usize::from(module.level);
        slot.0 < self.count() && level < self.grid.levels() && self.module(slot, phase, level) == module
    }

    /// The slots whose path in a phase goes through a module, in order.
    pub fn through(&self, module: ModuleId, phase: Phase) -> Vec<PathId> {
        let first = self.first_trainers_through(module, phase);
        let of_trainer = |number: u32| {
            let before = number * self.paths_at_a_time();
            first.iter().map(move |slot| PathId(slot.0 + before))
        };
        (0..self.trainers).flat_map(of_trainer).collect()
    }

    /// The first trainers' slots whose path in a phase goes through a module, in order.
    pub fn first_trainers_through(&self, module: ModuleId, phase: Phase) -> Vec<PathId> {
        let level = usize::from(module.level);
        match &self.sample {
            Some(sample) => {
                let experts = self.grid.experts(level);
                let rounds = 0..sample.slots.div_ceil(experts);
                let shift = self.shift(sample, phase, level, experts);
                let in_round = |round: u32| {
                    let shift = shift.of(round, experts);
                    PathId(round * experts + (module.expert + experts - shift) % experts)
                };
                rounds.map(in_round).filter(|slot| slot.0 < sample.slots).collect()
            }
            None => self.grid.paths_of(module),
        }
    }

    fn expert(&self, sample: &Sample, slot: PathId, phase: Phase, (level, experts): (usize, u32)) -> u32 {
        let shift = self.shift(sample, phase, level, experts);
        (slot.0 % experts + shift.of(slot.0 / experts, experts)) % experts
    }

    fn shift(&self, sample: &Sample, phase: Phase, level: usize, experts: u32) -> Shift {
        let draws = phase.0.checked_div(sample.hold_phases).unwrap_or(0);
        match self.first.get(level) {
            Some(first) if draws == 0 => *first,
            _ => sample.drawn(draws, level, experts),
        }
    }
}

impl Sample {
    /// How rounds of slots are shifted: in equal strides from a start, both drawn. The stride shares no factor with the
    /// number of experts, so that no two of as many rounds are shifted alike. Of the first level, none is.
    fn drawn(&self, draws: u64, level: usize, experts: u32) -> Shift {
        if level == 0 {
            return Shift { start: 0, stride: 0 };
        }
        let draw = mixed(mixed(self.seed ^ draws) ^ level as u64);
        let (start, from) = ((draw >> 32) as u32 % experts, draw as u32 % experts);
        let stride = (0..experts).map(|more| (from + more) % experts).find(|stride| coprime(*stride, experts));
        Shift { start, stride: stride.unwrap_or(1) }
    }
}

impl Shift {
    /// By how much a round is.
    fn of(self, round: u32, experts: u32) -> u32 {
        ((u64::from(self.start) + u64::from(self.stride) * u64::from(round)) % u64::from(experts)) as u32
    }
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014): every bit of the result depends on every bit.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

fn coprime(a: u32, b: u32) -> bool {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn drawn(experts: &[u32], slots: u32, hold_phases: u64) -> WorkerSlots {
        let grid = Grid::new(experts.iter().map(|experts| Sharing::Experts(*experts)).collect()).unwrap();
        WorkerSlots::sampled(grid, Sample { slots, hold_phases, seed: 7 }).unwrap()
    }

    #[test]
    fn as_many_slots_go_through_each_module_as_through_any_other() {
        for (experts, slots) in [(vec![32, 32, 32], 64), (vec![625, 625], 10_000), (vec![4, 7], 9)] {
            let slots = drawn(&experts, slots, 1);
            for phase in (0..5).map(Phase) {
                for module in slots.grid().modules() {
                    let through = slots.through(module, phase);
                    let experts = experts[usize::from(module.level)];
                    assert!(
                        through.len() as u32 == slots.count() / experts
                            || through.len() as u32 == slots.count().div_ceil(experts)
                    );
                    assert!(through.iter().all(|slot| slots.modules(*slot, phase).contains(&module)));
                    assert!(through.iter().all(|slot| slots.goes_through(*slot, phase, module)));
                }
            }
        }
    }

    #[test]
    fn no_path_is_trained_twice_in_a_phase_and_in_the_end_many_are() {
        let slots = drawn(&[32, 32, 32], 64, 2);
        let paths = |phase| slots.first_trainers().map(|slot| slots.path(slot, Phase(phase))).collect::<BTreeSet<_>>();
        assert_eq!(paths(0).len(), 64);
        assert_eq!(paths(0), paths(1), "held for two phases");
        let all: BTreeSet<PathId> = (0..200).flat_map(paths).collect();
        assert!(all.len() > 5_000, "{}", all.len());
        assert!(all.iter().all(|path| path.0 < 32 * 32 * 32));
    }

    #[test]
    fn a_slots_path_is_the_one_through_its_modules_and_the_first_level_stays() {
        let slots = drawn(&[5, 3, 4], 20, 1);
        for (slot, phase) in slots.first_trainers().flat_map(|slot| (0..9).map(move |phase| (slot, Phase(phase)))) {
            let modules = slots.modules(slot, phase);
            let path = slots.path(slot, phase);
            let of_path: Vec<ModuleId> = (0..3).map(|level| slots.grid().module_of(path, level)).collect();
            assert_eq!(of_path, modules);
            assert_eq!(modules[0], slots.modules(slot, Phase(0))[0]);
        }
    }

    #[test]
    fn without_a_sample_a_slot_is_a_path() {
        let grid = Grid::new(vec![Sharing::Shared, Sharing::Experts(3), Sharing::Path]).unwrap();
        let slots = WorkerSlots::from(grid);
        assert_eq!((slots.count(), slots.path(PathId(2), Phase(9))), (3, PathId(2)));
        assert!(slots.goes_through(PathId(2), Phase(0), "2.2".parse().unwrap()));
        assert!(!slots.goes_through(PathId(3), Phase(0), "0.0".parse().unwrap()));
        assert_eq!(slots.through("1.1".parse().unwrap(), Phase(4)), [PathId(1)]);
    }

    #[test]
    fn several_trainers_of_a_path_have_slots_of_their_own_and_the_same_modules() {
        let grid = Grid::new(vec![Sharing::Experts(2), Sharing::Experts(2)]).unwrap();
        let slots = WorkerSlots::from(grid).with_trainers(3).unwrap();
        assert_eq!((slots.count(), slots.paths_at_a_time()), (12, 4));
        assert!(slots.of_same_path(PathId(6)).eq([2, 6, 10].map(PathId)));
        assert_eq!((slots.first_trainer(PathId(10)), slots.trainer_number(PathId(10))), (PathId(2), 2));
        assert_eq!(slots.path(PathId(10), Phase(3)), PathId(2));
        assert_eq!([2, 10].map(|slot| slots.describe(PathId(slot))), ["path 2", "path 2 (trainer 3)"]);
        assert_eq!(slots.modules(PathId(10), Phase(0)), slots.modules(PathId(2), Phase(0)));
        let module = slots.modules(PathId(2), Phase(0))[0];
        assert_eq!(slots.through(module, Phase(0)).len(), 3 * slots.first_trainers_through(module, Phase(0)).len());
        assert!(slots.through(module, Phase(0)).iter().all(|slot| slots.goes_through(*slot, Phase(0), module)));
        assert!(!slots.goes_through(PathId(12), Phase(0), module));
        let sampled = drawn(&[5, 3], 10, 1).with_trainers(2).unwrap();
        assert_eq!(sampled.path(PathId(13), Phase(4)), sampled.path(PathId(3), Phase(4)));
        assert!(
            drawn(&[5, 3], 10, 1).with_trainers(0).is_err() && drawn(&[5, 3], 10, 1).with_trainers(u32::MAX).is_err()
        );
    }

    #[test]
    fn what_leaves_a_module_out_or_to_one_is_refused() {
        let grid = |levels| Grid::new(levels).unwrap();
        let sample = Sample { slots: 4, hold_phases: 1, seed: 0 };
        let few = WorkerSlots::sampled(grid(vec![Sharing::Experts(2), Sharing::Experts(5)]), sample);
        assert_eq!(few, Err(SampleError::TooFew { slots: 4, level: 1, experts: 5 }));
        let own = WorkerSlots::sampled(grid(vec![Sharing::Experts(2), Sharing::Path]), sample);
        assert_eq!(own, Err(SampleError::PathLevel { level: 1 }));
        let many = WorkerSlots::sampled(grid(vec![Sharing::Experts(2)]), Sample { slots: u32::MAX, ..sample });
        assert_eq!(many, Err(SampleError::TooMany(u32::MAX)));
    }
}
