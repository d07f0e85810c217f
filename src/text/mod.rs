//! Files become documents, documents become token ids, token ids become sequences that never span two documents.
//!
//! In data order: [`stream_corpus`] finds and cuts the documents, [`is_test`] sets some aside, [`Tokenizer`] turns
//! them into ids, which may stay on the disk ([`Tokenized`]), [`TokenSet`] cuts these into sequences and carries each
//! document's first tokens for the router;
//! [`windows`] parts them where another path may go on.
//! No model and no path is known here.

pub mod corpus;
mod document;
mod documents;
mod ids;
mod token_file;
pub mod tokenizer;
pub mod tokens;
mod windows;

pub use corpus::error::CorpusError;
pub use corpus::{
    Corpus, CorpusSource, Domains, Found, KindCount, Skipped, Survey, Taker, is_test, read_corpus, stream_corpus,
};
pub use document::{Document, DocumentError, is_image};
pub use ids::IdsWriter;
pub use token_file::TokensError;
pub use tokenizer::{Tokenizer, TokenizerError};
pub use tokens::{TokenSet, Tokenized};
pub use windows::{Window, windows};
