//! `pathswarm import`: makes a model of `transformers` the ancestor of a run.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use crate::cli::swarm::Globals;
use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::model::foreign_folder::{self, ForeignModel};
use crate::config::run::RunConfigError;
use crate::config::{AdapterConfig, LevelConfig, ModelConfig, Positions, RunConfig};
use crate::grid::Sharing;
use crate::model::exchange;
use crate::peer::collected::PRETRAINED;
use crate::store::StagedFolder;

/// The configuration of the run, except its model: settings that keep what a pretrained model knows.
pub(super) const PATTERN: &str = include_str!("../../../../configs/smollm2-2x2.toml");

/// The longest sequence to train on unless `--context` says otherwise, in tokens. Rotary positions lose nothing by it.
const CONTEXT: usize = 1024;

/// Adapters take about ten times the step of the weights beside them ("LoRA without regret", Schulman and others, 2025).
const ADAPTER_LEARNING_RATE: f64 = 2e-4;

/// `pathswarm import`
#[derive(Args)]
pub struct Import {
    /// A folder with config.json, safetensors files and tokenizer.json, as save_pretrained writes it.
    model: PathBuf,
    /// A new folder, for `create --ancestor`.
    folder: PathBuf,
    /// Experts of each level: the blocks are divided into so many levels of about equal depth.
    #[arg(long, value_name = "NxN", default_value = "2x2")]
    grid: String,
    /// Train adapters of this rank (LoRA) instead of the model, which stays as it is.
    #[arg(long, value_name = "RANK")]
    adapter: Option<usize>,
    /// Longest sequence to train on, in tokens; by default the model's, but at most 1024 with rotary positions. Learned
    /// positions beyond it are dropped.
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
}

impl Import {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        foreign_folder::must_be_new(&self.folder)?;
        let foreign = ForeignModel::open(&self.model, self.context)?;
        let run = self.run_config(&foreign)?;
        let whole = run.model.without_adapter();
        let parts = levels(&whole, &[1]);
        let (values, unread) = foreign.levels(&whole, &parts)?;
        let pairs: Vec<_> = parts.iter().zip(values.iter().map(Vec::as_slice)).collect();

        let staged = StagedFolder::begin(&self.folder).context("cannot make the folder")?;
        staged.write("ancestor.safetensors", &exchange::encode(&whole, &pairs, &[])?)?;
        staged.write("tokenizer.json", foreign.tokenizer.json())?;
        staged.write(PRETRAINED, &foreign.pretrained.encode()?)?;
        let text = toml::to_string(&run)?;
        let title = format!("# A run whose ancestor was imported from {}.\n\n", self.model.display());
        staged.write("run.toml", (title + &text).as_bytes())?;
        staged.put_in_place()?;

        let file = self.folder.join("run.toml");
        let output = globals.output();
        let command = format!("pathswarm create {} --ancestor {}", file.display(), self.folder.display());
        if !unread.is_empty() {
            let names = unread.join(", ");
            output.text(&format!("not read, as transformers does not either: {names} in {}", self.model.display()))?;
        }
        output.text(&format!("{} says what is trained; edit it, then:\n  {command}", file.display()))?;
        output.json(&json!({
            "event": "result", "folder": self.folder, "run": file, "found": command, "layout": foreign.layout.name(),
            "unread": unread,
        }))?;
        Ok(())
    }

    fn run_config(&self, foreign: &ForeignModel<'_>) -> anyhow::Result<RunConfig> {
        let full = &foreign.model;
        let hint = "such as --grid 2x2, or --grid 4 for a flat mixture";
        let grid = format!("--grid {}", self.grid);
        let experts: Vec<u32> = self
            .grid
            .split('x')
            .map(|count| count.parse().ok().filter(|count| *count > 0))
            .collect::<Option<_>>()
            .ok_or_else(|| Mistake::new(format!("{grid}: not a list of experts per level")).hint(hint))?;
        if experts.len() > full.blocks {
            let error = format!("{grid}: the model has {} blocks for {} levels", full.blocks, experts.len());
            return Err(Mistake::new(error).hint(hint).into());
        }
        let mut run = RunConfig::from_toml(PATTERN)?;
        let name = self.folder.file_name().map(|name| name.to_string_lossy().into_owned());
        run.name = name.unwrap_or_else(|| "imported".to_owned());
        let usual = if full.positions == Positions::Rotary { full.context.min(CONTEXT) } else { full.context };
        run.model = foreign.with_context(Some(self.context.unwrap_or(usual)))?;
        run.levels = match self.adapter {
            None => levels(&run.model, &experts),
            Some(rank) => {
                run.model.adapter = Some(AdapterConfig { rank, alpha: None });
                run.training.learning_rate = ADAPTER_LEARNING_RATE;
                levels_of_adapters(run.model.blocks, &experts)
            }
        };
        run.check().map_err(|error| Mistake::new(&error).hint(remedy(&error)))?;
        Ok(run)
    }
}

/// The flag that set what a run cannot have.
fn remedy(error: &RunConfigError) -> &'static str {
    match error {
        RunConfigError::Key(error) if error.key.starts_with("model.adapter") => "give another --adapter",
        RunConfigError::Key(error) if error.key == "model.context" => "give another --context",
        RunConfigError::Key(error) if error.key == "name" => "name a folder of letters, digits, - and _",
        _ => "give another --grid or --context",
    }
}

/// The adapters, divided into levels of about equal depth.
fn levels_of_adapters(blocks: usize, experts: &[u32]) -> Vec<LevelConfig> {
    let level = |(index, count): (usize, &u32)| {
        let [first, after] = [index, index + 1].map(|level| level * blocks / experts.len());
        LevelConfig { parts: vec![format!("adapters.{first}-{}", after - 1)], sharing: sharing(*count) }
    };
    experts.iter().enumerate().map(level).collect()
}

fn sharing(experts: u32) -> Sharing {
    if experts == 1 { Sharing::Shared } else { Sharing::Experts(experts) }
}

/// The blocks, divided into levels of about equal depth, with the embedding below and the head above.
fn levels(model: &ModelConfig, experts: &[u32]) -> Vec<LevelConfig> {
    let parts = model.parts();
    let (blocks, levels) = (model.blocks, experts.len());
    let level = |(index, experts): (usize, &u32)| {
        let (first, after) = (index * blocks / levels, (index + 1) * blocks / levels);
        let below = if index == 0 { 0 } else { 1 + first };
        let above = if index + 1 == levels { parts.len() } else { 1 + after };
        LevelConfig { parts: parts[below..above].iter().map(ToString::to_string).collect(), sharing: sharing(*experts) }
    };
    experts.iter().enumerate().map(level).collect()
}
