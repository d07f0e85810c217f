//! Errors of a run's text.

use std::path::PathBuf;

use crate::network::limits::TOPICS_PER_PEER;

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(
        "{corpus}: {documents} training documents for {paths} paths, at least {least} are needed; \
         give more text or use a smaller grid"
    )]
    Small { corpus: String, documents: u64, paths: u32, least: usize },
    #[error(
        "resharding needs a slice of {least} documents for the paths to score, but there are only {documents} training \
         documents; give at least {needed}, or leave routing.reshard out"
    )]
    Slice { documents: usize, least: usize, needed: usize },
    #[error(
        "{documents} training documents begin in only {distinct} ways (their first {tokens} tokens, which choose the \
         path), but {paths} paths need at least as many; remove what all begin with, set a larger \
         routing.prefix_tokens, or use a smaller grid"
    )]
    Beginnings { documents: usize, distinct: usize, tokens: usize, paths: u32 },
    #[error(
        "there is nothing to score in the test corpus: none of its documents is longer than the {0} tokens that choose \
         a path; give longer text with --test-corpus, or leave it out"
    )]
    NothingToScore(usize),
    #[error("another process has created a run in {} in the meantime; start again to continue that run", .0.display())]
    Meanwhile(PathBuf),
    #[error("the grid has {0} modules, but a creator can hold at most {TOPICS_PER_PEER}; use fewer levels or experts")]
    Modules(usize),
    #[error("{0} changed while it was read; start again when no program writes to it")]
    Changed(String),
    #[error("{0}: its classes differ from those of the corpus; prepare it with --classes-of the corpus' file")]
    Classes(String),
    #[error(
        "[model.adapter] trains adapters beside a pretrained model, but no model is given; give one with --ancestor, or \
         leave [model.adapter] out"
    )]
    NotPretrained,
    #[error("this run reads images, which need no tokenizer; leave --tokenizer out")]
    NoTokenizer,
    #[error("the tokenizer has {found} entries, model.vocabulary is {expected}; set model.vocabulary = {found}")]
    Vocabulary { found: usize, expected: usize },
}
