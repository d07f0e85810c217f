//! What a swarm trains: one TOML for a run, the same for every peer, part of the run's identity.

use serde::{Deserialize, Serialize};

use super::levels::{LevelConfig, LevelError};
use super::model::{ModelConfig, ModelError};
use super::outer::OuterConfig;
use super::routing::RoutingConfig;
use super::sample::SampleConfig;
use crate::grid::{Grid, GridError, Sharing};
use crate::names::ModuleId;
use crate::sampling::{SampleError, Seats};
use crate::seed::Seed;

/// A run. Unknown keys are refused; every key that has a default can be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// For people; names the run's folder.
    pub name: String,
    /// Root of all chance in the run.
    #[serde(default = "one")]
    pub seed: u64,
    /// How many paths, where no level has `experts` (they give it otherwise).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<u32>,
    /// How text becomes sequences.
    #[serde(default)]
    pub text: TextConfig,
    /// The network of a path.
    pub model: ModelConfig,
    /// Which parameters make up each level, bottom first.
    pub levels: Vec<LevelConfig>,
    /// How many of the grid's paths are trained at a time, and for how long; all of them, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<SampleConfig>,
    /// Which sequence goes to which path.
    #[serde(default)]
    pub routing: RoutingConfig,
    /// The inner steps.
    pub training: TrainingConfig,
    /// The outer steps.
    #[serde(default)]
    pub outer: OuterConfig,
}

/// `[text]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TextConfig {
    /// The default corpus takes at most this much of each kind of text, so that kinds balance.
    pub kind_cap_bytes: u64,
    /// Plain files are cut into documents of about this size, at line ends.
    pub document_bytes: usize,
    /// The field of JSON lines, and the column of Parquet, that holds a document's text. What is as it always was is not
    /// written into a manifest: who does not know the key can join.
    #[serde(skip_serializing_if = "is_text")]
    pub column: String,
    /// Share of the documents kept for the test table (by hash of the document).
    pub test_share: f64,
    /// Share of each shard held out from training, to evaluate its path.
    pub held_out_share: f64,
}

fn is_text(column: &str) -> bool {
    column == "text"
}

