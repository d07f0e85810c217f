//! The forms of answers.

pub mod chat;
pub mod collect;
pub mod completion;
pub mod head;
pub mod models;
pub mod pieces;
pub mod tokens;

pub use collect::{Answer, Choice};
