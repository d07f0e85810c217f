//! `pathswarm init`: writes the configuration of a run, with comments, for a grid and a size.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cli::{Globals, Mistake, OrMistake};
use crate::config::{RunConfig, level_parameters};

/// Most modules of a level.
const MOST_MODULES: u32 = 256;

/// Sizes of a path's network, by its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// About 2 million: minutes on a laptop.
    Tiny,
    /// About 10 million: hours on a laptop.
    Small,
    /// About 50 million: a gaming PC.
    Medium,
    /// About 110 million: a card of 16 GB.
    Large,
}

/// Write the configuration of a run. In a terminal, what no option says is asked for.
#[derive(Args)]
pub struct Init {
    /// The run's name. The file is NAME.toml, unless --out says otherwise.
    name: String,
    /// The modules of each level, such as 2x2 or 4x4x2. There are as many paths as their product; each is a peer's work.
    #[arg(long, value_name = "GRID")]
    grid: Option<String>,
    /// The size of a path's network.
    #[arg(long, value_enum)]
    size: Option<Size>,
    /// The file to write.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The numbers of a size.
struct Network {
    blocks: u32,
    width: u32,
    heads: u32,
    vocabulary: u32,
    context: u32,
    batch_sequences: u32,
    inner_steps: u32,
    phases: u32,
    optimizer: &'static str,
    learning_rate: &'static str,
    tied_head: bool,
}

impl Size {
    fn network(self) -> Network {
        let (blocks, width, heads, vocabulary, context) = match self {
            Self::Tiny => (4, 128, 4, 4096, 256),
            Self::Small => (8, 256, 8, 8192, 512),
            Self::Medium => (12, 512, 8, 16384, 512),
            Self::Large => (12, 768, 12, 32768, 1024),
        };
        let (optimizer, learning_rate) = match self {
            Self::Tiny => ("muon", "1e-2"),
            Self::Small => ("adamw", "1e-3"),
            Self::Medium => ("adamw", "6e-4"),
            Self::Large => ("adamw", "4e-4"),
        };
        let (inner_steps, phases) = if self == Self::Tiny { (50, 40) } else { (100, 100) };
        let tied_head = matches!(self, Self::Medium | Self::Large);
        let batch_sequences = if self == Self::Large { 16 } else { 8 };
        Network {
            blocks,
            width,
            heads,
            vocabulary,
            context,
            batch_sequences,
            inner_steps,
            phases,
            optimizer,
            learning_rate,
            tied_head,
        }
    }
}

impl Init {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let grid = match self.grid {
            Some(grid) => grid,
            None if asks => asked("modules of each level", "2x2")?,
            None => "2x2".to_owned(),
        };
        let size = match self.size {
            Some(size) => size,
            None if asks => {
                let answer = asked("size of a path: tiny, small, medium or large", "tiny")?;
                Size::from_str(&answer, true).or_mistake("name one of tiny, small, medium and large")?
            }
            None => Size::Tiny,
        };
        let network = size.network();
        let levels = modules(&grid, network.blocks)?;
        let text = configuration(&self.name, &levels, &network);
        let hint = "give a name of letters, digits, - and _, and another --grid or --size";
        let run = RunConfig::from_toml(&text).or_mistake(hint)?;
        let file = self.out.unwrap_or_else(|| PathBuf::from(format!("{}.toml", self.name)));
        write_new(&file, &text)?;
        told(globals, &file, &run)
    }
}

/// An answer in the terminal.
fn asked(question: &str, usual: &str) -> anyhow::Result<String> {
    let mut error = std::io::stderr();
    write!(error, "{question} [{usual}]: ")?;
    error.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    let answer = answer.trim();
    Ok(if answer.is_empty() { usual } else { answer }.to_owned())
}

/// The modules of each level.
fn modules(grid: &str, blocks: u32) -> Result<Vec<u32>, Mistake> {
    let hint = format!("give one to {blocks} numbers of 1 to {MOST_MODULES} with x between them, such as 2x2 or 4x4x2");
    let levels: Option<Vec<u32>> = grid
        .split('x')
        .map(|count| count.trim().parse().ok().filter(|count| (1..=MOST_MODULES).contains(count)))
        .collect();
    let fits = |levels: &Vec<u32>| levels.len() <= blocks as usize;
    levels.filter(fits).ok_or_else(|| Mistake::new(format!("--grid {grid:?} is no grid of modules")).hint(hint))
}