impl Default for TextConfig {
    fn default() -> Self {
        Self {
            kind_cap_bytes: 1_500_000,
            document_bytes: 2000,
            column: "text".to_owned(),
            test_share: 0.05,
            held_out_share: 0.02,
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_none_at_all(count: &usize) -> bool {
    *count == 0
}

fn is_false(truth: &bool) -> bool {
    !*truth
}

fn is_true(truth: &bool) -> bool {
    *truth
}

fn yes() -> bool {
    true
}

/// `[training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConfig {
    /// Sequences per inner step, whatever the machine's micro-batch.
    pub batch_sequences: usize,
    /// `H`: inner steps per phase.
    pub inner_steps: u64,
    /// Outer steps.
    pub phases: u64,
    /// Outer steps before these in which all levels are shared, and text goes to paths by chance: the swarm grows its own
    /// ancestor, from which routing and paths then begin.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shared_phases: u64,
    /// Inner steps that another run makes from where this one ends; they count in the learning rate's schedule.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub later_steps: u64,
    /// Steps of the dense ancestor that every path starts from; they count in the learning rate's schedule.
    pub ancestor_steps: u64,
    /// Peak of the inner learning rate.
    pub learning_rate: f64,
    /// The cosine ends at this share of the peak.
    #[serde(default = "tenth")]
    pub final_learning_rate_share: f64,
    /// From the beginning of each of these phases the cosine falls anew, from the peak: as where the text is shared out anew
    /// (DiPaCo, figure 10).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decay_restarts: Vec<u64>,
    /// Steps of linear warm-up, at the start of the ancestor.
    #[serde(default)]
    pub warmup_steps: u64,
    /// AdamW's decoupled weight decay.
    #[serde(default = "tenth")]
    pub weight_decay: f64,
    /// AdamW's beta1 and beta2.
    #[serde(default = "betas")]
    pub betas: [f64; 2],
    /// Gradients are scaled down to this norm.
    #[serde(default = "one_f64")]
    pub clip_norm: f64,
    /// Each path is scored on its held-out text before each phase but the first and in the end, and what it was best with is
    /// what it counts as when it is done: evaluated, asked and collected (DiPaCo, section 2.4.4).
    #[serde(default, skip_serializing_if = "is_false")]
    pub early_stopping: bool,
    /// Whether paths and ancestor also learn to predict a document's first tokens, which choose its path and do not count in
    /// evaluation. Those of a batch that has no others count always.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub predict_prefix: bool,
    /// So many tokens at the beginning of each sequence are not learnt, whatever it begins with: a control for networks that
    /// see them before they predict them.
    #[serde(default, skip_serializing_if = "is_none_at_all")]
    pub unscored_tokens: usize,
}

impl TrainingConfig {
    /// Inner steps from the ancestor's first to the last of a path, in whichever stage or run it is made.
    pub fn total_steps(&self) -> u64 {
        self.ancestor_steps + (self.shared_phases + self.phases) * self.inner_steps + self.later_steps
    }
}

/// Why a run's configuration makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum RunConfigError {
    /// Not TOML, an unknown key, a wrong type.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// The levels do not cover the model.
    #[error("levels: {0}")]
    Levels(#[from] LevelError),
    /// The levels make no grid.
    #[error("levels: {0}")]
    Grid(#[from] GridError),
    /// The grid cannot be sampled so.
    #[error("sample: {0}")]
    Sample(#[from] SampleError),
    /// The model's sizes do not fit each other.
    #[error("model: {0}")]
    Model(#[from] ModelError),
    /// A value outside its range.
    #[error("{key} = {found}: {expected}")]
    Range {
        /// Dotted key.
        key: &'static str,
        /// What stands there.
        found: String,
        /// What may stand there.
        expected: &'static str,
    },
}

impl RunConfig {
    /// Reads and checks a run.
    ///
    /// # Errors
    /// Says which key is wrong, why, and what may stand there.
    pub fn from_toml(text: &str) -> Result<Self, RunConfigError> {
        let run: Self = toml::from_str(text)?;
        run.check()?;
        Ok(run)
    }

    /// The grid that the levels span.
    ///
    /// # Errors
    /// If they span none.
    pub fn grid(&self) -> Result<Grid, GridError> {
        let levels = self.levels.iter().map(|level| level.sharing).collect();
        Grid::with_paths(levels, self.paths.unwrap_or(1))
    }

    /// The same with one level that holds all parameters, in the order of the model's parts.
    pub fn undivided(&self) -> Self {
        let parts = self.model.parts().iter().map(ToString::to_string).collect();
        let levels = vec![LevelConfig { parts, sharing: Sharing::Shared }];
        Self {
            levels,
            paths: None,
            routing: RoutingConfig { reshard: Vec::new(), ..self.routing.clone() },
            ..self.clone()
        }
    }

    /// The router that all paths share, as a module above the model's levels, where the text is shared out anew.
    pub fn router_module(&self) -> Option<ModuleId> {
        let level = u16::try_from(self.levels.len()).ok()?;
        (!self.routing.reshard.is_empty()).then_some(ModuleId { level, expert: 0 })
    }

    /// Which of the grid's paths are trained when. Everybody draws the same, from the run's seed. Where the text is shared
    /// out anew, the grid has a level more: the router.
    ///
    /// # Errors
    /// If the levels span no grid, or it cannot be sampled so.
    pub fn seats(&self) -> Result<Seats, RunConfigError> {
        let mut grid = self.grid()?;
        if self.router_module().is_some() {
            grid = grid.and_shared();
        }
        let Some(sample) = self.sample else { return Ok(grid.into()) };
        Ok(sample.of(grid, Seed::root(self.seed).child("sample").to_u64())?)
    }
}

fn one() -> u64 {
    1
}

fn one_f64() -> f64 {
    1.0
}

fn tenth() -> f64 {
    0.1
}

fn betas() -> [f64; 2] {
    [0.9, 0.95]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::names::{PathId, Phase};

    /// A run of two paths, as its file: two blocks of width 16 in two levels.
    pub(crate) const SMALL: &str = r#"
        name = "small"
        [model]
        blocks = 2
        width = 16
        heads = 2
        vocabulary = 300
        context = 64
        [[levels]]
        parts = ["embedding", "block.0"]
        sharing = { experts = 2 }
        [[levels]]
        parts = ["block.1", "final-norm", "head"]
        sharing = "shared"
        [training]
        batch_sequences = 2
        inner_steps = 5
        phases = 3
        ancestor_steps = 4
        learning_rate = 1e-3
    "#;

    #[test]
    fn a_small_run_gets_its_defaults() {
        let run = RunConfig::from_toml(SMALL).unwrap();
        assert_eq!(run.grid().unwrap().path_count(), 2);
        assert_eq!(run.model.feed_forward(), 64);
        assert_eq!(run.training.total_steps(), 19);
        let again = RunConfig::from_toml(&toml::to_string(&run).unwrap()).unwrap();
        assert_eq!(again, run);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let broken = |from: &str, to: &str| RunConfig::from_toml(&SMALL.replace(from, to)).unwrap_err().to_string();
        assert!(broken("phases = 3", "phases = 3\nfases = 4").contains("fases"));
        assert!(broken("inner_steps = 5", "inner_steps = 0").starts_with("training.inner_steps = 0:"));
        assert!(broken("\"block.1\"", "\"block.0\"").contains("block.0"));
        assert!(broken(", \"head\"", "").contains("head"));
        assert!(broken("heads = 2", "heads = 3").contains("heads"));
        assert!(broken("experts = 2", "experts = 0").contains("experts"));
    }

    #[test]
    fn a_way_of_travelling_that_cannot_be_is_refused_in_words() {
        for (outer, expected) in [
            ("codec = { top-k = 0 }", "outer.codec = { top-k = 0 }: 1 to 4096"),
            ("average_codec = { top-k = 4097 }", "outer.average_codec = { top-k = 4097 }: 1 to 4096"),
            ("residual_decay = 0.0", "outer.residual_decay = 0: above 0"),
            ("residual_decay = 1.5", "outer.residual_decay = 1.5: above 0"),
            ("mode = \"asynchronous\"\nrescale = \"radial\"", "outer.rescale = radial: not"),
            ("mode = \"asynchronous\"\ndivide = \"senders\"", "outer.divide = senders: not"),
        ] {
            let error = RunConfig::from_toml(&format!("{SMALL}\n[outer]\n{outer}")).unwrap_err().to_string();
            assert!(error.contains(expected), "{outer}: {error}");
        }
    }

    #[test]
    fn text_is_shared_out_anew_by_a_module_above_the_others() {
        let with = |routing: &str, outer: &str| {
            RunConfig::from_toml(&format!("{SMALL}\n[routing]\n{routing}\n[outer]\n{outer}"))
                .map_err(|error| error.to_string())
        };
        let run = with("reshard = [1, 2]\nslice_share = 0.1", "").unwrap();
        let seats = run.seats().unwrap();
        assert_eq!(seats.grid().modules_of(PathId(1)).last().copied(), run.router_module());
        assert_eq!((run.grid().unwrap().levels(), seats.grid().levels(), seats.count()), (2, 3, 2));
        assert_eq!(RunConfig::from_toml(&toml::to_string(&run).unwrap()).unwrap(), run);
        let once = RunConfig::from_toml(SMALL).unwrap();
        assert!(once.router_module().is_none() && !serde_json::to_string(&once).unwrap().contains("slice"));
        for (routing, outer, expected) in [
            ("reshard = [0]", "", "routing.reshard = [0]: phases from 1"),
            ("reshard = [3]", "", "phases from 1 to the last but one"),
            ("reshard = [2, 2]", "", "each after the one before"),
            ("reshard = [2]", "mode = \"asynchronous\"", "nothing where"),
            ("reshard = [2]\nslice_share = 0.5", "", "routing.slice_share = 0.5: from 0 to below 0.5"),
        ] {
            let error = with(routing, outer).unwrap_err();
            assert!(error.contains(expected), "{routing}: {error}");
        }
        let alone = SMALL.replace("{ experts = 2 }", "\"shared\"");
        assert!(RunConfig::from_toml(&format!("{alone}\n[routing]\nreshard = [1]")).is_err());
    }

    /// A 3×3 grid, of which this is sampled.
    fn sampled(sample: &str, outer: &str) -> Result<RunConfig, RunConfigError> {
        let grid = SMALL.replace("experts = 2", "experts = 3").replace("\"shared\"", "{ experts = 3 }");
        RunConfig::from_toml(&format!("{grid}\n[outer]\n{outer}\n[sample]\n{sample}"))
    }

    #[test]
    fn a_sample_is_drawn_from_the_runs_seed() {
        let mut run = sampled("paths = 4\nhold_phases = 1", "").unwrap();
        assert_eq!(RunConfig::from_toml(&toml::to_string(&run).unwrap()).unwrap(), run);
        let drawn = |run: &RunConfig| {
            let seats = run.seats().unwrap();
            (0..9).map(|phase| seats.path(PathId(3), Phase(phase))).collect::<Vec<PathId>>()
        };
        let first = drawn(&run);
        assert_eq!((run.seats().unwrap().count(), drawn(&run)), (4, first.clone()));
        run.seed += 1;
        assert_ne!(drawn(&run), first);
        run.sample = Some(SampleConfig { paths: 4, hold_phases: 0 });
        assert_eq!(drawn(&run), [drawn(&run)[0]; 9], "for good");
    }

    #[test]
    fn a_run_that_samples_nothing_is_written_as_before() {
        let run = RunConfig::from_toml(SMALL).unwrap();
        assert!(!run.seats().unwrap().are_drawn_anew() && run.seats().unwrap().count() == 2);
        assert!(!serde_json::to_string(&run).unwrap().contains("sample"));
    }

    #[test]
    fn a_sample_that_cannot_be_is_refused_in_words() {
        let refused = |sample, outer| sampled(sample, outer).unwrap_err().to_string();
        assert!(refused("paths = 2", "").starts_with("sample: 2 paths at a time leave modules of level 0 out"));
        assert!(refused("paths = 10", "").starts_with("sample.paths = 10: no more paths than the grid has"));
        let asynchronous = "mode = \"asynchronous\"";
        assert!(refused("paths = 4\nhold_phases = 2", asynchronous).starts_with("sample.hold_phases = 2: 0 where"));
        assert!(sampled("paths = 4", asynchronous).is_ok());
        assert!(refused("seats = 4", "").contains("unknown field `seats`"));
        let own = SMALL.replace("\"shared\"", "\"path\"") + "[sample]\npaths = 2";
        let error = RunConfig::from_toml(&own).unwrap_err().to_string();
        assert!(error.starts_with("sample: level 1 has a module for each path"), "{error}");
        let diloco = SMALL.replace("{ experts = 2 }", "\"shared\"").replace("[model]", "paths = 4\n[model]");
        let error = RunConfig::from_toml(&format!("{diloco}[sample]\npaths = 2")).unwrap_err().to_string();
        assert!(error.starts_with("sample.paths = 2: nothing where no level has experts"), "{error}");
    }
}
