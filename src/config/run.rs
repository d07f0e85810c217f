//! What a swarm trains: one TOML for a run, the same for every peer, part of the run's identity.

use serde::{Deserialize, Serialize};

use super::levels::{LevelConfig, LevelError, check_levels};
use super::model::{ModelConfig, ModelError};
use crate::grid::{Grid, GridError};

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
    /// Share of the documents kept for the test table (by hash of the document).
    pub test_share: f64,
    /// Share of each shard held out from training, to evaluate its path.
    pub held_out_share: f64,
}

impl Default for TextConfig {
    fn default() -> Self {
        Self { kind_cap_bytes: 1_500_000, document_bytes: 2000, test_share: 0.05, held_out_share: 0.02 }
    }
}

/// How sequences find their path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingMethod {
    /// k-means on the ancestor's features (DiPaCo, section 2.4).
    Kmeans,
    /// By hash of the document: the control.
    Random,
}

/// `[routing]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingConfig {
    /// k-means, or the random control.
    pub method: RoutingMethod,
    /// The first tokens of a document, which choose its path; they do not count in evaluation.
    pub prefix_tokens: usize,
    /// At most this many k-means rounds.
    pub kmeans_rounds: usize,
}

impl Default for RoutingConfig {
    fn default() -> Self {
        Self { method: RoutingMethod::Kmeans, prefix_tokens: 32, kmeans_rounds: 50 }
    }
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
    /// Steps of the dense ancestor that every path starts from; they count in the learning rate's schedule.
    pub ancestor_steps: u64,
    /// Peak of the inner learning rate.
    pub learning_rate: f64,
    /// The cosine ends at this share of the peak.
    #[serde(default = "tenth")]
    pub final_learning_rate_share: f64,
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
}

impl TrainingConfig {
    /// Inner steps from the ancestor's first to the last of a path.
    pub fn total_steps(&self) -> u64 {
        self.ancestor_steps + self.phases * self.inner_steps
    }
}

/// How the average of outer gradients is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rescale {
    /// Times the square root of the distinct paths in the update (DiPaCo, section 2.3).
    SqrtPaths,
    /// As it is (DiLoCo).
    None,
}

/// How outer gradients and their averages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    /// 32 bits a value, exact.
    Fp32,
    /// 8 bits a value and a scale per group of 128.
    Int8,
    /// 4 bits a value and a scale per group of 128.
    Int4,
}

/// When a module's owner makes an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OuterMode {
    /// When all its paths have contributed to the version, or at a deadline: a path waits for its modules.
    Synchronous,
    /// As contributions come, with delayed momentum; a slower path makes fewer inner steps in a phase, and none waits
    /// for another.
    Asynchronous,
}

/// `[outer]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OuterConfig {
    /// Whether paths wait for each other.
    pub mode: OuterMode,
    /// Nesterov's learning rate.
    pub learning_rate: f32,
    /// Nesterov's momentum.
    pub momentum: f32,
    /// Scaling of the average.
    pub rescale: Rescale,
    /// Compression up and down.
    pub codec: Codec,
    /// Whether what compression lost is added to the next outer gradient.
    pub error_feedback: bool,
}

impl Default for OuterConfig {
    fn default() -> Self {
        Self {
            mode: OuterMode::Synchronous,
            learning_rate: 0.7,
            momentum: 0.9,
            rescale: Rescale::SqrtPaths,
            codec: Codec::Int4,
            error_feedback: true,
        }
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

    /// Checks what the types do not.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), RunConfigError> {
        self.model.check()?;
        check_levels(&self.model, &self.levels)?;
        let grid = self.grid()?;
        let declared = self.paths.unwrap_or_else(|| grid.path_count());
        require(declared == grid.path_count(), "paths", declared, "the product of the levels' experts, or nothing")?;
        let sane_name = !self.name.is_empty()
            && self.name.len() <= 64
            && self.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        require(sane_name, "name", &self.name, "1 to 64 letters, digits, - and _")?;
        self.check_text()?;
        self.check_training()?;
        let outer = &self.outer;
        require(
            outer.learning_rate > 0.0 && outer.learning_rate <= 10.0,
            "outer.learning_rate",
            outer.learning_rate,
            "above 0, at most 10",
        )?;
        require(
            (0.0..1.0).contains(&outer.momentum),
            "outer.momentum",
            outer.momentum,
            "from 0 up to, but not including, 1",
        )
    }

    fn check_text(&self) -> Result<(), RunConfigError> {
        let text = &self.text;
        require(
            (64..=1 << 20).contains(&text.document_bytes),
            "text.document_bytes",
            text.document_bytes,
            "64 to 1048576",
        )?;
        require((0.0..0.5).contains(&text.test_share), "text.test_share", text.test_share, "from 0 to below 0.5")?;
        require(
            (0.0..0.5).contains(&text.held_out_share),
            "text.held_out_share",
            text.held_out_share,
            "from 0 to below 0.5",
        )?;
        let prefix = self.routing.prefix_tokens;
        require(
            prefix >= 1 && prefix < self.model.context,
            "routing.prefix_tokens",
            prefix,
            "at least 1 and below model.context",
        )?;
        require(
            (1..=10_000).contains(&self.routing.kmeans_rounds),
            "routing.kmeans_rounds",
            self.routing.kmeans_rounds,
            "1 to 10000",
        )
    }

    fn check_training(&self) -> Result<(), RunConfigError> {
        let training = &self.training;
        require(
            (1..=1 << 20).contains(&training.batch_sequences),
            "training.batch_sequences",
            training.batch_sequences,
            "1 to 1048576",
        )?;
        require(
            (1..=1 << 32).contains(&training.inner_steps),
            "training.inner_steps",
            training.inner_steps,
            "1 or more",
        )?;
        require((1..=1 << 24).contains(&training.phases), "training.phases", training.phases, "1 to 16777216")?;
        require(
            training.ancestor_steps <= 1 << 40,
            "training.ancestor_steps",
            training.ancestor_steps,
            "at most 2^40",
        )?;
        let rate = training.learning_rate;
        require(rate > 0.0 && rate < 1.0, "training.learning_rate", rate, "above 0, below 1")?;
        let share = training.final_learning_rate_share;
        require((0.0..=1.0).contains(&share), "training.final_learning_rate_share", share, "0 to 1")?;
        require(
            training.warmup_steps <= training.total_steps(),
            "training.warmup_steps",
            training.warmup_steps,
            "at most all steps",
        )?;
        require(
            (0.0..1.0).contains(&training.weight_decay),
            "training.weight_decay",
            training.weight_decay,
            "from 0 to below 1",
        )?;
        let betas_fit = training.betas.iter().all(|beta| (0.0..1.0).contains(beta));
        require(betas_fit, "training.betas", format!("{:?}", training.betas), "two numbers from 0 to below 1")?;
        require(
            training.clip_norm > 0.0 && training.clip_norm.is_finite(),
            "training.clip_norm",
            training.clip_norm,
            "above 0",
        )
    }
}

fn require(holds: bool, key: &'static str, found: impl ToString, expected: &'static str) -> Result<(), RunConfigError> {
    if holds { Ok(()) } else { Err(RunConfigError::Range { key, found: found.to_string(), expected }) }
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
        assert_eq!((run.outer.codec, run.outer.mode), (Codec::Int4, OuterMode::Synchronous));
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
}
