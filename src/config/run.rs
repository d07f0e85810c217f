//! Configuration of a run: one TOML file, the same for every peer, and part of the run's identity.

use serde::{Deserialize, Serialize};

use super::admission::{Admission, Requires, TooOld, program_version};
use super::key_error::KeyError;
use super::model::ModelConfig;
use super::outer::OuterConfig;
use super::routing::{RoutingConfig, Starts};
use super::sample::SampleConfig;
use super::training::TrainingConfig;
use crate::config::model::images::Reads;
use crate::config::model::levels::{LevelConfig, LevelError, frozen_parts};
use crate::grid::{Grid, GridError, Sharing};
use crate::names::ModuleId;
use crate::sampling::{SampleError, WorkerSlots};
use crate::seed::Seed;

/// A run. Unknown keys are refused; every key that has a default can be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Name for people, and of the run's folder.
    pub name: String,
    /// Seed of all random numbers of the run.
    #[serde(default = "one")]
    pub seed: u64,
    #[serde(default)]
    pub admission: Admission,
    /// Number of paths if no level has `experts`, which otherwise determine it.
    pub paths: Option<u32>,
    /// How many peers may train the same path at the same time. [`RunConfig::trainers`] has the default.
    pub trainers_per_path: Option<u32>,
    #[serde(default)]
    pub text: TextConfig,
    pub model: ModelConfig,
    /// Which parameters each level has, bottom first.
    pub levels: Vec<LevelConfig>,
    /// How many paths are trained at a time, and for how long. If absent, all paths are.
    pub sample: Option<SampleConfig>,
    #[serde(default)]
    pub routing: RoutingConfig,
    pub training: TrainingConfig,
    #[serde(default)]
    pub outer: OuterConfig,
    /// A newer program that the run needs from a phase on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<Requires>,
}

/// `[text]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TextConfig {
    /// What a document is.
    #[serde(skip_serializing_if = "super::is_default")]
    pub format: TextFormat,
    /// The default corpus takes at most this much of each kind of text, to balance the kinds.
    pub kind_cap_bytes: u64,
    /// Plain files are cut at line ends into documents of about this size.
    pub document_bytes: usize,
    /// The field of JSON lines, or column of Parquet, with a document's text.
    pub column: String,
    /// Share of the documents in the test set, chosen by the hash of the document.
    pub test_share: f64,
    /// Share of each shard that is held out to evaluate its path.
    pub held_out_share: f64,
    /// How conversations become text. If absent, `create` takes the chat template of the pretrained model, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<ChatConfig>,
}

/// What a document is, and which of its tokens are learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextFormat {
    /// A text, of which everything is learnt.
    #[default]
    Text,
    /// A conversation, of which what the assistant says is learnt.
    Chat,
    /// A prompt and its completion, which is learnt.
    PromptCompletion,
}

impl TextFormat {
    /// Its name in a run's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Chat => "chat",
            Self::PromptCompletion => "prompt-completion",
        }
    }
}

/// `[text.chat]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatConfig {
    /// A chat template in Jinja, as `transformers` reads it.
    pub template: String,
    /// What a template writes for `bos_token`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bos_token: String,
    /// What a template writes for `eos_token`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub eos_token: String,
}

impl Default for TextConfig {
    fn default() -> Self {
        Self {
            format: TextFormat::Text,
            kind_cap_bytes: 1_500_000,
            document_bytes: 2000,
            column: "text".to_owned(),
            test_share: 0.05,
            held_out_share: 0.02,
            chat: None,
        }
    }
}

impl RunConfig {
    /// The outer configuration of a level. Balance is averaged instead of learnt.
    pub fn outer_of(&self, level: usize) -> OuterConfig {
        match self.levels.get(level) {
            Some(config) if config.is_balance() => self.outer.plain_mean(),
            _ => self.outer.clone(),
        }
    }

