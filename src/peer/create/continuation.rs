//! A run that goes on from a collected one, with other text or on a larger grid: it begins with the modules, the router
//! and the tokenizer of the earlier run.
//!
//! Each path begins as a path of the earlier run. A level may have a multiple of its modules: neighbours begin as copies
//! of one, and the documents of one path are divided among those that come of it.

use crate::config::RunConfig;
use crate::grid::{Grid, GridError, Sharing};
use crate::names::{ModuleId, PathId};
use crate::peer::collected::{Collected, CollectedError};
use crate::routing::Router;

/// Why a run cannot go on from an earlier one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ContinuationError {
    #[error("model.{key} is {wanted}, but {found} in the earlier run")]
    Model { key: String, wanted: String, found: String },
    #[error("the earlier run has {found} levels, this one {wanted}")]
    Levels { wanted: usize, found: usize },
    #[error("level {level} does not list the parts that it has in the earlier run: {found}")]
    Parts { level: usize, found: String },
    #[error(
        "level {level} has {found} in the earlier run and {wanted} in this one; it can keep what it has, or have a \
         multiple of its experts"
    )]
    Sharing { level: usize, wanted: String, found: String },
    #[error("routing.prefix_tokens is {wanted}, but {found} in the earlier run")]
    Prefix { wanted: usize, found: usize },
    #[error("the earlier run spreads documents at random over {found} paths, which cannot be divided among {wanted}")]
    Random { wanted: u32, found: u32 },
    #[error(transparent)]
    Grid(#[from] GridError),
}

/// What becomes of the earlier run's router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// It stays. Where a path becomes several, its documents are divided among them.
    Keep,
    /// Another is fitted on the new text.
    Refit,
}

/// The earlier run, and how the modules of the new one come of it.
pub struct Continuation {
    collected: Collected,
    grid: Grid,
    routing: Routing,
}

/// How the router of a run that goes on is made.
pub enum NextRouter<'a> {
    /// The earlier run's.
    Same(&'a Router),
    /// Each path divided: for each new path, the earlier one.
    Divided(&'a Router, Vec<PathId>),
    /// Fitted on the new text.
    Fitted,
}

impl Continuation {
    /// # Errors
    /// If the run has another model, or levels that do not come of the earlier run's.
    pub fn new(collected: Collected, run: &RunConfig, routing: Routing) -> Result<Self, ContinuationError> {
        let earlier = &collected.manifest.config;
        same_model(run, earlier)?;
        let grid = run.grid()?;
        same_levels(run, earlier)?;
        for level in 0..grid.levels() {
            comes_of(&collected.grid, &grid, level)?;
        }
        let (found, wanted) = (collected.grid.path_count(), grid.path_count());
        if routing == Routing::Keep {
            let (of, prefix) = (earlier.routing.prefix_tokens, run.routing.prefix_tokens);
            if of != prefix {
                return Err(ContinuationError::Prefix { wanted: prefix, found: of });
            }
            if found != wanted && !collected.router.needs_features() && found > 1 {
                return Err(ContinuationError::Random { wanted, found });
            }
        }
        Ok(Self { collected, grid, routing })
    }

    /// The earlier run.
    pub fn collected(&self) -> &Collected {
        &self.collected
    }

    /// The module of the earlier run as which this one begins.
    pub fn origin(&self, module: ModuleId) -> ModuleId {
        let level = usize::from(module.level);
        let path = match self.grid.sharing(level) {
            Sharing::Shared => PathId(0),
            Sharing::Path => PathId(module.expert),
            Sharing::Experts(_) => self.grid.path_through(|other, _| if other == level { module.expert } else { 0 }),
        };
        self.collected.grid.module_of(begins_as(&self.collected.grid, &self.grid, path), level)
    }

    /// The parameters with which a module begins.
    pub(super) fn parameters_of(&self, module: ModuleId) -> Result<Vec<f32>, CollectedError> {
        self.collected.parameters_of(self.origin(module))
    }

    /// How its router is made.
    pub fn router(&self) -> NextRouter<'_> {
        let (earlier, router) = (&self.collected.grid, &self.collected.router);
        match self.routing {
            Routing::Keep if earlier.path_count() == self.grid.path_count() => NextRouter::Same(router),
            Routing::Keep if earlier.path_count() > 1 => {
                let parents = self.grid.paths().map(|path| begins_as(earlier, &self.grid, path));
                NextRouter::Divided(router, parents.collect())
            }
            _ => NextRouter::Fitted,
        }
    }
}

/// The path of the earlier run as which a path begins.
fn begins_as(earlier: &Grid, grid: &Grid, path: PathId) -> PathId {
    match (is_spanned(earlier), is_spanned(grid)) {
        (true, _) => earlier.path_through(|level, experts| {
            let module = grid.module_of(path, level);
            module.expert / (grid.experts(level) / experts).max(1)
        }),
        (false, _) => PathId(path.0 / (grid.path_count() / earlier.path_count()).max(1) % earlier.path_count()),
    }
}

/// Whether levels with experts make the paths.
fn is_spanned(grid: &Grid) -> bool {
    (0..grid.levels()).any(|level| matches!(grid.sharing(level), Sharing::Experts(_)))
}

