//! The grid: levels times experts, and the paths through it.
//!
//! A path takes one module per level (DiPaCo, section 2.3). The levels with `experts` span the grid: path `i`,
//! written in mixed radix over their counts, first level slowest, names its expert of each. A `shared` level has one
//! module; a `path` level has one for each path.

use serde::{Deserialize, Serialize};

use crate::names::{ModuleId, PathId};

/// Who shares the parameters of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// One module, which all paths go through.
    Shared,
    /// This many modules; the paths are all their combinations.
    Experts(u32),
    /// A module for each path.
    Path,
}

/// The most paths a grid may have; a bound for what a manifest can make a peer allocate.
pub const MAX_PATHS: u32 = 1 << 20;

/// Why levels do not make a grid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GridError {
    /// There are no levels.
    #[error("a grid needs at least one level")]
    Empty,
    /// `experts = 0`.
    #[error("level {level} has no experts; give it 1 or more")]
    NoExperts {
        /// Position of the level.
        level: usize,
    },
    /// The product of the experts is too large.
    #[error("the grid has more than {MAX_PATHS} paths; use fewer experts or levels")]
    TooManyPaths,
}

/// The two factors above 1 of a number of paths that are closest to each other, the smaller one first; a prime has none.
pub fn halves(paths: u32) -> Option<[usize; 2]> {
    let first = (2..=paths.isqrt()).rev().find(|first| paths.is_multiple_of(*first))?;
    Some([first as usize, (paths / first) as usize])
}

/// Which modules there are and which paths go through them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    levels: Vec<Sharing>,
    paths: u32,
}

impl Grid {
    /// # Errors
    /// If there is no level, a level without experts, or there are more than [`MAX_PATHS`] paths.
    pub fn new(levels: Vec<Sharing>) -> Result<Self, GridError> {
        if levels.is_empty() {
            return Err(GridError::Empty);
        }
        let mut paths = 1u32;
        for (level, sharing) in levels.iter().enumerate() {
            if let Sharing::Experts(experts) = *sharing {
                if experts == 0 {
                    return Err(GridError::NoExperts { level });
                }
                paths =
                    paths.checked_mul(experts).filter(|paths| *paths <= MAX_PATHS).ok_or(GridError::TooManyPaths)?;
            }
        }
        Ok(Self { levels, paths })
    }

    /// As [`Grid::new`], for a grid whose number of paths no `experts` level gives: a flat mixture, or DiLoCo on
    /// several shards. `paths` counts only where no level has experts.
    ///
    /// # Errors
    /// As [`Grid::new`].
    pub fn with_paths(levels: Vec<Sharing>, paths: u32) -> Result<Self, GridError> {
        let spanned = levels.iter().any(|sharing| matches!(sharing, Sharing::Experts(_)));
        let mut grid = Self::new(levels)?;
        if !spanned {
            if paths == 0 || paths > MAX_PATHS {
                return Err(GridError::TooManyPaths);
            }
            grid.paths = paths;
        }
        Ok(grid)
    }

    /// With a level above the others that all paths share.
    pub fn and_shared(mut self) -> Self {
        self.levels.push(Sharing::Shared);
        self
    }

    /// How many levels.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// How many paths.
    pub fn path_count(&self) -> u32 {
        self.paths
    }

