//! Runs in two stages. In the first, all levels are shared and the swarm trains its own ancestor (DiLoCo). In the
//! second, each document is routed to a path (DiPaCo, section 2.4).

use super::checking::MOST_IN_A_ROUND;
use super::routing::{RoutingConfig, RoutingMethod};
use super::run::{RunConfig, RunConfigError};
use super::training::TrainingConfig;
use crate::config::model::levels::LevelConfig;
use crate::grid::Sharing;

impl RunConfig {
    /// The first stage, if there is one: every level is one shared module, and documents go to paths at random. It has
    /// as many paths as the second stage trains at a time.
    pub fn shared_stage(&self) -> Result<Option<Self>, RunConfigError> {
        let training = &self.training;
        if training.shared_phases == 0 {
            return Ok(None);
        }
        let paths = self.slots()?.paths_at_a_time();
        let shared = |level: &LevelConfig| LevelConfig { sharing: Sharing::Shared, ..level.clone() };
        Ok(Some(Self {
            paths: Some(paths),
            // There all paths go through each module.
            trainers_per_path: self
                .trainers_per_path
                .map(|trainers| trainers.min(MOST_IN_A_ROUND / paths.max(1)).max(1)),
            levels: self.levels.iter().map(shared).collect(),
            sample: None,
            // Its phases are those of the paths.
            requires: None,
            routing: RoutingConfig {
                method: RoutingMethod::Random,
                prefix_tokens: self.routing.prefix_tokens,
                ..RoutingConfig::default()
            },
            training: TrainingConfig {
                phases: training.shared_phases,
                shared_phases: 0,
                later_steps: training.later_steps + training.phases * training.inner_steps,
                decay_restarts: Vec::new(),
                early_stopping: false,
                ..training.clone()
            },
            ..self.clone()
        }))
    }

    /// The second stage. The phases of the first count as ancestor steps, so that the learning rate continues its
    /// schedule.
    pub fn path_stage(&self) -> Self {
        let training = &self.training;
        let before = training.shared_phases * training.inner_steps;
        let ancestor_steps = training.ancestor_steps + before;
        Self { training: TrainingConfig { shared_phases: 0, ancestor_steps, ..training.clone() }, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::run::tests::SMALL;

    #[test]
    fn a_run_of_two_stages_is_two_runs_of_one_schedule() {
        let plain = RunConfig::from_toml(SMALL).unwrap();
        assert!(plain.shared_stage().unwrap().is_none() && plain.path_stage() == plain);
        let written = SMALL.replace("phases = 3", "phases = 3\nshared_phases = 7\ndecay_restarts = [1]");
        let run = RunConfig::from_toml(&written).unwrap();
        let (shared, paths) = (run.shared_stage().unwrap().unwrap(), run.path_stage());
        let grid = shared.grid().unwrap();
        assert_eq!((grid.path_count(), grid.modules().len()), (2, 2), "two paths through the same modules");
        assert_eq!(shared.routing.method, RoutingMethod::Random);
        assert_eq!((shared.training.phases, shared.training.ancestor_steps), (7, 4));
        assert_eq!((paths.training.phases, paths.training.ancestor_steps), (3, 4 + 7 * 5));
        assert_eq!(shared.training.total_steps(), paths.training.total_steps());
        assert_eq!((paths.levels.clone(), paths.routing.clone()), (run.levels.clone(), run.routing.clone()));
        for stage in [shared, paths] {
            assert!(stage.shared_stage().unwrap().is_none());
            assert_eq!(RunConfig::from_toml(&toml::to_string(&stage).unwrap()).unwrap(), stage);
        }
    }

    #[test]
    fn of_a_sampled_grid_there_are_as_many_paths_before_as_at_a_time() {
        let grid = SMALL.replace("experts = 2", "experts = 3").replace("\"shared\"", "{ experts = 3 }");
        let written = format!("{}\n[sample]\npaths = 4", grid.replace("phases = 3", "phases = 3\nshared_phases = 2"));
        let shared = RunConfig::from_toml(&written).unwrap().shared_stage().unwrap().unwrap();
        assert_eq!((shared.grid().unwrap().path_count(), shared.sample), (4, None));
    }

    #[test]
    fn stages_that_cannot_be_are_refused() {
        let refused =
            |phases: &str| RunConfig::from_toml(&SMALL.replace("phases = 3", phases)).unwrap_err().to_string();
        let error = refused("phases = 3\nshared_phases = 99999999");
        assert!(error.starts_with("training.shared_phases = 99999999: 0 to 16777216"), "{error}");
        assert!(refused("phases = 3\nlater_steps = 9999999999999").starts_with("training.later_steps = "));
    }
}
