//! The plan of an experiment: arms that override a common run, and claims about their results.

use serde::{Deserialize, Serialize};

use crate::config::run::RunConfigError;
use crate::config::{OuterMode, RunConfig};

/// A file of `configs/experiments`. Unknown keys are refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExperimentFile {
    name: String,
    title: String,
    #[serde(default = "one_seed")]
    seeds: Vec<u64>,
    #[serde(default)]
    route_every: Vec<usize>,
    #[serde(default)]
    slice_share: Option<f64>,
    #[serde(default)]
    score_from: usize,
    #[serde(default)]
    honest_tokens: usize,
    #[serde(default)]
    wall_clock: bool,
    run: toml::Table,
    arms: Vec<ArmFile>,
    #[serde(default)]
    claims: Vec<Claim>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmFile {
    name: String,
    seeds: Option<Vec<u64>>,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    reshard: Vec<u64>,
    route_every: Option<Vec<usize>>,
    #[serde(default)]
    text_share: Option<f64>,
    #[serde(default)]
    run: toml::Table,
}

/// How an arm is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Paths that exchange outer gradients after each phase.
    #[default]
    Paths,
    /// Paths that average their gradients after every step, without an outer step.
    EveryStep,
    /// One network, trained without any outer step.
    Dense,
}

#[derive(Clone, Debug)]
pub struct Experiment {
    /// Also names the folder of the results.
    pub name: String,
    /// For people.
    pub title: String,
    /// In the order of the tables.
    pub arms: Vec<Arm>,
    /// Expected results.
    pub claims: Vec<Claim>,
    /// Share of the documents on which routers are fitted and no path trains, in all arms; at least
    /// [`SLICE_DOCUMENTS`](crate::config::routing::SLICE_DOCUMENTS) for each path. By default
    /// [`SLICE_SHARE`](crate::config::routing::SLICE_SHARE) if an arm fits a router.
    pub slice_share: Option<f64>,
    /// In every arm, each sequence is scored only from this token on; 0 for all tokens.
    pub score_from: usize,
    /// Number of tokens of the test text that are also scored with only the tokens before them.
    pub honest_tokens: usize,
    /// Whether arms are also compared after equal time, for experiments that do not share the machine.
    pub wall_clock: bool,
}

#[derive(Clone, Debug)]
pub struct Arm {
    /// For people, and for claims.
    pub name: String,
    /// It is trained once with each seed.
    pub seeds: Vec<u64>,
    pub kind: Kind,
    /// Before these phases the documents are resharded, by which path predicts them best (DiPaCo, section 2.4.2).
    pub reshard: Vec<u64>,
    /// The test text is also scored with a route every so many tokens.
    pub route_every: Vec<usize>,
    /// Share of the training documents that is used; all if absent.
    pub text_share: Option<f64>,
    /// The run without the seed.
    pub run: RunConfig,
}

/// A claim that one arm's perplexity is below another's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The arm that should be better.
    pub better: String,
    /// With a route every so many tokens, else with one per document.
    pub better_every: Option<usize>,
    /// The arm that should be worse.
    pub than: String,
    /// Whether an equal result is enough.
    #[serde(default)]
    pub or_equal: bool,
}

/// Limit of a run's name.
const MAX_NAME_LENGTH: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    #[error("arm {arm:?}: {reason}")]
    Run { arm: String, reason: RunConfigError },
    #[error("{what}: {expected}")]
    Wrong { what: String, expected: &'static str },
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

fn wrong(what: impl Into<String>, expected: &'static str) -> PlanError {
    PlanError::Wrong { what: what.into(), expected }
}

impl Experiment {
    /// Reads and checks an experiment.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        Self::of(toml::from_str(text)?)
    }

    /// The same from a table, whose errors have no lines.
    pub fn from_table(table: toml::Table) -> Result<Self, PlanError> {
        Self::of(table.try_into()?)
    }

    fn of(file: ExperimentFile) -> Result<Self, PlanError> {
        let plain = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if !plain(&file.name) {
            return Err(wrong("name", "must consist of letters, digits, - and _, since it names a folder"));
        }
        if file.slice_share.is_some_and(|share| !(0.0..0.5).contains(&share)) {
            return Err(wrong("slice_share", "a share from 0 to 0.5"));
        }
        let mut arms: Vec<Arm> = Vec::with_capacity(file.arms.len());
        for arm in &file.arms {
            if arms.iter().any(|other| other.name == arm.name) {
                return Err(wrong(format!("arm {:?}", arm.name), "the name is used twice"));
            }
            arms.push(file.arm(arm)?);
        }
        if arms.is_empty() {
            return Err(wrong("arms", "at least one is needed"));
        }
        for claim in &file.claims {
            claim.check(&arms)?;
        }
        let ExperimentFile { name, title, claims, slice_share, score_from, honest_tokens, wall_clock, .. } = file;
        if arms.iter().any(|arm| score_from >= arm.run.model.context) {
            return Err(wrong("score_from", "must be below every arm's model.context"));
        }
        if honest_tokens > 0 && arms.iter().any(|arm| arm.run.model.reads_images()) {
            return Err(wrong("honest_tokens", "must be 0 where images are read: no token follows the class"));
        }
        Ok(Self { name, title, arms, claims, slice_share, score_from, honest_tokens, wall_clock })
    }

    /// The most paths of any arm that fits routers on the slice; 0 if none does.
    pub fn fitted_paths(&self) -> u32 {
        let fits = |arm: &&Arm| !arm.reshard.is_empty() || !arm.route_every.is_empty();
        self.arms.iter().filter(fits).map(Arm::paths).max().unwrap_or(0)
    }
}

