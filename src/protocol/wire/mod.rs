//! What peers say to each other, and how it is encoded.

pub mod encoding;
pub mod inner_checkpoint;
pub mod message;
