//! The messages between peers, and their encoding.

pub mod encoding;
pub mod inner_checkpoint;
pub mod message;
