//! The text of a run: documents, parted into what is trained on and what is tested on, and their tokens.

use super::{FoundingError, Stage};
use crate::config::RunConfig;
use crate::names::BlobHash;
use crate::text::{CorpusError, CorpusSource, TokenSet, Tokenizer, read_corpus, split_test};

/// The text of a run as tokens.
pub struct Text {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// To train on.
    pub train: TokenSet,
    /// To test on.
    pub test: TokenSet,
    /// Hash of the corpus.
    pub corpus: BlobHash,
    /// Hash of the test corpus, or of the corpus again if a share of it is the test text.
    pub test_corpus: BlobHash,
}

/// The documents of a run.
pub struct Documents {
    /// To train on.
    pub(super) train: Vec<String>,
    test: Vec<String>,
    /// Hash of the corpus.
    pub corpus: BlobHash,
    /// Hash of the test corpus, or of the corpus again if a share of it is the test text.
    pub test_corpus: BlobHash,
}

impl Documents {
    /// Reads a corpus, and parts it in two if there is none to test on.
    ///
    /// # Errors
    /// If a file cannot be read, or nothing is left.
    pub fn read(
        corpus: &CorpusSource,
        test_corpus: Option<&CorpusSource>,
        run: &RunConfig,
        told: &mut dyn FnMut(Stage),
    ) -> Result<Self, CorpusError> {
        let corpus = read_corpus(corpus, &run.text)?;
        let hash = corpus.hash;
        told(Stage::Corpus(Box::new(corpus.clone())));
        let (train, test, test_hash) = match test_corpus {
            Some(source) => {
                let test = read_corpus(source, &run.text)?;
                (corpus.documents, test.documents, test.hash)
            }
            None => {
                let (train, test) = split_test(corpus.documents, run.text.test_share);
                (train, test, hash)
            }
        };
        Ok(Self { train, test, corpus: hash, test_corpus: test_hash })
    }
}

impl Text {
    /// Makes sequences of documents, with this `tokenizer.json` or with one that is trained on them.
    ///
    /// # Errors
    /// If the tokenizer cannot be used, or does not fit the model.
    pub fn of(
        documents: Documents,
        tokenizer: Option<&[u8]>,
        run: &RunConfig,
        told: &mut dyn FnMut(Stage),
    ) -> anyhow::Result<Self> {
        let Documents { train, test, corpus, test_corpus } = documents;
        let tokenizer = match tokenizer {
            Some(json) => Tokenizer::from_json(json)?,
            None => Tokenizer::train(&train, run.model.vocabulary)?,
        };
        let (found, expected) = (tokenizer.vocabulary(), run.model.vocabulary);
        if found > expected {
            return Err(FoundingError::Vocabulary { found, expected }.into());
        }
        let context = run.model.context;
        let train = TokenSet::cut_for_training(&tokenizer.encode_all(&train)?, context);
        let test = TokenSet::cut_for_scoring(&tokenizer.encode_all(&test)?, context);
        told(Stage::Tokens { vocabulary: found, tokens: train.tokens(), sequences: train.len() });
        Ok(Self { tokenizer, train, test, corpus, test_corpus })
    }
}
