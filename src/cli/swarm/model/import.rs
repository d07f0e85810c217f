//! `pathswarm import`: makes a model of `transformers` the ancestor of a run.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use crate::cli::swarm::Globals;
use crate::cli::swarm::create::earlier::PRETRAINED;
use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::cli::swarm::model::foreign_folder;
use crate::config::{LevelConfig, ModelConfig, Positions, RunConfig, level_tensors};
use crate::grid::Sharing;
use crate::model::exchange;
use crate::model::hugging_face::{self, PretrainedFiles, settings};
use crate::store::StagedFolder;
use crate::text::Tokenizer;

/// The configuration of the run, except its model: settings that keep what a pretrained model knows.
const PATTERN: &str = include_str!("../../../../configs/smollm2-2x2.toml");

/// The longest sequence to train on unless `--context` says otherwise, in tokens. Rotary positions lose nothing by it.
const CONTEXT: usize = 1024;

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
    /// Longest sequence to train on, in tokens; by default the model's, but at most 1024 with rotary positions. Learned
    /// positions beyond it are dropped.
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
}

impl Import {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        foreign_folder::must_be_new(&self.folder)?;
        let of = |error: &dyn std::fmt::Display| format!("{}: {error}", self.model.display());
        let config = foreign_folder::read(&self.model, "config.json")?;
        let (full, layout) = settings::read(&config, self.context).map_err(|error| of(&error)).or_mistake(
            "GPT-2, GPT-NeoX, Llama, Mistral, Qwen2, Qwen3 and OLMo 2 with full attention can be imported",
        )?;
        let tokenizer = self.tokenizer(&full)?;
        let pretrained = PretrainedFiles::in_folder(&self.model)
            .or_mistake("give the model's own files, as save_pretrained writes them")?;
        let run = self.run_config(&full)?;
        let files = foreign_folder::weights(&self.model)?;
        let values = hugging_face::levels(&full, &run.levels, &files)
            .map_err(|error| of(&error))
            .or_mistake("the weights must match config.json")?;
        let values = cut_to_context(&full, &run, values);
        let pairs: Vec<_> = run.levels.iter().zip(values.iter().map(Vec::as_slice)).collect();

        let staged = StagedFolder::begin(&self.folder).context("cannot make the folder")?;
        staged.write("ancestor.safetensors", &exchange::encode(&run.model, &pairs, &[])?)?;
        staged.write("tokenizer.json", &tokenizer)?;
        staged.write(PRETRAINED, &pretrained.encode()?)?;
        let text = toml::to_string(&run)?;
        let title = format!("# A run whose ancestor was imported from {}.\n\n", self.model.display());
        staged.write("run.toml", (title + &text).as_bytes())?;
        staged.put_in_place()?;

        let file = self.folder.join("run.toml");
        let output = globals.output();
        let command = format!("pathswarm create {} --ancestor {}", file.display(), self.folder.display());
        if !files.unread.is_empty() {
            let unread = files.unread.join(", ");
            output.text(&format!("not read, as transformers does not either: {unread} in {}", self.model.display()))?;
        }
        output.text(&format!("{} says what is trained; edit it, then:\n  {command}", file.display()))?;
        output.json(&json!({
            "event": "result", "folder": self.folder, "run": file, "found": command, "layout": layout.name(),
            "unread": files.unread,
        }))?;
        Ok(())
    }

    /// The model's tokenizer.
    fn tokenizer(&self, full: &ModelConfig) -> anyhow::Result<Vec<u8>> {
        let of = |error: &dyn std::fmt::Display| format!("{}: {error}", self.model.display());
        let known = Tokenizer::adopt(&self.model.join("tokenizer.json"))
            .or_mistake("give a folder whose tokenizer.json gives every text back")?;
        if known.vocabulary() > full.vocabulary {
            return Err(Mistake::new(of(&format!(
                "tokenizer.json has {} tokens, config.json says vocab_size = {}",
                known.vocabulary(),
                full.vocabulary
            )))
            .hint("give the model's own tokenizer")
            .into());
        }
        Ok(known.json().to_vec())
    }

    fn run_config(&self, full: &ModelConfig) -> anyhow::Result<RunConfig> {
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
        run.model = ModelConfig { context: self.context.unwrap_or(usual), ..full.clone() };
        if run.model.context > full.context {
            let error = format!("--context {}: the model takes {} tokens", run.model.context, full.context);
            return Err(Mistake::new(error).hint("give a shorter one").into());
        }
        run.levels = levels(&run.model, &experts);
        run.check().or_mistake("give another --context or --grid, or rename the folder")?;
        Ok(run)
    }
}

/// The blocks, divided into levels of about equal depth, with the embedding below and the head above.
fn levels(model: &ModelConfig, experts: &[u32]) -> Vec<LevelConfig> {
    let parts = model.parts();
    let (blocks, levels) = (model.blocks, experts.len());
    let level = |(index, experts): (usize, &u32)| {
        let (first, after) = (index * blocks / levels, (index + 1) * blocks / levels);
        let below = if index == 0 { 0 } else { 1 + first };
        let above = if index + 1 == levels { parts.len() } else { 1 + after };
        let sharing = if *experts == 1 { Sharing::Shared } else { Sharing::Experts(*experts) };
        LevelConfig { parts: parts[below..above].iter().map(ToString::to_string).collect(), sharing }
    };
    experts.iter().enumerate().map(level).collect()
}

/// Only the tensor of learned positions depends on the context.
fn cut_to_context(full: &ModelConfig, run: &RunConfig, values: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let cut = |(level, values): (&LevelConfig, Vec<f32>)| {
        let mut rest = values.as_slice();
        let mut kept = Vec::with_capacity(values.len());
        for (whole, wanted) in level_tensors(full, level).iter().zip(level_tensors(&run.model, level)) {
            let (own, after) = rest.split_at(whole.count());
            rest = after;
            kept.extend_from_slice(&own[..wanted.count()]);
        }
        kept
    };
    run.levels.iter().zip(values).map(cut).collect()
}
