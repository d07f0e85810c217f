//! Flags for the text of a new run.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::cli::swarm::reading::UnreadableFlag;
use crate::text::{CorpusSource, Tokenizer};

#[derive(Args, Clone, Debug)]
pub struct TextFlags {
    /// Files and folders to train on: plain text, JSON objects with a `text` field (a line each, or in an array), all of
    /// them also packed (gzip, Zstandard, bzip2, xz), or Parquet with a `text` column; the run's file may name another.
    /// Without it, the sources of this program's own dependencies.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub corpus: Vec<PathBuf>,
    /// Files and folders to test on. Without it, a share of the corpus.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub test_corpus: Vec<PathBuf>,
    #[command(flatten)]
    pub unreadable: UnreadableFlag,
}

/// Flags for the text and its tokenizer.
#[derive(Args, Clone, Debug)]
pub struct CorpusFlags {
    #[command(flatten)]
    pub text: TextFlags,
    /// Use this tokenizer.json instead of training one on the corpus. The config.json, tokenizer_config.json or
    /// generation_config.json beside it names the token that ends a document.
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
}

impl TextFlags {
    /// The training text.
    pub fn source(&self) -> Result<CorpusSource, Mistake> {
        if let Some(given) = self.given_source() {
            return Ok(given);
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

    /// The training text that was named.
    pub fn given_source(&self) -> Option<CorpusSource> {
        self.named(&self.corpus)
    }

    /// The test text, if it is not a share of the corpus.
    pub fn test_source(&self) -> Option<CorpusSource> {
        self.named(&self.test_corpus)
    }

    fn named(&self, paths: &[PathBuf]) -> Option<CorpusSource> {
        (!paths.is_empty()).then(|| self.unreadable.source(paths.to_vec()))
    }
}

impl CorpusFlags {
    /// The tokenizer's bytes, for a run that reads text.
    pub fn tokenizer(&self, reads_images: bool) -> Result<Option<Vec<u8>>, Mistake> {
        if reads_images && self.tokenizer.is_some() {
            return Err(Mistake::new("this run reads images, which need no tokenizer").hint("leave --tokenizer out"));
        }
        let read = |path: &PathBuf| {
            let tokenizer = Tokenizer::adopt(path).or_mistake("give the path of a tokenizer.json that can be used")?;
            Ok(tokenizer.json().to_vec())
        };
        self.tokenizer.as_ref().map(read).transpose()
    }
}