/// Whether a level's modules can begin as those of the earlier run.
fn comes_of(earlier: &Grid, grid: &Grid, level: usize) -> Result<(), ContinuationError> {
    let (found, wanted) = (earlier.sharing(level), grid.sharing(level));
    let is_multiple = grid.path_count().is_multiple_of(earlier.path_count());
    let fits = match (found, wanted) {
        (Sharing::Shared, _) => true,
        (Sharing::Experts(found), Sharing::Experts(wanted)) => wanted.is_multiple_of(found),
        (Sharing::Path, Sharing::Path) => is_multiple && is_spanned(earlier) == is_spanned(grid),
        _ => false,
    };
    let words = |sharing: Sharing, grid: &Grid| match sharing {
        Sharing::Shared => "one shared module".to_owned(),
        Sharing::Experts(1) => "1 expert".to_owned(),
        Sharing::Experts(experts) => format!("{experts} experts"),
        Sharing::Path => format!("a module for each of {} paths", grid.path_count()),
    };
    let (wanted, found) = (words(wanted, grid), words(found, earlier));
    if fits { Ok(()) } else { Err(ContinuationError::Sharing { level, wanted, found }) }
}

fn same_model(run: &RunConfig, earlier: &RunConfig) -> Result<(), ContinuationError> {
    let keys = |run: &RunConfig| match serde_json::to_value(&run.model) {
        Ok(serde_json::Value::Object(keys)) => keys,
        _ => serde_json::Map::new(),
    };
    let (wanted, found) = (keys(run), keys(earlier));
    let differs = wanted.keys().chain(found.keys()).find(|key| wanted.get(*key) != found.get(*key));
    let value = |keys: &serde_json::Map<String, serde_json::Value>, key| {
        keys.get(key).map_or_else(|| "not set".to_owned(), ToString::to_string)
    };
    match differs {
        None => Ok(()),
        Some(key) => {
            let (wanted, found) = (value(&wanted, key), value(&found, key));
            Err(ContinuationError::Model { key: key.clone(), wanted, found })
        }
    }
}

fn same_levels(run: &RunConfig, earlier: &RunConfig) -> Result<(), ContinuationError> {
    let (wanted, found) = (run.levels.len(), earlier.levels.len());
    if wanted != found {
        return Err(ContinuationError::Levels { wanted, found });
    }
    let differs = run.levels.iter().zip(&earlier.levels).position(|(level, before)| level.parts != before.parts);
    match differs {
        None => Ok(()),
        Some(level) => Err(ContinuationError::Parts { level, found: earlier.levels[level].parts.join(", ") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(levels: &[Sharing]) -> Grid {
        Grid::new(levels.to_vec()).unwrap()
    }

    fn fits(earlier: &Grid, grid: &Grid) -> Result<(), ContinuationError> {
        (0..grid.levels()).try_for_each(|level| comes_of(earlier, grid, level))
    }

    #[test]
    fn the_paths_of_a_larger_grid_begin_as_those_whose_experts_theirs_come_of() {
        use Sharing::{Experts, Path, Shared};
        let two_by_two = grid(&[Experts(2), Experts(2), Shared, Path]);
        let four_by_two = grid(&[Experts(4), Experts(2), Experts(3), Path]);
        assert_eq!(fits(&two_by_two, &four_by_two), Ok(()));
        for path in four_by_two.paths() {
            let before = begins_as(&two_by_two, &four_by_two, path);
            let expert = |level| four_by_two.module_of(path, level).expert;
            let earlier = |level| two_by_two.module_of(before, level).expert;
            assert_eq!([earlier(0), earlier(1)], [expert(0) / 2, expert(1)], "path {path}");
        }
        let same: Vec<PathId> = two_by_two.paths().map(|path| begins_as(&two_by_two, &two_by_two, path)).collect();
        assert_eq!(same, two_by_two.paths().collect::<Vec<_>>());
        let flat = Grid::with_paths(vec![Shared, Path], 2).unwrap();
        let more = Grid::with_paths(vec![Shared, Path], 6).unwrap();
        assert_eq!(fits(&flat, &more), Ok(()));
        assert_eq!([0, 1, 2, 3, 4, 5].map(|path| begins_as(&flat, &more, PathId(path)).0), [0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn levels_that_do_not_come_of_the_earlier_runs_are_refused_in_words() {
        use Sharing::{Experts, Path, Shared};
        let earlier = grid(&[Experts(2), Experts(4), Path]);
        for (level, other) in [
            (0, grid(&[Experts(3), Experts(4), Path])),
            (1, grid(&[Experts(2), Experts(2), Path])),
            (1, grid(&[Experts(2), Shared, Path])),
            (2, grid(&[Experts(2), Experts(4), Shared])),
        ] {
            let refused = fits(&earlier, &other).unwrap_err();
            assert!(matches!(refused, ContinuationError::Sharing { level: found, .. } if found == level), "{refused}");
        }
        let error = fits(&earlier, &grid(&[Experts(3), Experts(4), Path])).unwrap_err().to_string();
        assert_eq!(
            error,
            "level 0 has 2 experts in the earlier run and 3 experts in this one; it can keep what it has, or have a \
             multiple of its experts"
        );
    }

    #[test]
    fn another_model_or_other_parts_are_refused_by_the_key() {
        let earlier = RunConfig::from_toml(include_str!("../../../configs/demo.toml")).unwrap();
        let mut run = earlier.clone();
        assert_eq!((same_model(&run, &earlier), same_levels(&run, &earlier)), (Ok(()), Ok(())));
        run.model.width *= 2;
        let error = same_model(&run, &earlier).unwrap_err().to_string();
        let expected = format!("model.width is {}, but {} in the earlier run", run.model.width, earlier.model.width);
        assert_eq!(error, expected);
        run.levels[1].parts.pop();
        assert!(matches!(same_levels(&run, &earlier), Err(ContinuationError::Parts { level: 1, .. })));
        run.levels.pop();
        assert!(matches!(same_levels(&run, &earlier), Err(ContinuationError::Levels { .. })));
    }
}
