//! What clients send: the fields of OpenAI's API, each checked, and the few that this server adds.
//!
//! A field that OpenAI documents and that changes the answer in a way that this server cannot follow is refused. One that
//! changes nothing in an answer, such as `user`, is ignored. Any other field is refused by name, as OpenAI does it, so that
//! a misspelt one is noticed.

pub mod chat;
pub mod completion;
pub mod embedding;
pub mod error;
pub mod fields;
pub mod sampling;

pub use chat::ChatRequest;
pub use completion::CompletionRequest;
pub use embedding::EmbeddingRequest;
pub use error::ApiError;
pub use sampling::{Shared, Streaming};
