//! Files become documents, documents become token ids, and token ids become sequences within one document.
//!
//! In data order: [`stream_corpus`] finds and cuts the documents, [`is_test`] sets some aside, [`Tokenizer`] encodes
//! them, with ids in memory or on the disk ([`Tokenized`]). [`TokenSet`] cuts them into sequences and keeps each
//! document's first tokens for the router; [`windows`] divides them where the path may change. Of a conversation
//! ([`chat`]) only some tokens are learnt, which sets remember. No model and no path is known here.

pub mod chat;
pub mod corpus;
mod document;
mod documents;
mod ids;
mod learnt;
mod token_file;
mod tokenized;
pub mod tokenizer;
pub mod tokens;
mod windows;

pub use corpus::error::CorpusError;
pub use corpus::{Corpus, CorpusSource, Domains, Found, Survey, is_test, read_corpus, stream_corpus};
pub use document::{Document, is_image};
pub use ids::IdsWriter;
pub use token_file::TokensError;
pub use tokenized::Tokenized;
pub use tokenizer::{Tokenizer, TokenizerError};
pub use tokens::TokenSet;
pub use windows::{Window, windows};