    /// Whether the final parameters of a path can differ from those of its modules, because of early stopping or unsent
    /// residuals.
    pub fn paths_end_apart(&self) -> bool {
        self.training.early_stopping || self.outer.keep_unsent
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RunConfigError {
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    #[error("levels: {0}")]
    Levels(#[from] LevelError),
    #[error("levels: {0}")]
    Grid(#[from] GridError),
    #[error("sample: {0}")]
    Sample(#[from] SampleError),
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl RunConfig {
    /// Reads and checks a run.
    pub fn from_toml(text: &str) -> Result<Self, RunConfigError> {
        let run: Self = toml::from_str(text)?;
        run.check()?;
        Ok(run)
    }

    /// Whether this program is older than what the run requires of some phase.
    pub fn is_too_new(&self) -> Option<TooOld> {
        self.requires.as_ref()?.too_new_for(&program_version())
    }

    /// The form of documents, and the input of the network.
    pub fn reading(&self) -> (&TextConfig, Reads) {
        (&self.text, self.model.reads())
    }

    /// The first scored tokens.
    pub fn starts(&self) -> Starts {
        Starts { of_document: self.routing.prefix_tokens, of_sequence: self.model.unscored_tokens() }
    }

    pub fn grid(&self) -> Result<Grid, GridError> {
        let levels = self.levels.iter().map(|level| level.sharing).collect();
        Grid::with_paths(levels, self.paths.unwrap_or(1))
    }

    /// The parts that no level lists, in a model with adapters. They are the ancestor's for ever.
    pub fn frozen(&self) -> Option<LevelConfig> {
        frozen_parts(&self.model, &self.levels)
    }

    /// The same run with all parameters that are trained in one level, in the order of the model's parts.
    pub fn undivided(&self) -> Self {
        let frozen = self.frozen().map(|frozen| frozen.parts).unwrap_or_default();
        let parts = self.model.parts().iter().map(ToString::to_string).filter(|part| !frozen.contains(part)).collect();
        let levels = vec![LevelConfig { parts, sharing: Sharing::Shared }];
        Self {
            levels,
            paths: None,
            routing: RoutingConfig { reshard: Vec::new(), ..self.routing.clone() },
            ..self.clone()
        }
    }

    /// The shared router as a module above the model's levels, in a run that reshards.
    pub fn router_module(&self) -> Option<ModuleId> {
        let level = u16::try_from(self.levels.len()).ok()?;
        (!self.routing.reshard.is_empty()).then_some(ModuleId { level, expert: 0 })
    }

    /// Which paths are trained in which phase. All peers draw the same from the run's seed. In a run that reshards, the
    /// grid has one more level for the router.
    pub fn slots(&self) -> Result<WorkerSlots, RunConfigError> {
        let mut grid = self.grid()?;
        if self.router_module().is_some() {
            grid = grid.and_shared();
        }
        let slots = match self.sample {
            Some(sample) => sample.of(grid, Seed::root(self.seed).child("sample").to_u64())?,
            None => grid.into(),
        };
        Ok(slots.with_trainers(self.trainers())?)
    }
}

fn one() -> u64 {
    1
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::names::{PathId, Phase};

    /// A run of two paths with two blocks of width 16 in two levels.
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
    fn a_run_is_open_unless_it_says_otherwise() {
        let open = RunConfig::from_toml(SMALL).unwrap();
        assert!(open.admission.is_open());
        let invite = RunConfig::from_toml(&format!("admission = \"invite\"\n{SMALL}")).unwrap();
        assert_eq!(invite.admission, Admission::Invite);
        assert_eq!(RunConfig::from_toml(&toml::to_string(&invite).unwrap()).unwrap(), invite);
        let error = RunConfig::from_toml(&format!("admission = \"closed\"\n{SMALL}")).unwrap_err().to_string();
        assert!(error.contains("`open` or `invite`"), "{error}");
    }

    #[test]
    fn a_run_reads_text_unless_it_says_otherwise_and_is_then_written_as_before() {
        let run = RunConfig::from_toml(SMALL).unwrap();
        assert_eq!(run.text.format, TextFormat::Text);
        let written = serde_json::to_string(&run.text).unwrap();
        assert!(!written.contains("format") && !written.contains("chat"), "{written}");
        let chat = "[text]\nformat = \"chat\"\n[text.chat]\ntemplate = \"{{ messages }}\"\neos_token = \"</s>\"";
        let chat = RunConfig::from_toml(&format!("{SMALL}\n{chat}")).unwrap();
        assert_eq!(chat.text.format, TextFormat::Chat);
        assert_eq!(RunConfig::from_toml(&toml::to_string(&chat).unwrap()).unwrap(), chat);
        let with = |text: &str| RunConfig::from_toml(&format!("{SMALL}\n{text}")).unwrap_err().to_string();
        assert!(with("[text]\nformat = \"dialogue\"").contains("`text`, `chat`, `prompt-completion`"));
        assert!(with("[text.chat]\ntemplate = \"{{ messages }}\"").starts_with("text.chat = set: must be left out"));
        let long = format!("[text]\nformat = \"chat\"\n[text.chat]\ntemplate = \"{}\"", "x".repeat(70_000));
        assert!(with(&long).starts_with("text.chat.template = 70000 bytes: at most 65536"));
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
            ("keep_unsent = true\nerror_feedback = false", "outer.keep_unsent = true: false where"),
            ("keep_unsent = true\nresidual_decay = 0.5", "outer.keep_unsent = true: false where"),
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
        let slots = run.slots().unwrap();
        assert_eq!(slots.grid().modules_of(PathId(1)).last().copied(), run.router_module());
        assert_eq!((run.grid().unwrap().levels(), slots.grid().levels(), slots.count()), (2, 3, 2));
        assert_eq!(RunConfig::from_toml(&toml::to_string(&run).unwrap()).unwrap(), run);
        let once = RunConfig::from_toml(SMALL).unwrap();
        assert!(once.router_module().is_none());
        for (routing, outer, expected) in [
            ("reshard = [0]", "", "routing.reshard = [0]: phases from 1"),
            ("reshard = [3]", "", "phases from 1 to the last but one"),
            ("reshard = [2, 2]", "", "each after the one before"),
            ("reshard = [2]", "mode = \"asynchronous\"", "must be unset where"),
            ("reshard = [2]\nslice_share = 0.5", "", "routing.slice_share = 0.5: from 0 to below 0.5"),
        ] {
            let error = with(routing, outer).unwrap_err();
            assert!(error.contains(expected), "{routing}: {error}");
        }
        let alone = SMALL.replace("{ experts = 2 }", "\"shared\"");
        assert!(RunConfig::from_toml(&format!("{alone}\n[routing]\nreshard = [1]")).is_err());
    }

    #[test]
    fn a_module_with_more_paths_than_a_round_counts_is_refused() {
        let with = |experts: u32, outer: &str| {
            let grid = SMALL.replace("experts = 2", &format!("experts = {experts}"));
            RunConfig::from_toml(&format!("{grid}\n[outer]\n{outer}")).map_err(|error| error.to_string())
        };
        assert!(with(1_000, "").is_ok());
        let error = with(1_025, "").unwrap_err();
        assert!(error.starts_with("levels = 1025 paths through a module of level 1: at most 1024, "), "{error}");
        assert!(with(1_025, "mode = \"asynchronous\"").is_ok(), "no update has to count them all");
    }

    /// A 3×3 grid with this sample.
    fn sampled(sample: &str, outer: &str) -> Result<RunConfig, RunConfigError> {
        let grid = SMALL.replace("experts = 2", "experts = 3").replace("\"shared\"", "{ experts = 3 }");
        RunConfig::from_toml(&format!("{grid}\n[outer]\n{outer}\n[sample]\n{sample}"))
    }

    #[test]
    fn a_sample_is_drawn_from_the_runs_seed() {
        let mut run = sampled("paths = 4\nhold_phases = 1", "").unwrap();
        assert_eq!(RunConfig::from_toml(&toml::to_string(&run).unwrap()).unwrap(), run);
        let drawn = |run: &RunConfig| {
            let slots = run.slots().unwrap();
            (0..9).map(|phase| slots.path(PathId(3), Phase(phase))).collect::<Vec<PathId>>()
        };
        let first = drawn(&run);
        assert_eq!((run.slots().unwrap().paths_at_a_time(), drawn(&run)), (4, first.clone()));
        run.seed += 1;
        assert_ne!(drawn(&run), first);
        run.sample = Some(SampleConfig { paths: 4, hold_phases: 0 });
        assert_eq!(drawn(&run), [drawn(&run)[0]; 9], "for good");
    }

    #[test]
    fn a_run_that_samples_nothing_trains_all_paths() {
        let run = RunConfig::from_toml(SMALL).unwrap();
        assert!(!run.slots().unwrap().are_drawn_anew() && run.slots().unwrap().paths_at_a_time() == 2);
    }

    #[test]
    fn a_sample_that_cannot_be_is_refused_in_words() {
        let refused = |sample, outer| sampled(sample, outer).unwrap_err().to_string();
        assert!(refused("paths = 2", "").starts_with("sample: 2 paths at a time leave modules of level 0 out"));
        assert!(refused("paths = 10", "").starts_with("sample.paths = 10: at most the paths of the grid"));
        let asynchronous = "mode = \"asynchronous\"";
        assert!(
            refused("paths = 4\nhold_phases = 2", asynchronous).starts_with("sample.hold_phases = 2: must be 0 where")
        );
        assert!(sampled("paths = 4", asynchronous).is_ok());
        assert!(refused("slots = 4", "").contains("unknown field `slots`"));
        let own = SMALL.replace("\"shared\"", "\"path\"") + "[sample]\npaths = 2";
        let error = RunConfig::from_toml(&own).unwrap_err().to_string();
        assert!(error.starts_with("sample: level 1 has a module for each path"), "{error}");
        let diloco = SMALL.replace("{ experts = 2 }", "\"shared\"").replace("[model]", "paths = 4\n[model]");
        let error = RunConfig::from_toml(&format!("{diloco}[sample]\npaths = 2")).unwrap_err().to_string();
        assert!(error.starts_with("sample.paths = 2: must be unset where no level has experts"), "{error}");
    }
}