impl ExperimentFile {
    fn arm(&self, arm: &ArmFile) -> Result<Arm, PlanError> {
        let mut table = self.run.clone();
        lay_over(&mut table, &arm.run);
        let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
        let name: String = arm.name.chars().map(plain).take(MAX_NAME_LENGTH).collect();
        table.entry("name").or_insert_with(|| name.into());
        let text = toml::to_string(&table).unwrap_or_default();
        let run = RunConfig::from_toml(&text).map_err(|reason| PlanError::Run { arm: arm.name.clone(), reason })?;
        let found = Arm {
            name: arm.name.clone(),
            seeds: arm.seeds.clone().unwrap_or_else(|| self.seeds.clone()),
            kind: arm.kind,
            reshard: arm.reshard.clone(),
            route_every: arm.route_every.clone().unwrap_or_else(|| self.route_every.clone()),
            text_share: arm.text_share,
            run,
        };
        found.check()
    }
}

impl Arm {
    /// Number of paths; 0 for an invalid grid, which a checked run does not have.
    pub fn paths(&self) -> u32 {
        self.run.grid().map_or(0, |grid| grid.path_count())
    }

    /// The run with one of its seeds.
    pub fn seeded(&self, seed: u64) -> RunConfig {
        RunConfig { seed, ..self.run.clone() }
    }

    fn check(mut self) -> Result<Self, PlanError> {
        let of = |key: &str| format!("arm {:?}: {key}", self.name);
        if self.seeds.is_empty() {
            return Err(wrong(of("seeds"), "at least one is needed"));
        }
        if self.run.sample.is_some() {
            return Err(wrong(of("run.sample"), "an experiment trains all paths of its grids; use a smaller grid"));
        }
        if self.run.model.adapter.is_some() {
            return Err(wrong(
                of("run.model.adapter"),
                "an experiment trains its own ancestor, and adapters need a pretrained one; use simulate --ancestor",
            ));
        }
        if self.run.training.early_stopping {
            return Err(wrong(
                of("run.training.early_stopping"),
                "must be false: an experiment scores every arm both ways",
            ));
        }
        if self.run.training.shared_phases > 0 {
            return Err(wrong(of("run.training.shared_phases"), "an experiment trains one stage; see ancestor_steps"));
        }
        if !self.run.routing.reshard.is_empty() {
            return Err(wrong(
                of("run.routing.reshard"),
                "not here: set reshard in the arm and slice_share in the experiment",
            ));
        }
        if self.run.outer.mode != OuterMode::Synchronous {
            return Err(wrong(of("run.outer.mode"), "must be synchronous: in one process no contribution is late"));
        }
        if self.kind == Kind::Dense && (self.paths() != 1 || !self.reshard.is_empty()) {
            return Err(wrong(of("kind"), "a dense network has one path, and its text is not resharded"));
        }
        if self.reshard.iter().any(|phase| *phase == 0 || *phase >= self.run.training.phases) {
            return Err(wrong(of("reshard"), "phases from 1 to the last but one: before phase 1 there are no scores"));
        }
        if self.route_every.iter().any(|every| *every == 0 || *every > self.run.model.context) {
            return Err(wrong(of("route_every"), "1 to the context's tokens"));
        }
        if self.run.model.reads_images() && !self.route_every.is_empty() {
            return Err(wrong(of("route_every"), "must be empty where images are read: each image is routed once"));
        }
        if self.run.model.looks_ahead() && !self.route_every.is_empty() {
            return Err(wrong(
                of("route_every"),
                "must be empty with pooling = \"sequence\": its features include the tokens that the path is to be \
                 chosen for",
            ));
        }
        if self.text_share.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            return Err(wrong(of("text_share"), "a share above 0, up to 1"));
        }
        if self.paths() == 1 {
            self.route_every.clear();
        }
        self.reshard.sort_unstable();
        Ok(self)
    }
}

