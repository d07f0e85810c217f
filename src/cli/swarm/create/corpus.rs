//! Flags for the text of a new run.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::text::CorpusSource;

#[derive(Args, Clone, Debug)]
pub struct TextFlags {
    /// Files and folders to train on: plain text, JSON lines with a `text` field (also .zst and .gz), or Parquet with a
    /// `text` column; the run's file may name another. Without it, the sources of this program's own dependencies.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub corpus: Vec<PathBuf>,
    /// Files and folders to test on. Without it, a share of the corpus.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub test_corpus: Vec<PathBuf>,
}

/// Flags for the text and its tokenizer.
#[derive(Args, Clone, Debug)]
pub struct CorpusFlags {
    #[command(flatten)]
    pub text: TextFlags,
    /// Use this tokenizer.json instead of training one on the corpus.
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
}

impl TextFlags {
    /// The training text.
    pub fn source(&self) -> Result<CorpusSource, Mistake> {
        if !self.corpus.is_empty() {
            return Ok(CorpusSource::Paths(self.corpus.clone()));
        }
        // The project from which this program was built, if it still exists, else the current folder.
        let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let manifest = [built_from, PathBuf::from("Cargo.toml")].into_iter().find(|manifest| {
            manifest.parent().is_some_and(|folder| folder.join("Cargo.lock").exists()) && manifest.exists()
        });
        let manifest = manifest.ok_or_else(|| {
            Mistake::new("no corpus: the current folder has no Cargo.toml whose dependencies could be read")
                .hint("give --corpus PATH")
        })?;
        Ok(CorpusSource::Dependencies { manifest })
    }

    /// The test text, if it is not a share of the corpus.
    pub fn test_source(&self) -> Option<CorpusSource> {
        (!self.test_corpus.is_empty()).then(|| CorpusSource::Paths(self.test_corpus.clone()))
    }
}

impl CorpusFlags {
    /// The tokenizer's bytes.
    pub fn tokenizer(&self) -> Result<Option<Vec<u8>>, Mistake> {
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|error| format!("{}: {error}", path.display()))
                .or_mistake("give the path of a tokenizer.json")
        };
        self.tokenizer.as_ref().map(read).transpose()
    }
}
