//! Whether there is enough text for a run, known before anything is trained.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::config::{RunConfig, Starts};
use crate::peer::create::text::{Documents, Text, tokenizer_of};
use crate::peer::create::{CreateError, Stage, TextFrom};
use crate::text::{TokenSet, windows};

/// Least number of documents of a shard.
const LEAST_DOCUMENTS: usize = 8;

/// Whether the tokens can be divided among so many paths, and scored.
pub(super) fn check_tokens(run: &RunConfig, paths: u32, text: &Text) -> Result<(), CreateError> {
    check_beginnings(run, paths, &text.train)?;
    check_test_text(run, text)
}

/// Whether documents begin in enough ways: those that begin alike go to one path.
fn check_beginnings(run: &RunConfig, paths: u32, train: &TokenSet) -> Result<(), CreateError> {
    let tokens = run.routing.prefix_tokens;
    let beginnings = train.documents().map(|sequences| train.prefix(sequences.start, tokens));
    let mut distinct = BTreeSet::new();
    for beginning in beginnings {
        distinct.insert(beginning);
        if distinct.len() >= paths as usize {
            return Ok(());
        }
    }
    let (documents, distinct) = (train.documents().len(), distinct.len());
    Err(CreateError::Beginnings { documents, distinct, tokens, paths })
}

/// Whether anything of a test corpus can be scored. A share of the corpus may be empty.
fn check_test_text(run: &RunConfig, text: &Text) -> Result<(), CreateError> {
    let apart = text.corpus != text.test_corpus;
    let nothing = || windows(&text.test, run.starts(), usize::MAX).is_empty();
    let Starts { of_document, of_sequence } = run.starts();
    if apart && nothing() { Err(CreateError::NothingToScore(of_document.max(of_sequence))) } else { Ok(()) }
}

/// Documents or tokens that are known to be enough.
pub(super) enum Read {
    Documents(Documents, Option<Vec<u8>>),
    Tokens(Box<Text>),
}

impl Read {
    pub(super) fn tokens(
        self,
        run: &RunConfig,
        (folder, stop): (&Path, &AtomicBool),
        told: &mut dyn FnMut(Stage),
    ) -> anyhow::Result<Text> {
        match self {
            Self::Tokens(text) => Ok(*text),
            Self::Documents(documents, tokenizer) => {
                Text::of(documents, tokenizer.as_deref(), run, (Some(folder), stop), told)
            }
        }
    }
}

/// Reads the text once, to know whether it is enough.
pub(super) fn read(
    text: TextFrom,
    run: &RunConfig,
    paths: u32,
    stop: &AtomicBool,
    told: &mut dyn FnMut(Stage),
) -> anyhow::Result<Read> {
    let least = LEAST_DOCUMENTS * paths as usize;
    let (read, documents, corpus) = match text {
        TextFrom::Corpus { corpus, test, tokenizer } => {
            // Fails before the text is read.
            tokenizer.as_deref().map(|json| tokenizer_of(run, json)).transpose()?;
            let documents = Documents::read(&corpus, test.as_ref(), (run, tokenizer.is_none()), stop, told)?;
            let train = documents.train;
            (Read::Documents(documents, tokenizer), train, corpus.to_string())
        }
        TextFrom::Tokens(text) => {
            let train = text.train.documents().len() as u64;
            (Read::Tokens(text), train, "the text of the previous run".to_owned())
        }
    };
    if documents < least as u64 {
        return Err(CreateError::Small { corpus, documents, paths, least }.into());
    }
    Ok(read)
}
