//! `trainers_per_path`: how many peers may train the same path at the same time, each in its own order of the text.

use super::checking::MOST_IN_A_ROUND;
use super::key_error::{KeyError, require, within};
use super::outer::OuterMode;
use super::run::RunConfig;
use crate::grid::{MAX_PATHS, Sharing};

/// The default, where a round can count as many.
const DEFAULT_TRAINERS: u32 = 4;

impl RunConfig {
    /// How many trainers a path may have: as configured, or a default that fits the run.
    pub fn trainers(&self) -> u32 {
        let fits = match self.most_through_a_module() {
            _ if self.has_one_trainer() => 1,
            // With room for contributions that come late.
            Some(paths) => MOST_IN_A_ROUND * 3 / 4 / paths.max(1),
            None => DEFAULT_TRAINERS,
        };
        let fits = fits.min(MAX_PATHS / self.paths_at_a_time().unwrap_or(1).max(1));
        self.trainers_per_path.unwrap_or(DEFAULT_TRAINERS.min(fits).max(1))
    }

    /// Whether a path can only have one trainer: what counts as the path, or the router, depends on its trainer's state, or
    /// how many there are on who is early.
    fn has_one_trainer(&self) -> bool {
        self.paths_end_apart() || !self.routing.reshard.is_empty() || self.outer.deterministic
    }

    /// The most paths that are trained through one module, if a round has to count them all.
    fn most_through_a_module(&self) -> Option<u32> {
        let trained = self.paths_at_a_time()?;
        let through = |sharing: Sharing| match sharing {
            Sharing::Shared => trained,
            Sharing::Experts(experts) => trained.div_ceil(experts),
            Sharing::Path => 1,
        };
        let through = self.levels.iter().map(|level| through(level.sharing));
        through.max().filter(|_| self.outer.mode == OuterMode::Synchronous)
    }

    fn paths_at_a_time(&self) -> Option<u32> {
        self.sample.map(|sample| sample.paths).or_else(|| self.grid().ok().map(|grid| grid.path_count()))
    }

    /// Whether a round can count what all trainers of a module contribute.
    pub(super) fn check_trainers(&self) -> Result<(), KeyError> {
        let (trainers, key) = (self.trainers(), "trainers_per_path");
        within(key, trainers, 1..=MOST_IN_A_ROUND)?;
        let expected = "must be 1 or unset where training.early_stopping, outer.keep_unsent, outer.deterministic or routing.reshard \
            is set";
        require(trainers == 1 || !self.has_one_trainer(), key, trainers, expected)?;
        let Some(paths) = self.most_through_a_module() else { return Ok(()) };
        let found = format!("{trainers}, of {paths} paths through one module");
        let expected = "at most 1024 trainers of all paths through a module, which is what a round can count";
        require(trainers == 1 || trainers * paths <= MOST_IN_A_ROUND, key, found, expected)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::RunConfig;
    use crate::config::run::tests::SMALL;

    fn run(keys: &str, tables: &str) -> Result<RunConfig, String> {
        RunConfig::from_toml(&format!("{keys}\n{SMALL}\n{tables}")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_path_has_up_to_four_trainers_or_as_many_as_a_round_can_count() {
        assert_eq!(run("", "").unwrap().trainers(), 4);
        assert_eq!(run("", "").unwrap().slots().unwrap().count(), 8);
        assert_eq!(run("trainers_per_path = 1", "").unwrap().slots().unwrap().count(), 2);
        let wide = SMALL.replace("{ experts = 2 }", "{ experts = 384 }");
        assert_eq!(RunConfig::from_toml(&wide).unwrap().trainers(), 2, "the upper level is shared by 384 paths");
        let asynchronous = "[outer]\nmode = \"asynchronous\"";
        assert_eq!(RunConfig::from_toml(&format!("{wide}\n{asynchronous}")).unwrap().trainers(), 4);
        assert_eq!(run("", "[outer]\nkeep_unsent = true").unwrap().trainers(), 1);
        assert_eq!(run("", "[outer]\ndeterministic = true").unwrap().trainers(), 1);
    }

    #[test]
    fn what_follows_from_who_is_early_cannot_be_deterministic() {
        for other in ["streaming = true", "mode = \"asynchronous\""] {
            let refused = run("", &format!("[outer]\ndeterministic = true\n{other}")).unwrap_err();
            assert!(refused.starts_with("outer.deterministic = true: false where"), "{refused}");
        }
    }

    #[test]
    fn more_trainers_than_a_round_can_count_are_refused() {
        let refused = |keys: &str, tables: &str| run(keys, tables).unwrap_err();
        assert!(refused("trainers_per_path = 0", "").starts_with("trainers_per_path = 0: 1 to 1024"));
        assert!(
            refused("trainers_per_path = 520", "")
                .starts_with("trainers_per_path = 520, of 2 paths through one module:")
        );
        for key in ["keep_unsent", "deterministic"] {
            let tables = format!("[outer]\n{key} = true");
            let kept = refused("trainers_per_path = 2", &tables);
            assert!(kept.starts_with("trainers_per_path = 2: must be 1 or unset"), "{kept}");
        }
    }
}