    /// All paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.paths).map(PathId)
    }

    /// How many modules a level has.
    pub fn experts(&self, level: usize) -> u32 {
        match self.levels[level] {
            Sharing::Shared => 1,
            Sharing::Experts(experts) => experts,
            Sharing::Path => self.paths,
        }
    }

    /// How many modules: far more than the levels take to be written down, where a level has one for each path.
    pub fn module_count(&self) -> usize {
        (0..self.levels.len()).map(|level| self.experts(level) as usize).sum()
    }

    /// All modules, by level and expert.
    pub fn modules(&self) -> Vec<ModuleId> {
        (0..self.levels.len())
            .flat_map(|level| (0..self.experts(level)).map(move |expert| ModuleId { level: level as u16, expert }))
            .collect()
    }

    /// Whether this module is in the grid.
    pub fn contains(&self, module: ModuleId) -> bool {
        let level = usize::from(module.level);
        level < self.levels.len() && module.expert < self.experts(level)
    }

    /// Who shares the parameters of a level.
    pub fn sharing(&self, level: usize) -> Sharing {
        self.levels[level]
    }

    /// The modules of a path, one per level, bottom first.
    pub fn modules_of(&self, path: PathId) -> Vec<ModuleId> {
        (0..self.levels.len()).map(|level| self.module_of(path, level)).collect()
    }

    /// The module of a path in one level.
    pub fn module_of(&self, path: PathId, level: usize) -> ModuleId {
        let expert = match self.levels[level] {
            Sharing::Shared => 0,
            Sharing::Path => path.0,
            Sharing::Experts(experts) => path.0 / self.place(level) % experts,
        };
        ModuleId { level: level as u16, expert }
    }

    /// How many paths lie between two whose experts differ by one in this level alone.
    fn place(&self, level: usize) -> u32 {
        let experts = |sharing: &Sharing| match sharing {
            Sharing::Experts(experts) => *experts,
            Sharing::Shared | Sharing::Path => 1,
        };
        self.levels[level + 1..].iter().map(experts).product()
    }

    /// The path through these experts, which are asked for by level and its number of experts.
    pub fn path_through(&self, expert: impl Fn(usize, u32) -> u32) -> PathId {
        let experts = |(level, sharing): (usize, &Sharing)| match sharing {
            Sharing::Experts(experts) => expert(level, *experts) * self.place(level),
            Sharing::Shared | Sharing::Path => 0,
        };
        PathId(self.levels.iter().enumerate().map(experts).sum())
    }

    /// The paths that go through a module, in order.
    pub fn paths_of(&self, module: ModuleId) -> Vec<PathId> {
        let level = usize::from(module.level);
        match self.levels[level] {
            Sharing::Shared => self.paths().collect(),
            Sharing::Path => vec![PathId(module.expert)],
            Sharing::Experts(experts) => {
                let place = self.place(level);
                let begins = (0..self.paths / (experts * place)).map(|round| (round * experts + module.expert) * place);
                begins.flat_map(|begin| (begin..begin + place).map(PathId)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_pairs_as_even_as_can_be_and_a_prime_number_is_none() {
        assert_eq!([4, 6, 16, 12, 250].map(halves), [[2, 2], [2, 3], [4, 4], [3, 4], [10, 25]].map(Some));
        assert_eq!([1, 2, 7, 257].map(halves), [None; 4]);
    }

    #[test]
    fn a_two_by_two_has_four_paths_and_each_module_two() {
        let grid = Grid::new(vec![Sharing::Experts(2), Sharing::Shared, Sharing::Experts(2), Sharing::Path]).unwrap();
        assert_eq!(grid.path_count(), 4);
        let path = |i| grid.modules_of(PathId(i)).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(path(0), ["0.0", "1.0", "2.0", "3.0"]);
        assert_eq!(path(1), ["0.0", "1.0", "2.1", "3.1"]);
        assert_eq!(path(3), ["0.1", "1.0", "2.1", "3.3"]);
        assert_eq!(grid.paths_of("2.1".parse().unwrap()), [PathId(1), PathId(3)]);
        for module in grid.modules() {
            let through = |path: &PathId| grid.modules_of(*path).contains(&module);
            assert_eq!(grid.paths_of(module), grid.paths().filter(through).collect::<Vec<_>>());
        }
        assert_eq!((grid.modules().len(), grid.module_count()), (2 + 1 + 2 + 4, 9));
        assert!(!grid.contains("1.1".parse().unwrap()));
    }

    #[test]
    fn a_level_that_all_share_moves_no_path() {
        let below = Grid::new(vec![Sharing::Experts(2), Sharing::Experts(3)]).unwrap();
        let above = below.clone().and_shared();
        for path in below.paths() {
            let modules = above.modules_of(path);
            assert_eq!((&modules[..2], modules[2].to_string().as_str()), (&below.modules_of(path)[..], "2.0"));
        }
        assert_eq!(above.paths_of("2.0".parse().unwrap()), below.paths().collect::<Vec<_>>());
    }

    #[test]
    fn all_shared_or_all_path_specific_takes_the_stated_number_of_paths() {
        let diloco = Grid::with_paths(vec![Sharing::Shared], 8).unwrap();
        assert_eq!(diloco.paths_of("0.0".parse().unwrap()).len(), 8);
        let flat = Grid::with_paths(vec![Sharing::Path], 8).unwrap();
        assert_eq!(flat.modules().len(), 8);
    }

    #[test]
    fn impossible_grids_are_refused() {
        assert_eq!(Grid::new(vec![]), Err(GridError::Empty));
        assert_eq!(Grid::new(vec![Sharing::Experts(0)]), Err(GridError::NoExperts { level: 0 }));
        let huge = vec![Sharing::Experts(u32::MAX); 3];
        assert_eq!(Grid::new(huge), Err(GridError::TooManyPaths));
    }
}