impl Claim {
    fn check(&self, arms: &[Arm]) -> Result<(), PlanError> {
        for name in [&self.better, &self.than] {
            if !arms.iter().any(|arm| arm.name == *name) {
                return Err(wrong(format!("claims: {name:?}"), "must be the name of an arm"));
            }
        }
        let every =
            |arm: &Arm| arm.name == self.better && self.better_every.is_none_or(|w| arm.route_every.contains(&w));
        if !arms.iter().any(every) {
            return Err(wrong(
                format!("claims: {:?}", self.better),
                "better_every must be one of the arm's route_every",
            ));
        }
        Ok(())
    }
}

/// Merges tables key by key; other values are replaced.
pub(super) fn lay_over(below: &mut toml::Table, above: &toml::Table) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => lay_over(below, above),
            _ => {
                below.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        name = "small"
        title = "Two arms"
        seeds = [1, 2]
        route_every = [16]

        [run]
        levels = [{ parts = ["embedding", "blocks.0-0", "final-norm", "head"], sharing = { experts = 2 } }]
        model = { blocks = 1, width = 16, heads = 2, vocabulary = 300, context = 32 }
        routing = { prefix_tokens = 8 }
        training = { batch_sequences = 2, inner_steps = 2, phases = 4, ancestor_steps = 2, learning_rate = 1e-3 }

        [[arms]]
        name = "mixture, 2 paths"
        reshard = [3, 1]
        run.routing.method = "random"

        [[arms]]
        name = "dense"
        seeds = [7]
        kind = "dense"
        run.levels = [{ parts = ["embedding", "blocks.0-0", "final-norm", "head"], sharing = "shared" }]

        [[claims]]
        better = "mixture, 2 paths"
        better_every = 16
        than = "dense"
    "#;

    #[test]
    fn an_arm_is_the_common_run_and_what_it_says_itself() {
        let found = Experiment::from_toml(FILE).unwrap();
        let [mixture, dense] = &found.arms[..] else { panic!("two arms") };
        assert_eq!((mixture.paths(), dense.paths(), found.fitted_paths()), (2, 1, 2));
        assert_eq!((&mixture.seeds[..], &dense.seeds[..]), (&[1, 2][..], &[7][..]));
        assert_eq!((&mixture.reshard[..], &mixture.route_every[..]), (&[1, 3][..], &[16][..]));
        assert!(dense.route_every.is_empty(), "there is but one path to choose");
        assert_eq!(mixture.run.training, dense.run.training);
        assert_eq!(mixture.run.routing.method, crate::config::RoutingMethod::Random);
        assert_eq!(dense.run.routing.method, crate::config::RoutingMethod::Kmeans);
        assert_eq!((mixture.seeded(9).seed, mixture.run.name.as_str()), (9, "mixture--2-paths"));
    }

    #[test]
    fn what_makes_no_experiment_is_refused_in_words() {
        let refused = |from: &str, to: &str| {
            assert!(FILE.contains(from), "{from}");
            Experiment::from_toml(&FILE.replacen(from, to, 1)).unwrap_err().to_string()
        };
        let cases = [
            ("\"small\"", "\"../small\"", "names a folder"),
            ("name = \"dense\"", "name = \"mixture, 2 paths\"", "the name is used twice"),
            ("seeds = [7]", "seeds = []", "at least one is needed"),
            ("reshard = [3, 1]", "reshard = [4]", "last but one"),
            ("reshard = [3, 1]", "kind = \"dense\"", "a dense network has one path"),
            ("route_every = [16]", "route_every = [33]", "the context's tokens"),
            ("better_every = 16", "better_every = 8", "one of the arm's route_every"),
            ("than = \"dense\"", "than = \"sparse\"", "\"sparse\""),
            ("reshard = [3, 1]", "text_share = 0.0", "a share above 0"),
            ("reshard = [3, 1]", "run.outer.mode = \"asynchronous\"", "no contribution is late"),
            ("reshard = [3, 1]", "run.routing.reshard = [1]", "set reshard in the arm"),
            ("reshard = [3, 1]", "run.routing.overlap = 3", "the number of paths"),
            ("heads = 2", "heads = 3", "arm \"mixture, 2 paths\""),
            ("title", "titel", "titel"),
            ("kind = \"dense\"", "kind = \"thin\"", "thin"),
        ];
        for (from, to, expected) in cases {
            let found = refused(from, to);
            assert!(found.contains(expected), "{to}: {found}");
        }
    }
}