/// The file's text.
fn configuration(name: &str, levels: &[u32], network: &Network) -> String {
    let Network { blocks, width, heads, vocabulary, context, tied_head, .. } = network;
    let Network { batch_sequences, inner_steps, phases, optimizer, learning_rate, .. } = network;
    // A fifth of all steps.
    let ancestor_steps = inner_steps * phases / 4;
    let rate = match *optimizer {
        "muon" => "\"adamw\" wants half of it or less",
        _ => "not tuned for this run: try half and double",
    };
    let mut text = format!(
        "# Each value and its origin: pathswarm config show FILE. What a key means: pathswarm config explain KEY.\n\n\
         name = {name:?}\n\
         seed = 1                        # all random numbers of the run derive from it\n\n\
         # How text becomes the sequences that paths train on.\n\
         [text]\n\
         test_share = 0.05               # share of the documents on which the run is scored\n\
         held_out_share = 0.02           # share of each path's documents that it does not train on\n\n\
         # The network of one path. A peer holds only its paths, never all parameters.\n\
         [model]\n\
         blocks = {blocks}\n\
         width = {width}\n\
         heads = {heads}\n\
         vocabulary = {vocabulary}\n\
         context = {context}                   # longest sequence, in tokens\n\
         tied_head = {tied_head}               # whether the embedding, transposed, is the head\n\n"
    );
    let product: u64 = levels.iter().map(|count| u64::from(*count)).product();
    let _ = writeln!(text, "# A path takes one module of each level, so there are {product} paths.");
    text += &levels_text(levels, network);
    let _ = write!(
        text,
        "# Which document goes to which path.\n\
         [routing]\n\
         prefix_tokens = 32              # a document's first tokens choose its path; they are not scored\n\n\
         # The inner steps, which each peer makes on its own.\n\
         [training]\n\
         batch_sequences = {batch_sequences}\n\
         inner_steps = {inner_steps}               # steps between two exchanges\n\
         phases = {phases}                    # exchanges\n\
         ancestor_steps = {ancestor_steps}           # a dense path trained first, from which every path starts\n\
         optimizer = {optimizer:?}\n\
         learning_rate = {learning_rate}           # {rate}\n\
         warmup_steps = 50\n\n\
         # The outer steps, which the peers make together.\n\
         [outer]\n\
         codec = \"int4\"                  # outer gradients are sent with 4 bits a value\n\
         error_feedback = true           # the compression error is added to the next outer gradient\n"
    );
    text
}

/// The levels, with the blocks spread evenly.
fn levels_text(levels: &[u32], network: &Network) -> String {
    let (count, blocks) = (levels.len() as u32, network.blocks);
    let mut text = String::new();
    for (level, modules) in (0..).zip(levels) {
        let (from, to) = (level * blocks / count, (level + 1) * blocks / count - 1);
        let block = if from == to { format!("block.{from}") } else { format!("blocks.{from}-{to}") };
        let first = (level == 0).then_some("embedding");
        let last = (level + 1 == count).then_some("final-norm");
        let head = last.filter(|_| !network.tied_head).map(|_| "head");
        let parts = first.into_iter().chain([block.as_str()]).chain(last).chain(head);
        let parts: Vec<String> = parts.map(|part| format!("{part:?}")).collect();
        let sharing = if *modules == 1 { "\"shared\"".to_owned() } else { format!("{{ experts = {modules} }}") };
        let _ = write!(text, "[[levels]]\nparts = [{}]\nsharing = {sharing}\n\n", parts.join(", "));
    }
    text
}

/// Writes a file that is not there.
fn write_new(file: &std::path::Path, text: &str) -> anyhow::Result<()> {
    let shown = file.display();
    let created = std::fs::OpenOptions::new().write(true).create_new(true).open(file);
    let mut created = created.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Mistake::new(format!("{shown} is there already")).hint("give another name, or another --out")
        }
        _ => Mistake::new(format!("{shown} cannot be written: {error}"))
            .hint("name a file in a folder that is there and that you may write to"),
    })?;
    Ok(created.write_all(text.as_bytes())?)
}

/// What was written, and what comes next.
fn told(globals: &Globals, file: &std::path::Path, run: &RunConfig) -> anyhow::Result<()> {
    let each: Vec<u64> = run.levels.iter().map(|level| level_parameters(&run.model, level) as u64).collect();
    let grid = run.grid()?;
    let all: u64 = (0..grid.levels()).zip(&each).map(|(level, each)| u64::from(grid.experts(level)) * each).sum();
    let (paths, path, shown) = (grid.path_count(), each.iter().sum::<u64>(), file.display());
    let millions = |count: u64| format!("{:.1} million", count as f64 / 1e6);
    let output = globals.output();
    output.text(&format!("{shown}: {paths} paths of {} parameters, {} in all", millions(path), millions(all)))?;
    output.text(&format!("what a step takes of this machine:  pathswarm config memory {shown}"))?;
    output.text(&format!("try it on this machine:             pathswarm simulate {shown} --corpus PATH"))?;
    output.text(&format!("start a swarm:                      pathswarm create {shown} --corpus PATH --share-text"))?;
    let result = json!({
        "event": "result", "file": file.to_string_lossy(), "paths": paths, "parameters_per_path": path, "parameters": all,
    });
    Ok(output.json(&result)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_and_grid_is_a_run_whose_paths_have_about_so_many_parameters() {
        let sizes = [(Size::Tiny, 1.8), (Size::Small, 10.5), (Size::Medium, 46.0), (Size::Large, 110.0)];
        for (size, millions) in sizes {
            for grid in ["1", "8", "2x2", "4x1x2", "3x3x3x3"] {
                let network = size.network();
                let levels = modules(grid, network.blocks).unwrap();
                let run = RunConfig::from_toml(&configuration("a-run", &levels, &network)).unwrap();
                let each: usize = run.levels.iter().map(|level| level_parameters(&run.model, level)).sum();
                let found = each as f64 / 1e6;
                assert!((found / millions - 1.0).abs() < 0.1, "{size:?}, {grid}: {found}");
                assert_eq!(run.grid().unwrap().path_count(), levels.iter().product::<u32>());
            }
        }
    }

    #[test]
    fn what_is_no_grid_is_refused() {
        for grid in ["", "2x", "0x2", "axb", "2x2x2x2x2", "257"] {
            assert!(modules(grid, 4).is_err(), "{grid}");
        }
    }
}
