//! Why the text of a run is not enough, or not the right one.

use std::path::PathBuf;

use crate::network::limits::TOPICS_PER_PEER;

/// Why the text is not enough, or not the right one.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// Too few documents.
    #[error(
        "{corpus}: {documents} training documents for {paths} paths, at least {least} are needed; \
         give more text or use a smaller grid"
    )]
    Small {
        corpus: String,
        /// To train on.
        documents: u64,
        /// In the grid.
        paths: u32,
        /// Documents needed.
        least: usize,
    },
    /// Too few documents to set some apart.
    #[error(
        "resharding needs a slice of {least} documents for the paths to score, but there are only {documents} training \
         documents; give at least {needed}, or leave routing.reshard out"
    )]
    Slice {
        /// To train on.
        documents: usize,
        /// In the slice, at the least.
        least: usize,
        /// To train on, at the least.
        needed: usize,
    },
    /// While this process read its text.
    #[error("another process has created a run in {} in the meantime; start again to continue that run", .0.display())]
    Meanwhile(PathBuf),
    /// The founder begins as a member of every module.
    #[error("the grid has {0} modules, but a founder can hold at most {TOPICS_PER_PEER}; use fewer levels or experts")]
    Modules(usize),
    /// Somebody writes to the text.
    #[error("{0} changed while it was read; start again when no program writes to it")]
    Changed(String),
    /// Test images that are numbered differently.
    #[error("{0}: its classes differ from those of the corpus; prepare it with --classes-of the corpus' file")]
    Classes(String),
    /// Images have none.
    #[error("this run reads images, which need no tokenizer; leave --tokenizer out")]
    NoTokenizer,
    /// The tokenizer has more entries than the model's embedding has rows.
    #[error("the tokenizer has {found} entries, model.vocabulary is {expected}; set model.vocabulary = {found}")]
    Vocabulary {
        /// The tokenizer's.
        found: usize,
        /// The model's.
        expected: usize,
    },
}
